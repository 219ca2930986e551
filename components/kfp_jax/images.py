"""The names of our container images."""

import os
import re

from kfp_jax import __version__
from kfp_jax.errors import SpecError

# Where they are kept. A task of a pipeline gets it as it was at compile time: the jobs that it
# starts are to take their image from there, too.
PREFIX_VARIABLE = "KFP_JAX_IMAGE_PREFIX"
DEFAULT_PREFIX = "kfp-jax"
# kfp.local warns about images without "python" in their name.
LAUNCHER = "launcher-python"

_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_PREFIX = re.compile(rf"[A-Za-z0-9.-]+(?::\d+)?(?:/{_PART})*")


def prefix() -> str:
    """Returns the registry and folder of our images: KFP_JAX_IMAGE_PREFIX or `kfp-jax`.

    Raises:
        SpecError: The variable holds no such name.
    """
    given = os.environ.get(PREFIX_VARIABLE) or DEFAULT_PREFIX
    if not _PREFIX.fullmatch(given):
        raise SpecError(
            f"{PREFIX_VARIABLE} is {given!r:.80}; give a registry and folder without a slash at the"
            " end, such as registry.example.com/team."
        )
    return given


def image(name: str) -> str:
    """Returns the full name of one of our images, of this version."""
    return f"{prefix()}/{name}:{__version__}"
