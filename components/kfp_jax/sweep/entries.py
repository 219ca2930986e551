"""The entries of a search space: a range of numbers or a choice, as values."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from kfp_jax.checks import known_keys
from kfp_jax.errors import SpecError

# Beyond it not every whole number is a float, and JSON's numbers are floats to many readers.
MOST = 2**53

FORMS = (
    '{"type": "uniform", "low": 0, "high": 0.5} with "step" if wanted; '
    '{"type": "loguniform", "low": 1e-4, "high": 0.1}; '
    '{"type": "int", "low": 1, "high": 8} with "step" if wanted; '
    '{"type": "logint", "low": 1, "high": 1024}; '
    '{"type": "choice", "values": ["adam", "sgd"]}; '
    'each with "when": {"NAME": VALUE} if wanted'
)
_KEYS = {
    "uniform": {"low", "high", "step"},
    "loguniform": {"low", "high"},
    "int": {"low", "high", "step"},
    "logint": {"low", "high"},
    "choice": {"values"},
}


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included.

    Attributes:
        low: The least.
        high: The bound above. A step that does not divide the range keeps it out.
        step: The distance between two values; None for every number.
        log: Whether each order of magnitude is as likely as the others.
        whole: Whether the values are whole numbers.
    """

    low: float
    high: float
    step: float | None = None
    log: bool = False
    whole: bool = False

    @cached_property
    def count(self) -> int | None:
        """How many values it has; None for a continuous one."""
        if self.low == self.high:
            return 1
        if self.step is None:
            return None
        return math.floor((_exact(self.high) - self._low) / self._step) + 1

    @cached_property
    def _low(self) -> Fraction:
        return _exact(self.low)

    @cached_property
    def _step(self) -> Fraction:
        return _exact(self.step or 0)

    def value(self, index: int) -> int | float:
        """Returns the value with that index: exact decimals, so that 3 steps of 0.1 are 0.3."""
        exact = self._low + index * self._step
        return int(exact) if self.whole else float(exact)

    def at(self, place: float) -> int | float:
        """Returns the value at a place from 0 to 1, evenly or by the logarithm."""
        if self.log and self.whole:
            # Half a unit more on both sides gives the outermost numbers their share.
            number = round(_between_logs(self.low - 0.5, self.high + 0.5, place))
            return min(max(number, int(self.low)), int(self.high))
        if self.count is not None:
            return self.value(_slot(place, self.count))
        if self.log:
            between = _between_logs(self.low, self.high, place)
        else:
            between = self.low * (1 - place) + self.high * place
        return min(max(between, self.low), self.high)

    def place(self, value: Any) -> float:
        """Returns a place from 0 to 1 where `at` gives `value`, one of the entry's."""
        if self.log and self.whole:
            return _place_of_log(self.low - 0.5, self.high + 0.5, value)
        if self.count is not None:
            return (self.index(value) + 0.5) / self.count
        if self.log:
            return _place_of_log(self.low, self.high, value)
        # Exactly, as the range may be wider than the widest float, or narrower than the least.
        return float((_exact(value) - self._low) / (_exact(self.high) - self._low))

    def index(self, value: Any) -> int:
        """Returns the index of `value`, one of the entry's, which has a `count`."""
        if self.count == 1:
            return 0
        if self.whole:
            return int(value - self.low) // int(self.step or 1)
        return round((_exact(value) - self._low) / self._step)

    def read(self, value: Any) -> int | float:
        """Returns `value` as the entry's own: 2.0 as 2 for whole numbers, "1e-3" as 0.001.

        Raises:
            ValueError: It is none of the entry's values; the message says what they are.
        """
        number = number_of(value)
        if number is None or not self.low <= number <= self.high:
            raise ValueError(self._says())
        if self.count is None:
            return float(number)
        if self.whole and not float(number).is_integer():
            raise ValueError(self._says())
        nearest = self.value(self.index(number))
        # What went through another program's floats may have lost its last digit.
        if not math.isclose(nearest, number, rel_tol=1e-9, abs_tol=1e-9 * float(self._step)):
            raise ValueError(self._says())
        return nearest

    def _says(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        steps = (
            f" in steps of {self.step:.12g}"
            if self.step and (self.step, self.whole) != (1, 1)
            else ""
        )
        return f"{kind} from {self.low:.12g} to {self.high:.12g}{steps}"

    def to_json(self) -> dict[str, Any]:
        """Returns the entry as a person would type it, without its condition."""
        kind = {
            (False, False): "uniform",
            (True, False): "loguniform",
            (False, True): "int",
            (True, True): "logint",
        }[self.log, self.whole]
        implied = self.step is None or (self.whole and (self.log or self.step == 1))
        step = {} if implied else {"step": self.step}
        return {"type": kind, "low": self.low, "high": self.high} | step


@dataclass(frozen=True)
class Choice:
    """One of some JSON values, each as likely as the others.

    Attributes:
        values: The values; no two are equal to a program that takes 1 and 1.0 for the same.
    """

    values: tuple[Any, ...]

    @property
    def count(self) -> int:
        """How many values it has."""
        return len(self.values)

    def value(self, index: int) -> Any:
        """Returns the value with that index."""
        return self.values[index]

    def at(self, place: float) -> Any:
        """Returns the value at a place from 0 to 1."""
        return self.values[_slot(place, len(self.values))]

    def place(self, value: Any) -> float:
        """Returns a place from 0 to 1 where `at` gives `value`."""
        return (self.index(value) + 0.5) / len(self.values)

    def index(self, value: Any) -> int:
        """Returns the index of `value`, one of the entry's."""
        return self._indices[json_key(value)]

    @cached_property
    def _indices(self) -> Mapping[str, int]:
        return {json_key(value): index for index, value in enumerate(self.values)}

    def read(self, value: Any) -> Any:
        """Returns `value` as the entry's own: KFP may have made 1.0 of 1, or the reverse.

        Raises:
            ValueError: It is none of the entry's values; the message says what they are.
            TypeError: It is no JSON.
        """
        index = self._indices.get(json_key(value))
        if index is None:
            raise ValueError(f"one of {json.dumps(self.values):.200}")
        return self.values[index]

    def to_json(self) -> dict[str, Any]:
        """Returns the entry as a person would type it, without its condition."""
        return {"type": "choice", "values": list(self.values)}


Entry = Range | Choice


def read_entry(name: str, data: Any) -> Entry:
    """Returns the entry that `data` describes; its condition, if any, is not looked at.

    Raises:
        SpecError: It is none of `FORMS`.
    """
    where = f"Entry {name!r:.60} of the search space"
    if not isinstance(data, Mapping) or data.get("type") not in list(_KEYS):
        raise SpecError(f"{where} is {data!r:.120}; give one of: {FORMS}.")
    kind = data["type"]
    known_keys(f"entry {name!r:.60} of the search space", data, _KEYS[kind] | {"type", "when"})
    missing = sorted(_KEYS[kind] - {"step"} - data.keys())
    if missing:
        raise SpecError(f"{where} has no {missing[0]!r}; give one of: {FORMS}.")
    if kind == "choice":
        return _read_choice(where, data["values"])
    return _read_range(where, data, log=kind.startswith("log"), whole=kind.endswith("int"))


def _read_choice(where: str, values: Any) -> Choice:
    if not isinstance(values, list | tuple) or not values:
        raise SpecError(f"{where}: values is {values!r:.80}; give a list with at least one value.")
    seen: dict[str, int] = {}
    for position, value in enumerate(values):
        try:
            key = json_key(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise SpecError(
                f"{where}: value {position} is {value!r:.80}; give JSON: {error}."
            ) from error
        if key in seen:
            raise SpecError(
                f"{where}: values {seen[key]} and {position} are both {value!r:.80}; "
                "give each once."
            )
        seen[key] = position
    # A copy that nobody else can change.
    return Choice(tuple(json.loads(json.dumps(list(values)))))


def _read_range(where: str, data: Mapping[str, Any], *, log: bool, whole: bool) -> Range:
    low, high = (_bound(where, key, data[key], whole) for key in ("low", "high"))
    step = _bound(where, "step", data["step"], whole) if data.get("step") is not None else None
    if low > high:
        raise SpecError(f"{where}: low is {low:g} and high is {high:g}; give low <= high.")
    if log and low <= 0:
        raise SpecError(
            f"{where}: low is {low:g}; a log scale begins above 0, for example at 1e-6."
        )
    if step is not None and step <= 0:
        raise SpecError(f"{where}: step is {step:g}; give a step above 0, or none.")
    entry = Range(low, high, 1 if whole and step is None else step, log, whole)
    if (entry.count or 0) > MOST:
        raise SpecError(f"{where} has more than 2**53 values; give a larger step, or none.")
    return entry


def _bound(where: str, key: str, value: Any, whole: bool) -> int | float:
    number = number_of(value)
    if number is None:
        raise SpecError(f"{where}: {key} is {value!r:.80}; give a finite number.")
    if not whole:
        return float(number)
    if not float(number).is_integer() or abs(number) > MOST:
        raise SpecError(f"{where}: {key} is {value!r:.80}; give a whole number up to 2**53.")
    return int(number)


def number_of(value: Any) -> int | float | None:
    """Returns a finite number, also one written as text (YAML reads 1e-3 so); None for the rest."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:
        return None


def json_key(value: Any) -> str:
    """Returns the same text for JSON values that are equal; 1 and 1.0 are, 1 and true are not.

    Raises:
        TypeError: It is no JSON.
        ValueError: It holds NaN or an infinity.
    """
    return json.dumps(_plain_numbers(value), sort_keys=True, allow_nan=False)


def _plain_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _plain_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_numbers(item) for item in value]
    return value


def _exact(number: float) -> Fraction:
    """Returns the decimal number that was typed: 0.1 is a tenth, not the float next to it."""
    return Fraction(repr(number))


def _slot(place: float, count: int) -> int:
    return min(max(int(place * count), 0), count - 1)


def _between_logs(low: float, high: float, place: float) -> float:
    return math.exp(math.log(low) * (1 - place) + math.log(high) * place)


def _place_of_log(low: float, high: float, value: float) -> float:
    span = math.log(high) - math.log(low)  # none between neighbours among the floats
    return (math.log(value) - math.log(low)) / span if span else 0.5
