from typing import Any

import pytest
from kfp_jax.errors import SpecError
from kfp_jax.manifests.dialect import (
    Dialect,
    dialect_of_schema,
    schema_fields,
)


@pytest.mark.parametrize(
    ("fields", "dialect"),
    [
        ({"runtimePatches", "activeDeadlineSeconds"}, Dialect.V2_2),
        ({"runtimePatches", "terminationGracePeriodSeconds"}, Dialect.V2_3),
    ],
)
def test_the_schema_tells_the_dialect(fields: set[str], dialect: Dialect) -> None:
    assert dialect_of_schema(fields) is dialect


@pytest.mark.parametrize("field", ["podTemplateOverrides", "podSpecOverrides"])
def test_the_schema_of_an_old_server_is_refused(field: str) -> None:
    with pytest.raises(SpecError, match=r"older than 2\.2.*backend jobset"):
        dialect_of_schema({field})


def test_fields_of_a_schema_are_found_at_any_depth_of_one_kind() -> None:
    def schema(field: str) -> dict[str, Any]:
        inner = {"type": "array", "items": {"properties": {field: {"type": "string"}}}}
        return {"properties": {"spec": {"properties": {"outer": inner}}}}

    schemas = {"v1.TrainJob": schema("runtimePatches"), "v1.TrainJobList": schema("other")}
    document = {"components": {"schemas": schemas}}
    assert schema_fields(document, "TrainJob") == {"spec", "outer", "runtimePatches"}
    assert schema_fields({}, "TrainJob") == frozenset()
