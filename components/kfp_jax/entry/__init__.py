"""From KFP's parameters and artifacts to a launch, and back: what the components' bodies call.

Not in `kfp_jax.components`: in a task KFP offers its artifact types only, and the component
definitions beside this would not import.
"""

from kfp_jax.entry.cleaning import cleanup
from kfp_jax.entry.looping import (
    BestOutputs,
    TrialOutputs,
    halve,
    select_best,
    suggest,
    trial,
)
from kfp_jax.entry.promoting import PromoteOutputs, promote_if_better
from kfp_jax.entry.sweeping import SweepOutputs, sweep
from kfp_jax.entry.training import (
    EvaluateOutputs,
    TrainOutputs,
    evaluate,
    prepare_data,
    promote,
    train,
)

__all__ = [
    "BestOutputs",
    "EvaluateOutputs",
    "PromoteOutputs",
    "SweepOutputs",
    "TrainOutputs",
    "TrialOutputs",
    "cleanup",
    "evaluate",
    "halve",
    "prepare_data",
    "promote",
    "promote_if_better",
    "select_best",
    "suggest",
    "sweep",
    "train",
    "trial",
]
