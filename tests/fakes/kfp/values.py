"""Parameters as protobuf's `Value` has them: one kind of number, keys in order, types checked."""

import json
import math
from typing import Any

from fakes.kfp.ir import DriverError

# Our names of the kinds of a Value, and the parameter types that each of them may be given to.
_TYPES = {
    "number": {"NUMBER_DOUBLE", "NUMBER_INTEGER"},
    "bool": {"BOOLEAN"},
    "list": {"LIST"},
    "struct": {"STRUCT", "TASK_FINAL_STATUS", "TASK_CONFIG"},
    "string": {"STRING"},
}


def normal(value: Any) -> Any:
    """Returns a value as it comes out of a Value: 1.0 is 1, and keys are sorted.

    Raises:
        DriverError: There is a NaN or an infinity in it, which JSON has not.
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            raise DriverError(f"{value} is no JSON number")
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: normal(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [normal(item) for item in value]
    return value


def to_json(value: Any) -> str:
    return json.dumps(normal(value), separators=(",", ":"), ensure_ascii=False)


def kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    return {str: "string", list: "list", dict: "struct", type(None): "null"}[type(value)]


def text(value: Any) -> str:
    """Returns a value as text, which is what an input of type STRING makes of any other."""
    return value if isinstance(value, str) else to_json(value)


def checked(name: str, value: Any, wanted: str) -> Any:
    """Returns a value as an input of a type gets it.

    Raises:
        DriverError: It is of another type, and the input is no text.
    """
    if wanted == "STRING":
        return text(value)
    found = kind(value)
    if wanted not in _TYPES.get(found, ()):
        raise DriverError(f"input parameter {name!r} type mismatch: expect {wanted}, got {found}")
    return value
