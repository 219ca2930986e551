"""KFP components. Each runs under `kfp.local` and compiles for a cluster from the same source."""

from kfp_jax.components.cleanup import cleanup
from kfp_jax.components.evaluate import evaluate
from kfp_jax.components.prepare_data import prepare_data
from kfp_jax.components.promote import promote
from kfp_jax.components.sweep import sweep
from kfp_jax.components.train import train

__all__ = ["cleanup", "evaluate", "prepare_data", "promote", "sweep", "train"]
