"""The training that end-to-end tests run: seconds long, and good enough to compare accuracies."""

from pathlib import Path
from typing import Any

from e2e.places import CLAIM, SHARED
from kfp_jax.pods import Pods, Resources, Volume
from kfp_jax.spec import TrainSpec

# Small enough for four nodes on one machine; what they write is seen under the same path by tests.
PODS = Pods(
    resources=Resources(cpu="200m", memory="256Mi", cpu_limit="2", memory_limit="2Gi"),
    volumes=(
        Volume(
            name="shared",
            mount_path=str(SHARED),
            source={"persistentVolumeClaim": {"claimName": CLAIM}},
        ),
    ),
)
SMALL = {"epochs": 1, "channels": [8], "hidden": 16, "report_every_steps": 20}


def mnist(folder: Path, dataset: Path, **changes: Any) -> TrainSpec:
    """Returns a training of two nodes that leaves its results in `folder / "mnist"`."""
    given: dict[str, Any] = {
        "name": "mnist",
        "program": "kfp_jax_runtime.mnist",
        "parameters": SMALL,
        "num_nodes": 2,
        "output_uri": str(folder / "mnist"),
        "dataset_uri": str(dataset),
        "objective": "accuracy",
        "pods": PODS,
    }
    return TrainSpec(**{**given, **changes})


def preparation(folder: Path) -> TrainSpec:
    """Returns a job that prepares the dataset in `folder / "dataset"`, without network."""
    return TrainSpec(
        name="prepare",
        program="kfp_jax_runtime.data.prepare",
        parameters={"dataset": "mnist", "source": "bundled"},
        output_uri=str(folder),
    )
