"""The training that end-to-end tests run: seconds long, and good enough to compare accuracies."""

from typing import Any

from e2e.places import Place
from kfp_jax.spec import TrainSpec

SMALL = {"epochs": 1, "channels": [8], "hidden": 16, "report_every_steps": 20}


def mnist(place: Place, **changes: Any) -> TrainSpec:
    given: dict[str, Any] = {
        "name": "mnist",
        "program": "kfp_jax_runtime.mnist",
        "parameters": SMALL,
        "num_nodes": 2,
        "output_uri": str(place.folder / "mnist"),
    }
    return TrainSpec(**{**given, **changes})
