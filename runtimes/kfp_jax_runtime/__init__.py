"""What runs inside the training nodes: the bootstrap, and what a program sees of it.

A program is a function `main(run)` or `main(run, config)`. The names here are light: importing
them loads no JAX, so a program that only moves data starts at once.
"""

from kfp_jax_runtime.errors import BadInput, Diverged, Stopped
from kfp_jax_runtime.run import Run

__all__ = ["BadInput", "Diverged", "Run", "Stopped"]
