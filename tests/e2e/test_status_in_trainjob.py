"""What a training shows in its TrainJob, where Trainer has a status server (its feature gate)."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from e2e.mnist import mnist
from e2e.places import Place, until
from kfp_jax.backends.trainer import TrainerBackend
from kfp_jax.kube.resources import TRAINJOBS
from kfp_jax.launch import job_ref
from kfp_jax.status import Phase

pytestmark = pytest.mark.usefixtures("nothing_is_left")

GATE = "TrainJobStatus"
URL = "KUBEFLOW_TRAINER_SERVER_URL"


def has_server(pod: Any) -> bool:
    return any(item["name"] == URL for item in pod["spec"]["containers"][0].get("env", ()))


def test_progress_and_metrics_are_in_the_trainjob(place: Place, dataset: Path) -> None:
    backend = TrainerBackend(place.client, namespace=place.namespace)
    spec = mnist(place.folder, dataset)
    ref = backend.submit(spec, job_ref(spec, backend))
    pods = until("its pods are there", place.pods)
    if not has_server(pods[0]):
        backend.delete(ref)
        message = f"the feature gate {GATE} of this Trainer is off"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)

    def shown() -> Any:
        return place.get(TRAINJOBS, ref.name).get("status", {}).get("trainerStatus", {})

    seen, phases = [], []
    for status in backend.watch(ref):
        phases.append(status.phase)
        seen.append(shown().get("progressPercentage"))
        time.sleep(0.1)
    assert phases[-1] is Phase.SUCCEEDED, place.story()
    final = until("all is told", lambda: shown().get("progressPercentage") == 100 and shown())
    backend.delete(ref)
    metrics = {item["name"]: float(item["value"]) for item in final["metrics"]}
    assert metrics["accuracy"] > 0.5
    assert final["estimatedRemainingSeconds"] == 0
    assert final["lastUpdatedTime"]
    assert any(value is not None and value < 100 for value in seen), seen
