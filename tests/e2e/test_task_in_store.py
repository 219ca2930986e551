"""The compiled pipeline's tasks in pods that share nothing but an S3 server."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from e2e.mnist import SMALL
from e2e.places import Place, until
from e2e.store import BUCKET, SECRET, s3_store
from e2e.test_kfp_task import RUN, TASK, a_workflow, ended, jobs, task_pod
from kfp_jax import __version__
from kfp_jax.kube.resources import PODS
from kfp_jax_runtime.export import load_model
from kfp_jax_store import complete, download, is_complete, open_store

IMAGES = os.environ.get("KFP_JAX_IMAGE_PREFIX", "kfp-jax")
TRAINER = f"{IMAGES}/trainer-cpu:{__version__}"
# Nothing of the folder that the other tests' pods share.
PODS_OF_JOBS = {
    "image": TRAINER,
    "resources": {
        "cpu": "200m",
        "memory": "300Mi",
        "cpu_limit": "2",
        "memory_limit": "2Gi",
    },
}


def root(task: str) -> str:
    return f"s3://{BUCKET}/v2/artifacts/mnist/{RUN}/{task}/{TASK}"


def run(place: Place, workflow: Any, task: str, values: dict[str, Any], **more: Any) -> Any:
    """Runs a task's pod to its end and returns what it hands to KFP."""
    pod = task_pod(
        place,
        task,
        {**values, "pods": PODS_OF_JOBS},
        workflow,
        name=task,
        root=root(task),
        **more,
    )
    container = pod["spec"]["containers"][0]
    container["image"] = container["image"].replace("kfp-jax/", f"{IMAGES}/", 1)
    place.create(PODS, pod)
    phase = until("the task ends", lambda: ended(place, task), seconds=200)
    log = place.log(task, "main")
    assert phase == "Succeeded", f"{log}\n{place.story()}"
    assert SECRET not in log
    return json.loads((place.folder / f"outputs-{task}" / "output_metadata.json").read_text())


@pytest.mark.timeout(600)  # three tasks, each with a launcher and pods of its own
def test_mnist_passes_from_task_to_task_through_the_store(place: Place, tmp_path: Path) -> None:
    workflow = a_workflow(place)
    with s3_store(place, TRAINER) as environ:
        given = {"name": "mnist", "source": "bundled"}
        prepared = run(place, workflow, "prepare-data", given)
        dataset = prepared["parameterValues"]["Output"]
        assert dataset == f"{root('prepare-data')}/dataset"
        assert is_complete(open_store(dataset, environ))

        given = {
            "program": "kfp_jax_runtime.mnist",
            "parameters": {**SMALL, "checkpoint_every_steps": 40},
            "num_nodes": 2,
            "dataset_uri": dataset,
        }
        trained = run(place, workflow, "train", given)
        accuracy = trained["parameterValues"]["Output"]
        assert accuracy > 0.5
        store = open_store(root("train"), environ)
        assert complete(store, "checkpoints")
        result = json.loads(store.get("result.json"))
        assert (result["phase"], result["num_processes"]) == ("SUCCEEDED", 2)
        model = trained["artifacts"]["model"]["artifacts"][0]
        assert model["uri"] == result["model_uri"] == f"{root('train')}/model"

        inputs = {"model": model["uri"]}
        scored = run(place, workflow, "evaluate", {"dataset_uri": dataset}, inputs=inputs)
        assert abs(scored["parameterValues"]["Output"] - accuracy) < 0.01

        download(store, "model", tmp_path / "model")
    logits = load_model(tmp_path / "model")(np.zeros((3, 28, 28, 1), np.uint8))
    assert np.asarray(logits).shape == (3, 10)
    assert jobs(place) == []
