"""Runtimes of TrainJobs as a server has them."""

import copy
from typing import Any

_JAX_DISTRIBUTED: dict[str, Any] = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {
        "name": "jax-distributed",
        "labels": {"trainer.kubeflow.org/framework": "jax"},
    },
    "spec": {
        "mlPolicy": {"numNodes": 1, "jax": {}},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "replicas": 1,
                        "template": {
                            "metadata": {
                                "labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
                            },
                            "spec": {
                                "template": {
                                    "spec": {
                                        "containers": [
                                            {"name": "node", "image": "nvidia/jax:25.10-py3"}
                                        ]
                                    }
                                }
                            },
                        },
                    }
                ]
            }
        },
    },
}


def stock_runtime() -> dict[str, Any]:
    """Returns `jax-distributed` of a Trainer 2.3.0; it may be changed."""
    return copy.deepcopy(_JAX_DISTRIBUTED)


def node_job(runtime: dict[str, Any]) -> dict[str, Any]:
    """Returns the runtime's replicated job of the nodes."""
    (found,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert isinstance(found, dict)
    return found


def node_pod(runtime: dict[str, Any]) -> dict[str, Any]:
    """Returns the pod spec of the runtime's nodes."""
    found = node_job(runtime)["template"]["spec"]["template"]["spec"]
    assert isinstance(found, dict)
    return found
