"""Kubeflow Pipelines components that run JAX training on one machine or a cluster."""

__version__ = "0.1.0"
