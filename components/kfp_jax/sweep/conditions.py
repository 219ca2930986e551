"""Conditions: entries of a search space that are in use only beside one value of another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kfp_jax.errors import SpecError
from kfp_jax.sweep.entries import Entry, json_key


@dataclass(frozen=True)
class Condition:
    """When an entry is in use: entry `name` has one of `values`."""

    name: str
    values: tuple[Any, ...]

    def holds(self, parameters: Mapping[str, Any]) -> bool:
        """Whether it is so in these parameters."""
        if self.name not in parameters:
            return False
        value = parameters[self.name]
        # Equality alone would take 1 for true.
        return any(value == item and json_key(value) == json_key(item) for item in self.values)


def chain_of(name: str, conditions: Mapping[str, Condition]) -> Sequence[str]:
    """Returns an entry, the one that it depends on, the one on which that depends, and so on.

    Raises:
        SpecError: It depends on itself.
    """
    chain = [name]
    while chain[-1] in conditions:
        chain.append(conditions[chain[-1]].name)
        if chain[-1] in chain[:-1]:
            raise SpecError(
                f"Entry {name!r:.60} of the search space depends on itself: when leads from "
                f"{' to '.join(chain)}; remove one of them."
            )
    return chain


def read_condition(name: str, when: Any, entries: Mapping[str, Entry]) -> Condition:
    """Returns the condition that `when` of an entry describes.

    Raises:
        SpecError: It is none, or can never hold.
    """
    where = f"Entry {name!r:.60} of the search space"
    if not isinstance(when, Mapping) or len(when) != 1:
        raise SpecError(
            f"{where}: when is {when!r:.80}; give one entry and its value, for example "
            '{"optimizer": "sgd"} (what that entry depends on holds with it).'
        )
    ((other, wanted),) = when.items()
    if other not in entries:
        known = ", ".join(entry for entry in entries if entry != name) or "none"
        raise SpecError(
            f"{where}: when names {other!r:.60}, which is no entry; there are {known:.200}."
        )
    if entries[other].count is None:
        raise SpecError(
            f"{where}: when names {other!r:.60}, which is continuous; "
            "name a choice, whole numbers or a range with a step."
        )
    try:
        return Condition(other, _wanted(entries[other], wanted))
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"{where}: when asks that {other!r:.60} be {wanted!r:.80}; give {error}."
        ) from error


def _wanted(entry: Entry, wanted: Any) -> tuple[Any, ...]:
    """Returns the values of a condition; a list is several, unless it is a value of the entry."""
    if not isinstance(wanted, list | tuple):
        return (entry.read(wanted),)
    try:
        return (entry.read(wanted),)
    except (TypeError, ValueError):
        if not wanted:
            raise
        return tuple(entry.read(value) for value in wanted)
