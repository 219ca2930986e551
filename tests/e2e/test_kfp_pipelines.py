"""Our compiled pipelines, executed as KFP 2.17.0 executes them; `fakes.kfp` says what that is."""

import json
from pathlib import Path
from typing import Any

import pytest
from e2e.kfp_runs import KfpRun, compiled, on_host
from e2e.mnist import SMALL
from e2e.places import Place
from fakes.kfp.scope import Ended, State
from kfp_jax.backends.local import LocalBackend
from kfp_jax.launch import launch
from kfp_jax.spec import TrainSpec

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
    place: Place, dataset: Path, tmp_path: Path
) -> None:
    run = KfpRun(place, compiled("mnist"))
    ended = run.start(num_nodes=2, parameters=SMALL, source="bundled", min_accuracy=0.5)
    assert ended.state is State.SUCCEEDED, ended.why
    assert [done.task.name for done in run.done] == ["prepare-data", "train", "evaluate", "promote"]
    assert "2 nodes" in run.of("train")[0].log or '"num_nodes": 2' in run.of("train")[0].log

    model = on_host(ended.artifacts["model"][0]["uri"])
    assert f"mnist/{run.run.id}/train/" in str(model)
    assert metadata(ended, "model")["program"] == "kfp_jax_runtime.mnist"
    assert "<svg" in on_host(ended.artifacts["report"][0]["uri"]).read_text()
    assert scored(model, dataset, tmp_path) == pytest.approx(ended.parameters["accuracy"], abs=1e-3)
    result = json.loads((model.parent / "result.json").read_text())
    assert result["num_processes"] == 2
