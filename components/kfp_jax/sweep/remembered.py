"""What is worked out once for each trial, as a sweep asks about the same trials again and again."""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from kfp_jax.sweep.trial import Trial

_Made = TypeVar("_Made")


class Remembered(Generic[_Made]):
    """A function of a trial that is called once for each.

    Trials are told apart by identity, which is quick: a finished one stays the same object. Those
    of the newest call are held, so that no other takes their identity; the rest are forgotten.
    """

    def __init__(self, make: Callable[[Trial], _Made]) -> None:
        self._make = make
        self._seen: dict[int, tuple[Trial, _Made]] = {}

    def __call__(self, trials: Iterable[Trial]) -> Sequence[_Made]:
        """Returns what the function makes of each trial."""
        before, seen, made = self._seen, {}, []
        for trial in trials:
            pair = before.get(id(trial)) or (trial, self._make(trial))
            seen[id(trial)] = pair
            made.append(pair[1])
        self._seen = seen
        return made
