"""What differs between the versions of Kubeflow Trainer that we write TrainJobs for."""

from collections.abc import Container, Iterator, Mapping
from enum import StrEnum
from typing import Any

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


def dialect_of_schema(fields: Container[str]) -> Dialect:
    """Returns the dialect of a server by the names of all fields, at any depth, of its TrainJob.

    The schema decides rather than a version: builds from source have none.

    Raises:
        SpecError: TrainJobs have no runtimePatches, that is, Trainer is older than 2.2.
    """
    if "runtimePatches" not in fields:
        raise SpecError(f"The Kubeflow Trainer on this cluster is older than 2.2 and {_TOO_OLD}")
    return Dialect.V2_3 if "terminationGracePeriodSeconds" in fields else Dialect.V2_2


def schema_fields(document: Mapping[str, Any], kind: str) -> frozenset[str]:
    """Returns the names of all fields, at any depth, of a kind in an OpenAPI 3 document."""
    schemas = document.get("components", {}).get("schemas", {})
    found = [schema for name, schema in schemas.items() if name.endswith(f".{kind}")]
    return frozenset(_fields(found))


def _fields(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        properties = schema.get("properties")
        if isinstance(properties, Mapping):
            yield from properties
        for item in schema.values():
            yield from _fields(item)
    elif isinstance(schema, list):
        for item in schema:
            yield from _fields(item)
