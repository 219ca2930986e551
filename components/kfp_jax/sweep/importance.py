"""How much each parameter mattered for a good score."""

import warnings
from collections.abc import Iterable

from kfp_jax.sweep.space import Space
from kfp_jax.sweep.trial import Direction, Trial, TrialState

_LEAST = 4


def importances(space: Space, trials: Iterable[Trial], direction: Direction) -> dict[str, float]:
    """Returns each parameter's share in what made the best trials good, the greatest first.

    By PED-ANOVA (Watanabe et al., IJCAI 2023). The shares add up to 1. Empty when it cannot be
    told: from fewer than 4 complete trials, or when nothing made a difference.
    """
    from optuna.importance import PedAnovaImportanceEvaluator

    from kfp_jax.sweep.codes import History, frozen, optuna_study

    complete = [
        trial
        for trial in sorted(trials, key=lambda trial: trial.number)
        if trial.state is TrialState.COMPLETE
        and trial.score is not None
        and space.contains(trial.parameters)
    ]
    if len(complete) < _LEAST:
        return {}
    study = optuna_study(History(frozen(space, complete)), direction)
    with warnings.catch_warnings():
        # It says that few trials tell little; the caller knows how many there are.
        warnings.simplefilter("ignore")
        found = PedAnovaImportanceEvaluator().evaluate(study)
    total = sum(found.values())
    if not total > 0:
        return {}
    ordered = sorted(found, key=lambda name: (-found[name], name))
    return {name: found[name] / total for name in ordered}
