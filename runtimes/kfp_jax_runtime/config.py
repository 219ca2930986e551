"""Parameters into a program's own dataclass, with errors that name the key and what is valid.

Parameters come from JSON, a command line or a pipeline that turned every int into a float, so
each field takes the spellings that mean exactly one value of its type, and nothing else.
"""

import dataclasses
import difflib
import enum
import math
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from kfp_jax_runtime.errors import BadInput

Config = TypeVar("Config")

_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)


class _Refused(Exception):
    """A value does not fit; the argument says what would ("a whole number")."""


def from_parameters(cls: type[Config], parameters: Mapping[str, object]) -> Config:
    """Returns an instance of the dataclass `cls` made from `parameters`.

    | field | takes |
    | --- | --- |
    | int | 3, 3.0, "3" |
    | float | 3, 0.5, "3", "1e-3"; finite |
    | bool | true, false, "true", "false" |
    | str | text, 3 |
    | X or None | null, or what X takes |
    | Literal, Enum | one of the choices (an Enum's value or name) |
    | tuple[X, ...], tuple[X, Y] | a list of what X (and Y) takes |

    Raises:
        BadInput: a parameter is unknown, missing, ill-typed, or refused by `cls` itself.
        TypeError: `cls` is not a dataclass, or has a field of a type that is not in the table.
    """
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise TypeError(f"a program's config must be a dataclass, not {cls!r}")
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    _refuse_unknown(cls.__name__, parameters, list(fields))
    for name, field in fields.items():
        if name not in parameters and _is_required(field):
            raise BadInput(f"parameter {name!r} is missing; {cls.__name__} has no default for it")
    hints = typing.get_type_hints(cls)
    values = {name: _field(name, hints[name], value) for name, value in parameters.items()}
    try:
        return cls(**values)
    except ValueError as error:
        raise BadInput(f"the parameters do not fit together: {error}") from error


def _refuse_unknown(owner: str, parameters: Mapping[str, object], valid: list[str]) -> None:
    unknown = [name for name in parameters if name not in valid]
    if not unknown:
        return
    near = difflib.get_close_matches(unknown[0], valid, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    what = "parameter" if len(unknown) == 1 else "parameters"
    raise BadInput(
        f"unknown {what} {', '.join(map(repr, unknown))}{hint}; {owner} takes "
        + (", ".join(sorted(valid)) or "none")
    )


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _field(name: str, hint: Any, value: object) -> object:
    try:
        return _convert(hint, value)
    except _Refused as refused:
        raise BadInput(f"parameter {name!r} must be {refused}, not {_shown(value)}") from None
    except NotImplementedError:
        raise TypeError(
            f"field {name!r} has the type {hint!r}, which no parameter can fill; use int, float, "
            "bool, str, Literal, an Enum, a tuple of these, or one of them or None"
        ) from None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _convert(hint: Any, value: object) -> object:
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _convert(typing.get_args(hint)[0], value)
    if origin is typing.Union or origin is types.UnionType:
        return _union(typing.get_args(hint), value)
    if origin is typing.Literal:
        return _choice({str(choice): choice for choice in typing.get_args(hint)}, value)
    if origin is tuple:
        return _tuple(typing.get_args(hint), value)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _enum(hint, value)
    if hint in _SCALARS:
        return _SCALARS[hint](value)
    raise NotImplementedError(hint)


def _bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise _Refused("true or false")


def _int(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    # int() refuses digits by the thousand, as a defence of its own.
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()) and len(value) < 1000:
        return int(value)
    raise _Refused("a whole number")


def _float(value: object) -> float:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number):
            return number
    raise _Refused("a finite number")


def _str(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):  # a folder named 2024
        return str(value)
    raise _Refused("text")


def _none(value: object) -> None:
    if value is not None:
        raise _Refused("null")


_SCALARS: dict[Any, Any] = {
    bool: _bool,
    int: _int,
    float: _float,
    str: _str,
    type(None): _none,
}


def _union(members: tuple[Any, ...], value: object) -> object:
    # A value that is of a member's type already is not turned into another's: "3" for int | str.
    for member in members:
        if type(value) is member:
            return _convert(member, value)
    wanted = []
    for member in members:
        try:
            return _convert(member, value)
        except _Refused as refused:
            wanted.append(str(refused))
    raise _Refused(" or ".join(wanted))


def _choice(choices: Mapping[str, object], value: object) -> object:
    for text, choice in choices.items():
        # True == 1 and 1.0 == 1: only the last is the same choice.
        same = value == choice and isinstance(value, bool) == isinstance(choice, bool)
        if same or value == text:
            return choice
    raise _Refused(f"one of {', '.join(map(repr, choices.values()))}")


def _enum(cls: type[enum.Enum], value: object) -> enum.Enum:
    for member in cls:
        if value is member or value == member.name:
            return member
    wanted = _choice({str(member.value): member.value for member in cls}, value)
    return cls(wanted)


def _tuple(members: tuple[Any, ...], value: object) -> tuple[object, ...]:
    if not isinstance(value, list | tuple):
        raise _Refused("a list")
    if len(members) == 2 and members[1] is ...:
        members = (members[0],) * len(value)
    if len(value) != len(members):
        raise _Refused(f"a list of {len(members)} values")
    try:
        return tuple(_convert(hint, item) for hint, item in zip(members, value, strict=True))
    except _Refused as refused:
        raise _Refused(f"a list whose every item is {refused}") from None
