"""CMA-ES: a normal distribution that moves to where trials score well (Hansen, 2016)."""

from collections.abc import Sequence

import numpy as np
from cmaes import CMA, get_warm_start_mgd

from kfp_jax.sweep.space import Space
from kfp_jax.sweep.trial import Direction, Trial, TrialState

_FIRST_SIGMA = 1 / 6  # as Optuna's, of a range as wide as 1
_TOP = 0.1  # of an earlier sweep, the part to begin with
_Solution = tuple["np.ndarray[tuple[int], np.dtype[np.float64]]", float]


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
    optimizer = _begin(_solutions(space, names, direction, earlier), len(names), seed)
    solutions = _solutions(space, names, direction, history)
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
    space: Space, names: Sequence[str], direction: Direction, trials: Sequence[Trial]
) -> list[_Solution]:
    """Returns the scored trials as places, each with its rank, which is all that counts here."""
    scored = [
        trial
        for trial in trials
        if trial.score is not None and trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
    ]
    keys = [_key(trial, direction) for trial in scored]
    ranks = {key: float(rank) for rank, key in enumerate(sorted(set(keys)))}
    return [
        (
            np.array([space.entries[name].place(trial.parameters[name]) for name in names]),
            ranks[key],
        )
        for trial, key in zip(scored, keys, strict=True)
    ]


def _key(trial: Trial, direction: Direction) -> tuple[int, float]:
    """Returns what is less for a better trial: complete ones first, then those that came far."""
    score = trial.score or 0.0
    signed = -score if direction is Direction.MAXIMIZE else score
    if trial.state is TrialState.COMPLETE or not trial.curve:
        return (-(2**63), signed)
    return (-trial.curve[-1][0], signed)
