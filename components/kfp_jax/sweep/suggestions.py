"""Which parameters the next trial gets: a pure function of the study and the set of its trials."""

import json
import random
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

from kfp_jax.sweep.quasirandom import halton
from kfp_jax.sweep.remembered import Remembered
from kfp_jax.sweep.space import Space
from kfp_jax.sweep.study import Sampler, Study, numeric
from kfp_jax.sweep.trial import Trial, TrialState

# How often a point that was tried already is drawn again before the untried ones are looked for.
_REDRAWS = 16
# As many scores TPE waits for, as Optuna's does.
_FIRST_AT_RANDOM = 10
_DONE = (TrialState.COMPLETE, TrialState.PRUNED)
LEARNING = (Sampler.TPE, Sampler.CMAES)


def suggest(
    study: Study, trials: Sequence[Trial], number: int, earlier: Sequence[Trial] = ()
) -> dict[str, Any] | None:
    """Returns the parameters of trial `number`, or None when there is nothing more to try.

    The order of `trials` does not matter. Running ones count as pending, failed ones as tried. Of a
    space with a finite number of points none is suggested twice. Random, quasirandom and grid look
    at the number alone, except where a point would come twice.

    Args:
        study: What decides.
        trials: The trials so far, in any state.
        number: The trial's number, from 0.
        earlier: Trials of an earlier sweep. Those that are points of this space are history for tpe
            and cmaes, and points of a finite space that succeeded there are not tried again.
    """
    if study.max_trials and number >= study.max_trials:
        return None
    points = study.space.points()
    if points is None:
        return _draw(study, trials, number, earlier)
    if study.sampler is Sampler.GRID:
        return _of_grid(study, points, number, _taken(study, (), earlier))
    taken = _taken(study, [trial for trial in trials if trial.number < number], earlier)
    if len(taken) >= points:
        return None
    return _untried(study, points, _draw(study, trials, number, earlier), number, taken)


def warm_start_problem(study: Study, earlier: Sequence[Trial]) -> str:
    """Returns the sentence for trials of an earlier sweep that change nothing, or ""."""
    if not earlier:
        return ""
    fit = [trial for trial in earlier if study.space.contains(trial.parameters)]
    if not any(trial.state in _DONE for trial in fit):
        of = (
            f"the warm start's {len(earlier):,} trials"
            if len(earlier) > 1
            else "the warm start's trial"
        )
        return (
            f"The warm start is not used: none of {of} ended with a score and fits this search"
            " space; give the table of a sweep with the same entries and ranges."
        )
    if study.sampler not in LEARNING and study.space.points() is None:
        return (
            f"The warm start is not used: the sampler {study.sampler} does not learn; use"
            f" {' or '.join(LEARNING)}."
        )
    return ""


def _taken(study: Study, trials: Sequence[Trial], earlier: Sequence[Trial]) -> set[int]:
    """Returns which points of a finite space were tried here, or with success in `earlier`."""
    tried = [*trials, *(trial for trial in earlier if trial.state in _DONE)]
    return {index for index in _indices(study.space.text)(tried) if index is not None}


@lru_cache(maxsize=8)
def _indices(text: str) -> Remembered[int | None]:
    space = Space.from_json(json.loads(text))
    return Remembered(
        lambda trial: space.index(trial.parameters) if space.contains(trial.parameters) else None
    )


def _of_grid(
    study: Study, points: int, number: int, taken: Collection[int]
) -> dict[str, Any] | None:
    index = number
    for earlier in sorted(taken):
        index += earlier <= index
    return study.space.point(index) if index < points else None


def _untried(
    study: Study, points: int, suggestion: dict[str, Any], number: int, taken: Collection[int]
) -> dict[str, Any]:
    """Returns the suggestion or, if it was tried, another as like it as can be found quickly."""
    source = _source(study, number, "again")
    for _ in range(_REDRAWS):
        if study.space.index(suggestion) not in taken:
            return suggestion
        suggestion = study.space.at(_places(study, source))
    index = source.randrange(points)
    while index in taken:
        index = (index + 1) % points
    return study.space.point(index)


def _draw(
    study: Study, trials: Sequence[Trial], number: int, earlier: Sequence[Trial]
) -> dict[str, Any]:
    source = _source(study, number)
    if study.sampler is Sampler.QUASIRANDOM:
        return study.space.at(_quasirandom_places(study, number))
    if study.sampler is Sampler.RANDOM:
        return study.space.at(_places(study, source))
    known = sorted((t for t in trials if t.number != number), key=lambda trial: trial.number)
    seed = source.getrandbits(32)
    if study.sampler is Sampler.CMAES:
        from kfp_jax.sweep.evolution import by_cmaes

        names = numeric(study.space)
        found = by_cmaes(study.space, names, study.direction, known, earlier, seed)
        return study.space.at(_places(study, source) | found)
    scored = sum(t.state in _DONE and t.score is not None for t in (*earlier, *known))
    if scored < _FIRST_AT_RANDOM:
        return study.space.at(_places(study, source))
    from kfp_jax.sweep.tpe import by_tpe

    return by_tpe(study.space, study.direction, known, earlier, seed)


def _source(study: Study, number: int, purpose: str = "") -> random.Random:
    return random.Random(f"{study.seed}/{number}/{purpose}")


def _places(study: Study, source: random.Random) -> dict[str, float]:
    # One for every entry, used or not, so that a choice does not shift those after it.
    return {name: source.random() for name in study.space.entries}


def _quasirandom_places(study: Study, number: int) -> dict[str, float]:
    places = halton(len(study.space.entries), study.seed, number)
    return dict(zip(study.space.entries, places, strict=True))
