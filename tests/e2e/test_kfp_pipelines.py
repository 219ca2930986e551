"""Our compiled pipelines, executed as KFP 2.17.0 executes them; `fakes.kfp` says what that is."""

import json
from pathlib import Path
from typing import Any

import pytest
from e2e.kfp_runs import KfpRun, compiled
from e2e.mnist import SMALL
from e2e.places import Place
from e2e.stores import ClusterStore
from fakes.kfp.scope import Ended, State
from kfp_jax.backends.local import LocalBackend
from kfp_jax.launch import launch
from kfp_jax.spec import TrainSpec

# As of a cluster that has policies of its own.
ANY_UID = {"user": 1234567, "read_only_root": True}
pytestmark = pytest.mark.timeout(900)


def metadata(ended: Ended, name: str) -> Any:
    return ended.artifacts[name][0]["metadata"]


def scored(model: Path, dataset: Path, folder: Path) -> float:
    """Returns what a model scores on this machine."""
    evaluation = TrainSpec(
        name="use",
        program="kfp_jax_runtime.evaluate",
        parameters={"model": str(model), "split": "test"},
        output_uri=str(folder),
        dataset_uri=str(dataset),
        objective="accuracy",
    )
    return launch(evaluation, LocalBackend()).metrics["accuracy"]


def test_mnist_is_prepared_trained_on_two_pods_evaluated_and_promoted(
    restricted: Place, store: ClusterStore, dataset: Path, tmp_path: Path
) -> None:
    run = KfpRun(restricted, compiled("mnist"), store, ANY_UID)
    ended = run.start(num_nodes=2, parameters=SMALL, source="bundled", min_accuracy=0.5)
    assert ended.state is State.SUCCEEDED, ended.why
    assert [done.task.name for done in run.done] == ["prepare-data", "train", "evaluate", "promote"]

    uri = ended.artifacts["model"][0]["uri"]
    assert f"/mnist/{run.run.id}/train/" in uri
    assert metadata(ended, "model")["program"] == "kfp_jax_runtime.mnist"
    report = store.files(ended.artifacts["report"][0]["uri"], tmp_path)
    assert "<svg" in report.read_text()
    model = store.files(uri, tmp_path)
    accuracy = scored(model, dataset, tmp_path / "use")
    assert accuracy == pytest.approx(ended.parameters["accuracy"], abs=1e-3)
    result = json.loads(store.files(f"{uri.rpartition('/')[0]}/result.json", tmp_path).read_text())
    assert result["num_processes"] == 2
