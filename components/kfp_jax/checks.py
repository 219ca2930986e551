"""Checks that several values share: each returns the value in its right form or refuses it."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from kfp_jax.errors import SpecError


def whole(name: str, value: Any, low: int, high: int) -> int:
    """Returns `value` as a whole number; KFP sends 2 as 2.0 and the UI as "2".

    Raises:
        SpecError: It is no whole number from `low` to `high`.
    """
    number = value
    if isinstance(number, str) and re.fullmatch(r"[+-]?\d{1,12}", number.strip()):
        number = int(number)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
        raise SpecError(f"{name} is {value!r:.80}; give a whole number from {low} to {high:,}.")
    return number


def as_text(value: Any) -> str:
    """Returns an argument or variable as text: 2592000 without exponent, true and false as in JSON.

    Raises:
        SpecError: It is no text, number or truth value.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise SpecError(f"{value!r:.80} is no argument or variable; give text or a number.")


def text(name: str, value: Any) -> str:
    """Returns `value` when it is text.

    Raises:
        SpecError: It is not.
    """
    if not isinstance(value, str):
        raise SpecError(f"{name} is {value!r:.80}; give text.")
    return value


def listed(name: str, value: Any, example: str) -> tuple[Any, ...]:
    """Returns the items of a list; text is none, though it can be gone through letter by letter.

    Raises:
        SpecError: It is no list.
    """
    if not isinstance(value, list | tuple):
        raise SpecError(f"{name} is {value!r:.80}; give a list, for example {example}.")
    return tuple(value)


def json_object(name: str, value: Any) -> dict[str, Any]:
    """Returns `value` as a JSON object of its own, which nobody else can change.

    Raises:
        SpecError: It is no JSON object.
    """
    try:
        copy = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise SpecError(f"{name} cannot be written as JSON: {error}.") from error
    if not isinstance(copy, dict):
        raise SpecError(f"{name} is {value!r:.80}; give a JSON object.")
    return copy


def known_keys(what: str, keys: Iterable[str], known: Iterable[str]) -> None:
    """Refuses keys that nobody would read.

    Raises:
        SpecError: A key is unknown; the valid ones are listed.
    """
    valid = set(known)
    unknown = sorted(set(keys) - valid)
    if unknown:
        raise SpecError(
            f"Unknown key {unknown[0]!r} in {what}; valid keys are {', '.join(sorted(valid))}."
        )


def needed_keys(what: str, keys: Iterable[str], needed: Iterable[str]) -> None:
    """Refuses what lacks keys that it cannot be without.

    Raises:
        SpecError: A key is missing; all that are are listed.
    """
    given = set(keys)
    missing = [key for key in needed if key not in given]
    if missing:
        raise SpecError(f"{what} lacks {', '.join(missing)}; give every key that it needs.")


def mapping(name: str, value: Any) -> Mapping[str, Any]:
    """Returns `value` when it is a mapping with text for keys.

    Raises:
        SpecError: It is not.
    """
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise SpecError(f"{name} is {value!r:.80}; give a mapping of names to values.")
    return value
