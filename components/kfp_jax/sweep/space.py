"""The search space: JSON that a person can type, read into entries and points.

    {
      "learning_rate": {"type": "loguniform", "low": 1e-4, "high": 0.1},
      "batch": {"type": "int", "low": 32, "high": 128, "step": 32},
      "dropout": {"type": "uniform", "low": 0, "high": 0.5, "step": 0.1},
      "optimizer": {"type": "choice", "values": ["adam", "sgd"]},
      "momentum": {"type": "uniform", "low": 0, "high": 0.99, "when": {"optimizer": "sgd"}}
    }

An entry with `when` is in a trial's parameters only if the named entry has the given value, or one
of a list of values. The order of the entries means nothing, as KFP sorts them on the way. Both
bounds of a range are included; a step that does not divide the range keeps `high` out: 1 to 50 in
steps of 10 are 1, 11, 21, 31 and 41.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from kfp_jax.checks import mapping
from kfp_jax.errors import SpecError
from kfp_jax.spec import MAX_PARAMETERS_BYTES
from kfp_jax.sweep.conditions import Condition, chain_of, read_condition
from kfp_jax.sweep.entries import Entry, read_entry

# More than a person tunes, and few enough that conditions nest without harm.
MAX_ENTRIES = 200


@dataclass(frozen=True)
class Space:
    """What may be suggested; made by `from_json`.

    Attributes:
        entries: By name, in the order of their names, but none before one that it depends on.
        conditions: Of the entries that are not always in use.
    """

    entries: Mapping[str, Entry]
    conditions: Mapping[str, Condition] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Returns the space that a person typed, or that `to_json` gave.

        Numbers may come as text or as floats: they are read as the entry's type says.

        Raises:
            SpecError: An entry is none of the forms; the message names it, and what was seen.
        """
        if not mapping("The search space", data):
            raise SpecError(
                "The search space is empty; give at least one entry, for example "
                '{"learning_rate": {"type": "loguniform", "low": 1e-4, "high": 0.1}}.'
            )
        if len(data) > MAX_ENTRIES:
            raise SpecError(
                f"The search space has {len(data):,} entries; give at most {MAX_ENTRIES}."
            )
        for name in data:
            if not name.strip():
                raise SpecError(f"Entry {name!r} of the search space has no name; give it one.")
        entries = {name: read_entry(name, data[name]) for name in sorted(data)}
        conditions = {
            name: read_condition(name, data[name]["when"], entries)
            for name in entries
            if data[name].get("when") is not None
        }
        ordered: dict[str, Entry] = {}
        for name in entries:
            for link in reversed(chain_of(name, conditions)):
                ordered[link] = entries[link]
        space = cls(ordered, conditions)
        size = len(space.text)
        if size > MAX_PARAMETERS_BYTES:
            raise SpecError(
                f"The search space is {size:,} bytes of JSON; give at most "
                f"{MAX_PARAMETERS_BYTES:,}, which is what an argument may hold."
            )
        return space

    def to_json(self) -> dict[str, Any]:
        """Returns the space as a JSON object."""
        return {
            name: entry.to_json() | self._when_json(name) for name, entry in self.entries.items()
        }

    @cached_property
    def text(self) -> str:
        """The space as JSON text: equal for equal spaces."""
        return json.dumps(self.to_json())

    def _when_json(self, name: str) -> dict[str, Any]:
        if name not in self.conditions:
            return {}
        condition = self.conditions[name]
        # One value stands alone: in a list it might be taken for a value that is that list.
        single = len(condition.values) == 1
        return {"when": {condition.name: condition.values[0] if single else [*condition.values]}}

    def points(self) -> int | None:
        """Returns how many points the space has; None if it is continuous."""
        return self._points

    @cached_property
    def _points(self) -> int | None:
        if any(entry.count is None for entry in self.entries.values()):
            return None
        return math.prod(self._size(name) for name in self.roots)

    def grid(self) -> Iterator[dict[str, Any]]:
        """Yields every point, the last entry changing fastest; costs nothing before it is asked.

        Raises:
            SpecError: The space is continuous.
        """
        return (self.point(index) for index in range(self.check_finite()))

    def point(self, index: int) -> dict[str, Any]:
        """Returns one point of the grid, without the ones before it.

        Raises:
            SpecError: The space is continuous.
        """
        self.check_finite()
        found: dict[str, Any] = {}
        self._unrank(self.roots, index, found)
        return self._in_order(found)

    def index(self, parameters: Mapping[str, Any]) -> int:
        """Returns which point of the grid these parameters are.

        Raises:
            SpecError: They are none, or the space is continuous.
        """
        self.check_finite()
        return self._rank(self.roots, self.read(parameters))

    def check_finite(self) -> int:
        """Returns how many points the space has.

        Raises:
            SpecError: It is continuous.
        """
        if self._points is None:
            name = next(name for name, entry in self.entries.items() if entry.count is None)
            raise SpecError(
                f"Entry {name!r:.60} of the search space is continuous, so there is no grid of its "
                'points; give it a "step", make it a "choice", or use another sampler than grid.'
            )
        return self._points

    def _unrank(self, names: Sequence[str], index: int, found: dict[str, Any]) -> None:
        for name in reversed(names):
            index, rest = divmod(index, self._size(name))
            slot, rest = self._split(name, rest)
            found[name] = self.entries[name].value(slot)
            self._unrank(self._children_at(name, slot), rest, found)

    def _split(self, name: str, index: int) -> tuple[int, int]:
        """Returns which value of an entry the index falls on, and the index below that value."""
        shift = 0
        for slot, size in self._branches[name]:
            if index < slot + shift:
                break
            if index < slot + shift + size:
                return slot, index - slot - shift
            shift += size - 1
        return index - shift, 0

    def _rank(self, names: Sequence[str], parameters: Mapping[str, Any]) -> int:
        index = 0
        for name in names:
            slot = self.entries[name].index(parameters[name])
            before = sum(size - 1 for other, size in self._branches[name] if other < slot)
            below = self._rank(self._children_at(name, slot), parameters)
            index = index * self._size(name) + slot + before + below
        return index

    def _size(self, name: str) -> int:
        """Returns how many points an entry and what depends on it have, where it is in use."""
        return _with_branches(self.entries[name], self._branches[name])

    @cached_property
    def _branches(self) -> Mapping[str, Sequence[tuple[int, int]]]:
        """Of each entry, the indices of the values on which others depend, with their sizes."""
        branches: dict[str, Sequence[tuple[int, int]]] = {}
        for name in reversed(list(self.entries)):  # those that depend on it stand behind it
            sizes: dict[int, int] = {}
            for child, condition in self._children.get(name, ()):
                below = _with_branches(self.entries[child], branches[child])
                for slot in {self.entries[name].index(value) for value in condition.values}:
                    sizes[slot] = sizes.get(slot, 1) * below
            branches[name] = sorted(sizes.items())
        return branches

    def _children_at(self, name: str, slot: int) -> Sequence[str]:
        if name not in self._children:
            return ()
        value = {name: self.entries[name].value(slot)}
        return [child for child, condition in self._children[name] if condition.holds(value)]

    @cached_property
    def _children(self) -> Mapping[str, Sequence[tuple[str, Condition]]]:
        children: dict[str, list[tuple[str, Condition]]] = {}
        for name, condition in self.conditions.items():
            children.setdefault(condition.name, []).append((name, condition))
        return children

    @cached_property
    def roots(self) -> Sequence[str]:
        """The entries that are always in use."""
        return [name for name in self.entries if name not in self.conditions]

    def at(self, places: Mapping[str, float]) -> dict[str, Any]:
        """Returns the parameters at a place from 0 to 1 for each entry, used or not."""
        found: dict[str, Any] = {}
        for name, entry in self.entries.items():
            if self.in_use(name, found):
                found[name] = entry.at(places[name])
        return found

    def in_use(self, name: str, parameters: Mapping[str, Any]) -> bool:
        """Whether an entry belongs to these parameters."""
        return name not in self.conditions or self.conditions[name].holds(parameters)

    def read(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Returns parameters with every value as declared, after KFP or JSON changed its type.

        Raises:
            SpecError: They are no point of the space; the message names the entry.
        """
        found: dict[str, Any] = {}
        for name, entry in self.entries.items():
            if not self.in_use(name, found):
                continue
            if name not in parameters:
                raise SpecError(f"Parameter {name!r:.60} is missing; the search space has it.")
            try:
                found[name] = entry.read(parameters[name])
            except (TypeError, ValueError) as error:
                seen = f"{parameters[name]!r:.80}"
                raise SpecError(f"Parameter {name!r:.60} is {seen}; give {error}.") from error
        extra = sorted(map(str, parameters.keys() - found.keys()))
        if extra:
            raise SpecError(
                f"Parameter {extra[0]!r:.60} is not of the search space with these values; "
                f"there are {', '.join(found)}."
            )
        return found

    def contains(self, parameters: Mapping[str, Any]) -> bool:
        """Whether these are a point of the space."""
        try:
            self.read(parameters)
        except SpecError:
            return False
        return True

    def _in_order(self, found: Mapping[str, Any]) -> dict[str, Any]:
        return {name: found[name] for name in self.entries if name in found}


def _with_branches(entry: Entry, branches: Sequence[tuple[int, int]]) -> int:
    return (entry.count or 0) + sum(size - 1 for _, size in branches)


def uniform(
    low: float, high: float, step: float | None = None, *, when: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns the entry of a number from `low` to `high`, in steps if given."""
    return _described("uniform", when, low=low, high=high, step=step)


def loguniform(low: float, high: float, *, when: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns the entry of a number from `low` to `high` whose logarithm is evenly spread."""
    return _described("loguniform", when, low=low, high=high)


def integer(
    low: int, high: int, step: int | None = None, *, when: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns the entry of a whole number from `low` to `high`, in steps if given."""
    return _described("int", when, low=low, high=high, step=step)


def loginteger(low: int, high: int, *, when: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns the entry of a whole number from `low` to `high`, evenly by its logarithm."""
    return _described("logint", when, low=low, high=high)


def choice(*values: Any, when: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns the entry of one of some JSON values."""
    return _described("choice", when, values=list(values))


def _described(kind: str, when: Mapping[str, Any] | None, **fields: Any) -> dict[str, Any]:
    given = {key: value for key, value in fields.items() if value is not None}
    return {"type": kind} | given | ({"when": dict(when)} if when else {})
