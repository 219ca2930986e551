"""What differs between the versions of Kubeflow Trainer that we write TrainJobs for."""

import re
from collections.abc import Container
from enum import StrEnum

from kfp_jax.errors import SpecError

_TOO_OLD = (
    "has no JAX runtime; install Trainer 2.2 or newer, or choose the backend jobset, which needs"
    " JobSet alone."
)


class Dialect(StrEnum):
    """A version, and all later ones up to the next."""

    V2_2 = "2.2"
    V2_3 = "2.3"

    @property
    def max_argument(self) -> int:
        """How many characters an argument may have, by the schema of TrainJobs."""
        return 65_536 if self is Dialect.V2_2 else 1_048_576


def dialect_of_version(version: str) -> Dialect:
    """Returns the dialect for a version such as v2.3.0.

    Raises:
        SpecError: It is no version, or older than 2.2.
    """
    match = re.match(r"v?(\d+)\.(\d+)", version)
    if match is None:
        raise SpecError(f"Trainer's version {version!r:.40} is not known; give one such as 2.3.")
    number = int(match[1]), int(match[2])
    if number < (2, 2):
        raise SpecError(f"Kubeflow Trainer {version} on this cluster {_TOO_OLD}")
    return Dialect.V2_2 if number == (2, 2) else Dialect.V2_3


def dialect_of_schema(fields: Container[str]) -> Dialect:
    """Returns the dialect of a server by the names of all fields, at any depth, of its TrainJob.

    The schema decides rather than a version: builds from source have none.

    Raises:
        SpecError: TrainJobs have no runtimePatches, that is, Trainer is older than 2.2.
    """
    if "runtimePatches" not in fields:
        raise SpecError(f"The Kubeflow Trainer on this cluster is older than 2.2 and {_TOO_OLD}")
    return Dialect.V2_3 if "terminationGracePeriodSeconds" in fields else Dialect.V2_2
