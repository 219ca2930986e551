"""Kubeflow Pipelines components that run JAX training on one machine or a cluster."""

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # `kfp_jax.schedule(...)`, loaded when it is asked for; the typed way is from kfp_jax.schedules.
    if name == "schedule":
        from importlib import import_module

        return import_module("kfp_jax.schedules").schedule
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
