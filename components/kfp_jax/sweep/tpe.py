"""TPE by Optuna: parameters towards those that scored well (Bergstra et al., NeurIPS 2011).

What is in use together is sampled together (Falkner et al., ICML 2018), so that parameters that
depend on each other are learned as such; what a choice brings into use is sampled after it, from
the trials that had it. Running trials count as bad ones, which keeps parallel trials apart.
"""

from collections.abc import Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import TPESampler

from kfp_jax.sweep.codes import History, codes_of, frozen, optuna_study
from kfp_jax.sweep.space import Space
from kfp_jax.sweep.trial import Direction, Trial


def by_tpe(
    space: Space,
    direction: Direction,
    history: Sequence[Trial],
    earlier: Sequence[Trial],
    seed: int,
) -> dict[str, Any]:
    """Returns parameters; some of the trials have scores."""
    sampler = TPESampler(seed=seed, n_startup_trials=0)
    storage = History(frozen(space, history, earlier))
    study = optuna_study(storage, direction, sampler)
    trial = storage.get_trial(
        storage.create_new_trial(storage.get_study_id_from_name(study.study_name))
    )
    codes = codes_of(space)
    found: dict[str, Any] = {}
    while True:
        group: dict[str, BaseDistribution] = {
            name: codes[name].distribution
            for name in space.entries
            if name not in found and space.in_use(name, found)
        }
        if not group:
            break
        several = {name: item for name, item in group.items() if not item.single()}
        sampled = sampler.sample_relative(study, trial, several)
        found |= {name: codes[name].decode(sampled.get(name, 0)) for name in group}
    return {name: found[name] for name in space.entries if name in found}
