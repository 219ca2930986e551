"""What one process of a local job is: its command, its environment, its cores."""

import os
import sys
from collections.abc import Mapping

from kfp_jax import storage
from kfp_jax.spec import TrainSpec, parameters_json

LOOPBACK = "127.0.0.1"


def argv(spec: TrainSpec) -> list[str]:
    """Returns the command that every process runs."""
    if spec.command:
        return list(spec.command)
    return [sys.executable, "-m", "kfp_jax_runtime.bootstrap", spec.program]


def node_env(spec: TrainSpec, job: str, process: int, port: int, attempt: int) -> dict[str, str]:
    """Returns what the backend sets for one process, over the inherited environment."""
    address = f"{LOOPBACK}:{port}"
    dataset = spec.dataset_uri and storage.place(spec.dataset_uri, "dataset_uri")
    shared = spec.shared_uri and str(storage.local_path(spec.shared_uri, "shared_uri"))
    return {
        **spec.env,
        "JAX_COORDINATOR_ADDRESS": address,
        # JAX would bind all interfaces.
        "JAX_COORDINATOR_BIND_ADDRESS": address,
        "JAX_NUM_PROCESSES": str(spec.num_nodes),
        "JAX_PROCESS_ID": str(process),
        # The names that JAXJob v1 gave: its scripts run unchanged.
        "COORDINATOR_ADDRESS": LOOPBACK,
        "COORDINATOR_PORT": str(port),
        "NUM_PROCESSES": str(spec.num_nodes),
        "PROCESS_ID": str(process),
        "KFP_JAX_PARAMETERS": parameters_json(spec.parameters),
        "KFP_JAX_OUTPUT_URI": storage.place(spec.output_uri, "output_uri"),
        "KFP_JAX_CHECKPOINT_URI": storage.place(spec.checkpoints, "checkpoint_uri"),
        "KFP_JAX_DATASET_URI": dataset,
        **({"KFP_JAX_SHARED_URI": shared} if shared else {}),
        "KFP_JAX_JOB": job,
        "KFP_JAX_ATTEMPT": str(attempt),
    }


def defaults(environ: Mapping[str, str], num_nodes: int) -> dict[str, str]:
    """Returns what a local process gets unless the caller's environment says otherwise."""
    values = {"PYTHONUNBUFFERED": "1"}
    if num_nodes > 1:
        # Several processes cannot share one machine's accelerator.
        values["JAX_PLATFORMS"] = "cpu"
    if any(name.lower().endswith("_proxy") for name in environ):
        # gRPC would ask the proxy for the coordinator, and never get an answer.
        values["no_grpc_proxy"] = LOOPBACK
    return {key: value for key, value in values.items() if key not in environ}


def cores_of(process: int, num_nodes: int) -> frozenset[int] | None:
    """Returns the cores of one process: an equal share, or one in turn when there are too few.

    Without this, the thread pools of the processes fight for the same cores: 2 to 3 times slower
    steps on 2 cores. A single process keeps all.
    """
    if num_nodes == 1:
        return None
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // num_nodes)
    first = process * share % len(cores)
    return frozenset(cores[first : first + share])
