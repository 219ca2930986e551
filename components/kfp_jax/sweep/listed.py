"""Parameter sets that a person listed, for a loop over them."""

from collections.abc import Mapping, Sequence
from typing import Any

from kfp_jax.checks import json_object
from kfp_jax.errors import SpecError


def listed(items: Any) -> list[dict[str, Any]]:
    """Returns the parameter sets, each with the same keys, as a loop needs them.

    Raises:
        SpecError: There are none, or one has other keys; the message says which.
    """
    if not isinstance(items, Sequence) or isinstance(items, str) or not items:
        raise SpecError(
            f"The list of trials is {items!r:.80}; give a list with at least one set of parameters."
        )
    sets = []
    for position, item in enumerate(items):
        if not isinstance(item, Mapping):
            raise SpecError(f"Trial {position} is {item!r:.80}; give a mapping of names to values.")
        sets.append(json_object(f"Trial {position}", item))
        missing = sorted(sets[0].keys() - item.keys())
        extra = sorted(item.keys() - sets[0].keys())
        if missing or extra:
            seen = f"has no {missing[0]!r:.60}" if missing else f"has {extra[0]!r:.60} besides"
            raise SpecError(
                f"Trial {position} {seen}; give all trials the same keys, those of trial 0: "
                f"{', '.join(sets[0])}."
            )
    return sets
