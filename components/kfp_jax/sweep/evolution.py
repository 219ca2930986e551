"""CMA-ES: a normal distribution that moves to where trials score well (Hansen, 2016)."""

import copy
import json
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from cmaes import CMA, get_warm_start_mgd

from kfp_jax.sweep.remembered import Remembered
from kfp_jax.sweep.space import Space
from kfp_jax.sweep.trial import Direction, Trial, TrialState

_FIRST_SIGMA = 1 / 6  # as Optuna's, of a range as wide as 1
_TOP = 0.1  # of an earlier sweep, the part to begin with
_Places = np.ndarray[tuple[int], np.dtype[np.float64]]
# Where a trial lies, and what is less for a better one.
_Scored = tuple[tuple[float, ...], tuple[int, float]]


def by_cmaes(
    space: Space,
    names: Sequence[str],
    direction: Direction,
    history: Sequence[Trial],
    earlier: Sequence[Trial],
    seed: int,
) -> dict[str, float]:
    """Returns a place from 0 to 1 for each of `names`, entries that are ranges always in use.

    The distribution is made again from all scored trials in the order of their numbers, so that it
    does not matter when they ended. It begins at the best of `earlier` trials, if there are any
    (Nomura et al., AAAI 2021).
    """
    places = _places(space.text, tuple(names))([*earlier, *history])
    first = _scored(earlier, places[: len(earlier)], direction)
    told = _scored(history, places[len(earlier) :], direction)
    begin = _begin(_ranked(first), len(names))
    optimizer = copy.deepcopy(_chain(space.text, tuple(names), direction).after(begin, first, told))
    optimizer.reseed_rng(seed)
    return dict(zip(names, optimizer.ask().tolist(), strict=True))


def _begin(earlier: list[tuple[_Places, float]], dimensions: int) -> CMA:
    bounds = np.array([[0.0, 1.0]] * dimensions)
    if not earlier:
        return CMA(np.full(dimensions, 0.5), _FIRST_SIGMA, bounds=bounds)
    mean, sigma, cov = get_warm_start_mgd(earlier, gamma=max(_TOP, 1 / len(earlier)))
    return CMA(np.clip(mean, 0.0, 1.0), sigma, bounds=bounds, cov=cov)


class _Chain:
    """The optimizers after each generation, so that the next suggestion goes on from there."""

    def __init__(self) -> None:
        self._links: Sequence[tuple[Sequence[_Scored], CMA]] = ()

    def after(self, begin: CMA, earlier: Sequence[_Scored], told: Sequence[_Scored]) -> CMA:
        """Returns the optimizer that began so after all full generations; not to be changed."""
        known = self._links
        links = [(earlier, begin)]
        if known and known[0][0] != earlier:
            known = ()
        size = begin.population_size
        for first in range(0, len(told) - size + 1, size):
            generation = told[first : first + size]
            if len(links) < len(known) and known[len(links)][0] == generation:
                links.append(known[len(links)])
                continue
            known = ()
            optimizer = copy.deepcopy(links[-1][1])
            optimizer.tell(_ranked(generation))
            links.append((generation, optimizer))
        self._links = links
        return links[-1][1]


@lru_cache(maxsize=8)
def _chain(text: str, names: tuple[str, ...], direction: Direction) -> _Chain:
    del text, names, direction  # they tell chains apart
    return _Chain()


def _scored(
    trials: Sequence[Trial], places: Sequence[tuple[float, ...] | None], direction: Direction
) -> list[_Scored]:
    pairs = zip(trials, places, strict=True)
    return [(place, _key(trial, direction)) for trial, place in pairs if place is not None]


def _ranked(scored: Sequence[_Scored]) -> list[tuple[_Places, float]]:
    """Returns places with their ranks, which is all that CMA-ES looks at; equal ones share one."""
    ranks = {key: rank for rank, key in enumerate(sorted({key for _, key in scored}))}
    return [(np.array(place), float(ranks[key])) for place, key in scored]


@lru_cache(maxsize=8)
def _places(text: str, names: tuple[str, ...]) -> Remembered[tuple[float, ...] | None]:
    space = Space.from_json(json.loads(text))

    def places_of(trial: Trial) -> tuple[float, ...] | None:
        done = trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
        if not done or trial.score is None or not space.contains(trial.parameters):
            return None
        return tuple(space.entries[name].place(trial.parameters[name]) for name in names)

    return Remembered(places_of)


def _key(trial: Trial, direction: Direction) -> tuple[int, float]:
    """Returns what is less for a better trial: complete ones first, then those that came far."""
    score = trial.score or 0.0
    signed = -score if direction is Direction.MAXIMIZE else score
    if trial.state is TrialState.COMPLETE or not trial.curve:
        return (-(2**63), signed)
    return (-trial.curve[-1][0], signed)
