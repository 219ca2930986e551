"""Our compiled pipelines, executed as KFP 2.17.0 executes them; `fakes.kfp` says what that is."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from e2e.kfp_runs import KfpRun, compiled
from e2e.mnist import SMALL
from e2e.places import Place
from e2e.stores import ClusterStore
from fakes.kfp.ir import Pipeline
from fakes.kfp.scope import Ended, State
from kfp_jax.backends.local import LocalBackend
from kfp_jax.kube.requests import Resource
from kfp_jax.kube.resources import CLAIMS
from kfp_jax.launch import launch
from kfp_jax.spec import TrainSpec

VOLUMES = Resource("", "v1", "persistentvolumes")
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
    place: Place, store: ClusterStore, dataset: Path, tmp_path: Path
) -> None:
    run = KfpRun(place, compiled("mnist"), store, ANY_UID)
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


SPACE = {"learning_rate": {"type": "choice", "values": [0.003, 0.01]}}


def test_a_sweep_is_one_task_whose_best_model_is_in_the_store(
    place: Place, store: ClusterStore, dataset: Path, tmp_path: Path
) -> None:
    run = KfpRun(place, compiled("sweep"), store, ANY_UID)
    ended = run.start(
        program="kfp_jax_runtime.mnist",
        space=SPACE,
        max_trials=2,
        parallel=2,
        sampler="grid",
        parameters=SMALL,
    )
    assert ended.state is State.SUCCEEDED, ended.why
    assert len(run.done) == 1
    assert ended.parameters["parameters"]["learning_rate"] in (0.003, 0.01)
    (artifact,) = ended.artifacts["model"]
    assert "/trials/" in artifact["uri"]
    model = store.files(artifact["uri"], tmp_path)
    found = scored(model, dataset, tmp_path / "use")
    assert found == pytest.approx(artifact["metadata"]["accuracy"], abs=1e-3)
    page = store.files(ended.artifacts["leaderboard"][0]["uri"], tmp_path)
    assert "learning_rate" in page.read_text()


def test_a_loop_of_trials_ends_with_the_best_of_them_evaluated(
    place: Place, store: ClusterStore, tmp_path: Path
) -> None:
    run = KfpRun(place, compiled("mnist_sweep"), store, ANY_UID)
    ended = run.start(space=SPACE, max_trials=2, sampler="grid", parameters=SMALL, source="bundled")
    assert ended.state is State.SUCCEEDED, ended.why
    assert len(run.of("trial")) == 2
    table = store.files(ended.artifacts["trials_table"][0]["uri"], tmp_path)
    trials = [json.loads(line) for line in table.read_text().splitlines()]
    best = max(trials, key=lambda trial: trial["score"])
    assert ended.artifacts["model"][0]["uri"] == best["model_uri"]
    assert ended.parameters["accuracy"] == pytest.approx(best["score"], abs=1e-3)
    assert (store.files(best["model_uri"], tmp_path) / "model.json").is_file()


def smaller(pipeline: Pipeline, changes: dict[str, Any]) -> Pipeline:
    """Returns a pipeline with other constants: "task.input" -> value, for each scope's tasks."""
    spec = json.loads(json.dumps(pipeline.spec))
    for scope in (spec["root"], *spec["components"].values()):
        for name, task in scope.get("dag", {}).get("tasks", {}).items():
            for key, source in task.get("inputs", {}).get("parameters", {}).items():
                if f"{name}.{key}" in changes:
                    source["runtimeValue"]["constant"] = changes[f"{name}.{key}"]
    return replace(pipeline, spec=spec)


def test_rounds_of_halving_let_ever_fewer_trials_go_on(
    place: Place, store: ClusterStore, tmp_path: Path
) -> None:
    fewer = {"suggest.max_trials": 3, "halve.keep": 2, "trial-2.budget": {"epochs": 1}}
    fewer |= {"trial-3.budget": {"epochs": 1}, "select-best.budget": {"epochs": 1}}
    run = KfpRun(place, smaller(compiled("mnist_halving"), fewer), store, ANY_UID)
    small = {name: value for name, value in SMALL.items() if name != "epochs"}
    three = {"learning_rate": {"type": "choice", "values": [0.003, 0.01, 0.03]}}
    ended = run.start(parameters=small, source="bundled", space=three, sampler="grid", max_failed=0)
    assert ended.state is State.SUCCEEDED, ended.why
    counts = [len(run.of(name)) for name in ("trial", "trial-2", "trial-3")]
    assert counts == [3, 2, 1]
    assert (store.files(ended.artifacts["model"][0]["uri"], tmp_path) / "model.json").is_file()


def production_claim(place: Place) -> None:
    """Gives a place the volume of the models in production."""
    name = f"{place.namespace}-production"
    folder = place.folder / "production"
    folder.mkdir()
    size = {"storage": "1Gi"}
    place.client.create(
        VOLUMES,
        "",
        {
            "metadata": {"name": name},
            "spec": {
                "capacity": size,
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "hostPath": {"path": str(folder)},
                "claimRef": {"namespace": place.namespace, "name": "kfp-jax-production"},
            },
        },
    )
    place.create(
        CLAIMS,
        {
            "metadata": {"name": "kfp-jax-production"},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "volumeName": name,
                "resources": {"requests": size},
            },
        },
    )


def test_a_second_retraining_does_not_take_the_place_of_an_equal_model(
    place: Place, store: ClusterStore
) -> None:
    production_claim(place)
    try:
        promoted = []
        for _ in range(2):
            run = KfpRun(place, compiled("mnist_retrain"), store, ANY_UID)
            ended = run.start(
                production="/production", parameters=SMALL, source="bundled", min_accuracy=0.5
            )
            assert ended.state is State.SUCCEEDED, ended.why
            promoted.append(ended.parameters["promoted"])
            assert metadata(ended, "lineage")["version"] == 1
        assert promoted == [True, False]
    finally:
        place.client.delete(VOLUMES, "", f"{place.namespace}-production")
