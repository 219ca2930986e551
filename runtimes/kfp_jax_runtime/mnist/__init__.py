"""MNIST and Fashion-MNIST, trained data-parallel: the program `kfp_jax_runtime.mnist`."""

from collections.abc import Mapping

from kfp_jax_runtime.errors import BadInput
from kfp_jax_runtime.mnist.config import MnistConfig
from kfp_jax_runtime.run import Run

__all__ = ["MnistConfig", "main"]


def main(run: Run, config: MnistConfig) -> Mapping[str, object]:
    """Trains, evaluates and exports; returns accuracy and loss on the test set.

    Writes `evaluation.json` and `model/` to the output directory.
    """
    if config.global_batch_size % run.process_count:
        raise BadInput(
            f"global_batch_size {config.global_batch_size} does not divide evenly among "
            f"{run.process_count} processes; use a multiple of {run.process_count}"
        )
    # The launcher imports this package to check parameters, and should not wait for JAX.
    from kfp_jax_runtime.mnist.train import train

    return train(run, config)
