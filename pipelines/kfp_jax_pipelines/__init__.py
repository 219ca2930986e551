"""Reference pipelines, each one a `@dsl.pipeline` made of kfp_jax components."""

PROGRAMS = {
    "mnist": "kfp_jax_runtime.mnist",
    "mnist_halving": "kfp_jax_runtime.mnist",
    "mnist_retrain": "kfp_jax_runtime.mnist",
    "mnist_sweep": "kfp_jax_runtime.mnist",
    "sweep": "",
}
"""The pipelines, each with the program that its `parameters` go to."""

NAMES = tuple(PROGRAMS)
