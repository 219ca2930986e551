"""Which backend a name stands for."""

from kfp_jax.backends.base import Backend
from kfp_jax.backends.local import LocalBackend
from kfp_jax.errors import SpecError

NAMES = ("auto", "local")


def choose_backend(name: str) -> Backend:
    """Returns the backend of that name; `auto` is this machine.

    Raises:
        SpecError: There is none.
    """
    if name not in NAMES:
        raise SpecError(f"backend is {name!r:.60}; give one of {', '.join(NAMES)}.")
    return LocalBackend()
