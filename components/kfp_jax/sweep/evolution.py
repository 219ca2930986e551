"""CMA-ES: a normal distribution that moves to where trials score well (Hansen, 2016)."""

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
_Solution = tuple[_Places, float]


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
    first = _solutions(earlier, places[: len(earlier)], direction)
    solutions = _solutions(history, places[len(earlier) :], direction)
    optimizer = _begin(first, len(names), seed)
    size = optimizer.population_size
    for begin in range(0, len(solutions) - size + 1, size):
        optimizer.tell(solutions[begin : begin + size])
    return dict(zip(names, optimizer.ask().tolist(), strict=True))


def _begin(earlier: list[_Solution], dimensions: int, seed: int) -> CMA:
    bounds = np.array([[0.0, 1.0]] * dimensions)
    if not earlier:
        return CMA(np.full(dimensions, 0.5), _FIRST_SIGMA, bounds=bounds, seed=seed)
    mean, sigma, cov = get_warm_start_mgd(earlier, gamma=max(_TOP, 1 / len(earlier)))
    return CMA(np.clip(mean, 0.0, 1.0), sigma, bounds=bounds, seed=seed, cov=cov)


def _solutions(
    trials: Sequence[Trial], places: Sequence[_Places | None], direction: Direction
) -> list[_Solution]:
    """Returns the scored trials as places, each with its rank, which is all that counts here."""
    pairs = zip(trials, places, strict=True)
    scored = [(place, _key(trial, direction)) for trial, place in pairs if place is not None]
    ranks = {key: rank for rank, key in enumerate(sorted({key for _, key in scored}))}
    return [(place, float(ranks[key])) for place, key in scored]


@lru_cache(maxsize=8)
def _places(text: str, names: tuple[str, ...]) -> Remembered[_Places | None]:
    space = Space.from_json(json.loads(text))

    def places_of(trial: Trial) -> _Places | None:
        done = trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
        if not done or trial.score is None or not space.contains(trial.parameters):
            return None
        return np.array([space.entries[name].place(trial.parameters[name]) for name in names])

    return Remembered(places_of)


def _key(trial: Trial, direction: Direction) -> tuple[int, float]:
    """Returns what is less for a better trial: complete ones first, then those that came far."""
    score = trial.score or 0.0
    signed = -score if direction is Direction.MAXIMIZE else score
    if trial.state is TrialState.COMPLETE or not trial.curve:
        return (-(2**63), signed)
    return (-trial.curve[-1][0], signed)
