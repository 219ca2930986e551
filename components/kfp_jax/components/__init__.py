"""KFP components. Each runs under `kfp.local` and compiles for a cluster from the same source."""

from kfp_jax.components.cleanup import cleanup
from kfp_jax.components.evaluate import evaluate
from kfp_jax.components.halve import halve
from kfp_jax.components.prepare_data import prepare_data
from kfp_jax.components.promote import promote
from kfp_jax.components.promote_if_better import promote_if_better
from kfp_jax.components.select_best import select_best
from kfp_jax.components.suggest import suggest
from kfp_jax.components.sweep import sweep
from kfp_jax.components.train import train
from kfp_jax.components.trial import trial

__all__ = [
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
