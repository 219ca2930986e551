"""Which parameters the next trial gets: a pure function of the study and the set of its trials."""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from kfp_jax.sweep.study import Sampler, Study, numeric
from kfp_jax.sweep.trial import Trial, TrialState

_SOBOL_BLOCK = 256  # a power of two, as the sequence asks for
# How often a point that was tried already is drawn again before the untried ones are looked for.
_REDRAWS = 16
# As many scores TPE waits for, as Optuna's does.
_FIRST_AT_RANDOM = 10
_DONE = (TrialState.COMPLETE, TrialState.PRUNED)


def suggest(
    study: Study, trials: Sequence[Trial], number: int, warm: Sequence[Trial] = ()
) -> dict[str, Any] | None:
    """Returns the parameters of trial `number`, or None when there is nothing more to try.

    The order of `trials` does not matter. Running ones count as pending, failed ones as tried. Of a
    space with a finite number of points none is suggested twice.

    Args:
        study: What decides.
        trials: The trials so far, in any state; those with higher numbers are history as well.
        number: The trial's number, from 0.
        warm: Trials of an earlier sweep. Those that are points of this space are history for tpe
            and cmaes; a finite space is not searched again where they succeeded.
    """
    if study.max_trials and number >= study.max_trials:
        return None
    warm = [trial for trial in warm if study.space.contains(trial.parameters)]
    if study.sampler is Sampler.GRID:
        return _of_grid(study, number, warm)
    suggestion = _draw(study, trials, number, warm)
    if study.space.points() is None:
        return suggestion
    tried = [trial.parameters for trial in trials if trial.number < number]
    tried += [trial.parameters for trial in warm if trial.state in _DONE]
    return suggestion if suggestion not in tried else _untried(study, number, suggestion, tried)


def _of_grid(study: Study, number: int, warm: Iterable[Trial]) -> dict[str, Any] | None:
    index = number
    for done in sorted({study.space.index(t.parameters) for t in warm if t.state in _DONE}):
        index += done <= index
    return study.space.point(index) if index < study.space.check_finite() else None


def _untried(
    study: Study, number: int, suggestion: dict[str, Any], tried: Iterable[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Returns a point like the ones that the sampler draws which was not tried, if there is one."""
    space = study.space
    taken = {space.index(parameters) for parameters in tried if space.contains(parameters)}
    points = space.check_finite()
    if len(taken) >= points:
        return None
    source = _source(study, number, "again")
    for _ in range(_REDRAWS):
        if space.index(suggestion) not in taken:
            return suggestion
        suggestion = _at_random(study, source)
    index = source.randrange(points)
    while index in taken:
        index = (index + 1) % points
    return space.point(index)


def _draw(
    study: Study, trials: Iterable[Trial], number: int, warm: Sequence[Trial]
) -> dict[str, Any]:
    if study.sampler is Sampler.QUASIRANDOM:
        return _quasirandom(study, number)
    source = _source(study, number)
    if study.sampler is Sampler.RANDOM:
        return _at_random(study, source)
    earlier = sorted(warm, key=_settled_order)
    known = sorted(
        (
            trial
            for trial in trials
            if trial.number != number and study.space.contains(trial.parameters)
        ),
        key=_settled_order,
    )
    seed = source.getrandbits(32)
    if study.sampler is Sampler.CMAES:
        from kfp_jax.sweep.evolution import by_cmaes

        names = numeric(study.space)
        places = by_cmaes(study.space, names, study.direction, known, earlier, seed)
        return study.space.at(_places(study, source) | places)
    history = [*earlier, *known]
    if (
        sum(trial.state in _DONE and trial.score is not None for trial in history)
        < _FIRST_AT_RANDOM
    ):
        return _at_random(study, source)
    from kfp_jax.sweep.tpe import by_tpe

    return by_tpe(study.space, study.direction, history, seed)


def _settled_order(trial: Trial) -> tuple[int, str]:
    # Earlier sweeps may bring the same number twice.
    return trial.number, json.dumps(trial.parameters, sort_keys=True)


def _at_random(study: Study, source: random.Random) -> dict[str, Any]:
    return study.space.at(_places(study, source))


def _places(study: Study, source: random.Random) -> dict[str, float]:
    # One for every entry, used or not, so that a choice does not shift those after it.
    return {name: source.random() for name in study.space.entries}


def _source(study: Study, number: int, purpose: str = "") -> random.Random:
    return random.Random(f"{study.seed}/{number}/{purpose}")


def _quasirandom(study: Study, number: int) -> dict[str, Any]:
    block, row = divmod(number, _SOBOL_BLOCK)
    places = _sobol(len(study.space.entries), study.seed, block)[row]
    return study.space.at(dict(zip(study.space.entries, places, strict=True)))


@lru_cache(maxsize=16)
def _sobol(dimensions: int, seed: int, block: int) -> Sequence[Sequence[float]]:
    """Returns a block of the scrambled Sobol sequence (Owen, 1998): rows of places from 0 to 1."""
    from scipy.stats import qmc

    sequence = qmc.Sobol(dimensions, scramble=True, rng=seed)
    if block:
        sequence.fast_forward(block * _SOBOL_BLOCK)
    rows: list[list[float]] = sequence.random(_SOBOL_BLOCK).tolist()
    return rows
