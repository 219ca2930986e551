"""A launcher with the memory that one has in a KFP task: its imports, the account of a pod.

    python cluster_launcher.py ACCOUNT NAMESPACE SPEC

Prints the most memory that it ever had, in bytes. KUBERNETES_SERVICE_HOST names the server.
"""

import json
import os
import sys
from pathlib import Path

os.environ["_KFP_RUNTIME"] = "true"  # as KFP sets it in a task

import kfp.dsl.executor_main  # noqa: F401 - what runs a task's function
import kfp_jax.entry  # noqa: F401 - and what that calls
from kfp_jax.backends.choice import Cluster, on_cluster
from kfp_jax.cancellation import cancel_on_signals
from kfp_jax.kube.access import find_access
from kfp_jax.kube.client import Client
from kfp_jax.launch import launch
from kfp_jax.sinks import NullSink
from kfp_jax.spec import TrainSpec


def peak_bytes() -> int:
    """Returns the most memory that this process ever had."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the kernel does not tell VmHWM")


def main(account: str, namespace: str, spec: str) -> None:
    client = Client(find_access(os.environ, service_account=Path(account)))
    backend = on_cluster("trainer", client, Cluster(namespace=namespace))
    with cancel_on_signals() as cancellation:
        outcome = launch(
            TrainSpec.from_json(json.loads(spec)),
            backend,
            sink=NullSink(),
            cancellation=cancellation,
        )
    print(json.dumps({"phase": outcome.phase, "bytes": peak_bytes(), "said": outcome.message}))


if __name__ == "__main__":
    main(*sys.argv[1:])
