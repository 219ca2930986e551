"""Reference pipelines, each one a `@dsl.pipeline` made of kfp_jax components."""

NAMES = ("mnist",)
