"""Sweeps: which trials to make and which to end, without I/O.

    space = Space.from_json({"learning_rate": loguniform(1e-4, 0.1), "batch": choice(32, 64)})
    study = Study(space=space, sampler="tpe", pruner="asha", max_trials=40)
    suggest(study, trials, number=len(trials))    # parameters, or None when there is nothing more
    should_prune(study, trial, others)            # at each report

Optuna is imported when it is first asked for a suggestion.
"""

from kfp_jax.sweep.halving import survivors
from kfp_jax.sweep.importance import importances
from kfp_jax.sweep.pruning import should_prune
from kfp_jax.sweep.simulator import Report, Simulation, simulate
from kfp_jax.sweep.space import Space, choice, integer, loginteger, loguniform, uniform
from kfp_jax.sweep.space_formats import from_katib, from_ray
from kfp_jax.sweep.study import Pruner, Sampler, Study
from kfp_jax.sweep.suggestions import suggest
from kfp_jax.sweep.trial import Direction, Trial, TrialState, ranked

__all__ = [
    "Direction",
    "Pruner",
    "Report",
    "Sampler",
    "Simulation",
    "Space",
    "Study",
    "Trial",
    "TrialState",
    "choice",
    "from_katib",
    "from_ray",
    "importances",
    "integer",
    "loginteger",
    "loguniform",
    "ranked",
    "should_prune",
    "simulate",
    "suggest",
    "survivors",
    "uniform",
]
