"""MNIST and Fashion-MNIST, trained data-parallel: the program `kfp_jax_runtime.mnist`."""

from collections.abc import Mapping

from kfp_jax_runtime.mnist.config import MnistConfig
from kfp_jax_runtime.run import Run

__all__ = ["MnistConfig", "main"]


def main(run: Run, config: MnistConfig) -> Mapping[str, object]:
    """Trains, evaluates and exports; returns accuracy and loss on the test set.

    Writes `evaluation.json` and `model/` to the output directory.
    """
    # The launcher imports this package to check parameters, and should not wait for JAX.
    from kfp_jax_runtime.mnist.train import train

    return train(run, config)
