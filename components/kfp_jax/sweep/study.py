"""A study: which space is searched, how, and towards what; one value, checked when it is made."""

from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from typing import Any, TypeVar

from kfp_jax.checks import whole
from kfp_jax.errors import SpecError
from kfp_jax.sweep.entries import Range
from kfp_jax.sweep.space import Space
from kfp_jax.sweep.trial import Direction

MAX_TRIALS = 100_000

_Member = TypeVar("_Member", bound=StrEnum)


class Sampler(StrEnum):
    """How parameters are suggested."""

    RANDOM = "random"
    GRID = "grid"  # every point once, in the order of the entries' names
    QUASIRANDOM = "quasirandom"  # spread more evenly than random ones (Halton)
    TPE = "tpe"  # towards what scored well (tree-structured Parzen estimator)
    CMAES = "cmaes"  # the same, for numbers that depend on each other


class Pruner(StrEnum):
    """How trials are ended early."""

    NONE = "none"
    MEDIAN = "median"
    ASHA = "asha"
    HYPERBAND = "hyperband"


@dataclass(frozen=True, kw_only=True)
class Study:
    """What decides about trials: which come next, and which are ended.

    Attributes:
        space: What may be suggested.
        direction: Which scores are better.
        sampler: How parameters are suggested.
        pruner: How trials are ended early.
        seed: The same seed, and the same results, give the same suggestions.
        max_trials: After so many nothing more is suggested; 0 is as many as the space has points.
        min_step: Step before which no trial is ended, as the program counts them: epochs, or steps
            of its optimiser. ASHA and Hyperband compare trials there, and at `eta` times it again
            and again. With 0 they derive it from the longest complete trial, so that three such
            steps lie below that length, and end none before a trial is complete.
        eta: One of so many trials passes a rung. 3, as in the Hyperband paper.

    Raises:
        SpecError: A value is wrong, or the sampler cannot search this space.
    """

    space: Space
    direction: Direction = Direction.MAXIMIZE
    sampler: Sampler = Sampler.TPE
    pruner: Pruner = Pruner.NONE
    seed: int = 0
    max_trials: int = 0
    min_step: int = 0
    eta: int = 3

    def __post_init__(self) -> None:
        _check_installed()
        self._set("direction", _member("direction", self.direction, Direction))
        self._set("sampler", _member("sampler", self.sampler, Sampler))
        self._set("pruner", _member("pruner", self.pruner, Pruner))
        self._set("seed", whole("seed", self.seed, 0, 2**32 - 1))
        self._set("max_trials", whole("max_trials", self.max_trials, 0, MAX_TRIALS))
        self._set("min_step", whole("min_step", self.min_step, 0, 10**12))
        self._set("eta", whole("eta", self.eta, 2, 1000))
        _check_sampler(self.sampler, self.space)
        if not self.max_trials and self.space.points() is None:
            raise SpecError(
                "max_trials is 0 and the search space is continuous, so the sweep would never end; "
                "give max_trials."
            )

    def to_json(self) -> dict[str, Any]:
        """Returns the study as a JSON object."""
        return {**vars(self), "space": self.space.to_json()}

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


def _check_installed() -> None:
    """Refuses to begin what would fail at a later suggestion, or at the end of it all."""
    missing = [name for name in ("cmaes", "optuna") if find_spec(name) is None]
    if missing:
        raise SpecError(
            f"Sweeps need {', '.join(missing)}; install it with: pip install 'kfp-jax[sweep]'."
        )


def _check_sampler(sampler: Sampler, space: Space) -> None:
    if sampler is Sampler.GRID:
        space.check_finite()
    if sampler is Sampler.CMAES and not numeric(space):
        raise SpecError(
            "Sampler cmaes needs at least one entry that is a range of several numbers and is "
            "always in use; give one, or use the sampler tpe or random."
        )
    choices = all(not isinstance(entry, Range) for entry in space.entries.values())
    if sampler is Sampler.QUASIRANDOM and choices:
        raise SpecError(
            "Sampler quasirandom spreads numbers, and the search space has only choices; "
            "use the sampler random, or grid for all of them."
        )


def numeric(space: Space) -> tuple[str, ...]:
    """Returns the entries that CMA-ES can search: ranges of numbers that are always in use."""
    ranges = ((name, space.entries[name]) for name in space.roots)
    return tuple(
        name for name, entry in ranges if isinstance(entry, Range) and entry.low < entry.high
    )


def _member(name: str, value: Any, kind: type[_Member]) -> _Member:
    try:
        return kind(value)
    except ValueError as error:
        raise SpecError(f"{name} is {value!r:.60}; give one of {', '.join(kind)}.") from error
