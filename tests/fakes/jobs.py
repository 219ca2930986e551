"""Specs and identities of jobs on a cluster, for tests of what they become there."""

from typing import Any

from kfp_jax.manifests.identity import Identity, Owner
from kfp_jax.pods import Pods, Resources, Volume
from kfp_jax.spec import TrainSpec

RESULTS = Volume(
    name="results",
    mount_path="/results",
    source={"persistentVolumeClaim": {"claimName": "results"}},
)
WORKFLOW = Owner("argoproj.io/v1alpha1", "Workflow", "mnist-x7k2p", "0c5b3d9e-uid")


def job(**changes: Any) -> TrainSpec:
    """Returns a job of two nodes whose results are on a volume."""
    pods = {"volumes": (RESULTS,), **changes.pop("pods", {})}
    given: dict[str, Any] = {
        "name": "mnist",
        "program": "kfp_jax_runtime.mnist",
        "output_uri": "/results/mnist",
        "num_nodes": 2,
    }
    return TrainSpec(**{**given, **changes}, pods=Pods(**pods))


def identity(**changes: Any) -> Identity:
    """Returns who the job is."""
    given: dict[str, Any] = {"name": "mnist-0a1b2c3d-1", "namespace": "team"}
    return Identity(**{**given, **changes})


def gpus(count: int = 1, **more: Any) -> Resources:
    """Returns the resources of a node with GPUs."""
    return Resources(accelerators={"nvidia.com/gpu": count}, **more)
