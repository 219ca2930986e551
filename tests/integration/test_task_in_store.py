"""KFP tasks with artifacts in a real S3 server, to which their pods write by themselves."""

import base64
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from fakes.api_server import FakeApiServer
from fakes.cluster import CLUSTER_RUNTIMES, TRAINJOBS, FakeCluster, make_server
from fakes.kubeconfig import write_kubeconfig
from fakes.s3_server import ACCESS_KEY, SECRET_KEY, S3Server
from kfp import dsl
from kfp_jax import entry
from kfp_jax.manifests.pod import CPU
from kfp_jax.manifests.runtime import shipped_runtime
from kfp_jax_store import Store, complete, is_complete, open_store

pytestmark = pytest.mark.integration

# A job of seconds, that exports no model.
DRILL: dict[str, Any] = {
    "program": "programs.drill:train",
    "objective": "x",
    "parameters": {"save_every": 5},
}
SMALL = {"epochs": 1, "channels": [4], "hidden": 8, "checkpoint_every_steps": 20}
# What is installed of this package in the pods of a real cluster.
PODS_ENV = {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
TRAIN: dict[str, Any] = {
    "num_nodes": 1,
    "objective": "accuracy",
    "max_restarts": 0,
    "stall_seconds": 120,
    "deadline_seconds": 170,
    "pods": {},
    "backend": "jobset",
}


class Kfp:
    """A namespace with what KFP has in it, and the artifacts of a run."""

    def __init__(self, server: FakeApiServer, store: S3Server, folder: Path) -> None:
        self.server = server
        self.bucket = store.bucket()
        self.store = store
        self.folder = folder
        self.secret("mlpipeline-minio-artifact", accesskey=ACCESS_KEY, secretkey=SECRET_KEY)
        reference = {
            "secretName": "mlpipeline-minio-artifact",
            "accessKeyKey": "accesskey",
            "secretKeyKey": "secretkey",
        }
        self.provider: dict[str, Any] = {
            "endpoint": store.endpoint.removeprefix("http://"),
            "disableSSL": True,
            "region": "us-east-1",
            "credentials": {"fromEnv": False, "secretRef": reference},
        }
        self.tell()

    def secret(self, name: str, **values: str) -> None:
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        self.server.put("v1", "secrets", {"metadata": {"name": name}, "data": data})

    def tell(self, **changes: Any) -> None:
        providers = yaml.safe_dump({"minio": {"default": {**self.provider, **changes}}})
        manifest = {"metadata": {"name": "kfp-launcher"}, "data": {"providers": providers}}
        self.server.put("v1", "configmaps", manifest)

    def root(self, task: str) -> str:
        return f"minio://{self.bucket}/v2/artifacts/mnist/run-1/{task}/uuid-{task}"

    def artifact(self, kind: Any, task: str, name: str) -> Any:
        return kind(name=name, uri=f"{self.root(task)}/{name}")

    def local(self, kind: Any, name: str) -> Any:
        """What the launcher writes by itself, and KFP copies."""
        return kind(name=name, uri=str(self.folder / name))

    def opened(self, uri: str) -> Store:
        return open_store(uri, self.store.environ())

    def task_config(self) -> Any:
        env = [{"name": name, "value": value} for name, value in PODS_ENV.items()]
        return SimpleNamespace(env=env)

    def prepare(self) -> str:
        return entry.prepare_data(
            self.artifact(dsl.Dataset, "prepare-data", "dataset"),
            name="mnist",
            source="bundled",
            folder="",
            task_config=self.task_config(),
            pods={},
            backend="jobset",
        )

    def train(self, outputs: entry.TrainOutputs, **changes: Any) -> float:
        given = {"program": "kfp_jax_runtime.mnist", "parameters": SMALL, "dataset_uri": ""}
        return entry.train(outputs, task_config=self.task_config(), **{**TRAIN, **given, **changes})

    def outputs(self, task: str = "train") -> entry.TrainOutputs:
        return entry.TrainOutputs(
            model=self.artifact(dsl.Model, task, "model"),
            metrics=self.artifact(dsl.Metrics, task, "metrics"),
            report=self.local(dsl.HTML, "report"),
        )

    def manifests(self) -> str:
        """All that was ever sent to the API server."""
        return json.dumps([request.body for request in self.server.requests], default=str)


@pytest.fixture
def kfp(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kfp]:
    for name in s3_server.environ():  # a task is told nothing by its own pod, and leaves nothing
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    with make_server() as server, FakeCluster(server):
        monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(server, tmp_path)))
        yield Kfp(server, s3_server, tmp_path)


def test_prepare_train_and_evaluate_leave_nothing_in_the_launcher(kfp: Kfp) -> None:
    dataset = kfp.prepare()
    assert dataset == f"{kfp.root('prepare-data')}/dataset"
    assert is_complete(kfp.opened(dataset))

    outputs = kfp.outputs()
    accuracy = kfp.train(outputs, dataset_uri=dataset)
    assert accuracy > 0.3
    store = kfp.opened(kfp.root("train"))
    assert is_complete(store, "model")
    assert complete(store, "checkpoints")
    result = json.loads(store.get("result.json"))
    assert result["model_uri"] == outputs.model.uri == f"{kfp.root('train')}/model"
    assert len(store.get("history.jsonl").splitlines()) > 1
    # KFP copies what it finds at the path, over what the pods wrote to the URI.
    assert not Path(outputs.model.path).exists()
    assert outputs.metrics.metadata["accuracy"] == accuracy
    assert "<svg" in Path(outputs.report.path).read_text()

    scores = entry.EvaluateOutputs(
        classes=kfp.artifact(dsl.ClassificationMetrics, "evaluate", "classes"),
        metrics=kfp.artifact(dsl.Metrics, "evaluate", "metrics"),
        report=kfp.local(dsl.HTML, "scores"),
    )
    scored = entry.evaluate(
        scores,
        model=outputs.model,
        dataset_uri=dataset,
        split="test",
        task_config=kfp.task_config(),
        pods={},
        backend="jobset",
    )
    assert scored == pytest.approx(accuracy, abs=1e-3)
    assert scores.classes.metadata["confusionMatrix"]

    assert SECRET_KEY not in kfp.manifests()
    assert ACCESS_KEY not in kfp.manifests()
    assert SECRET_KEY.encode() not in Path("/proc/self/environ").read_bytes()


@pytest.mark.parametrize("kind", ["trainer", "own-runtime"])
def test_a_trainjob_names_the_secret_too(kfp: Kfp, kind: str) -> None:
    kfp.server.put(*CLUSTER_RUNTIMES, shipped_runtime(CPU), "")
    restarts = 1 if kind == "own-runtime" else 0
    kfp.train(kfp.outputs(), backend="trainer", max_restarts=restarts, **DRILL)
    created = next(
        r.body for r in kfp.server.calls("POST", TRAINJOBS[1]) if "dryRun" not in r.query
    )
    env = {item["name"]: item for item in created["spec"]["trainer"]["env"]}
    reference = {"name": "mlpipeline-minio-artifact", "key": "secretkey"}
    assert env["AWS_SECRET_ACCESS_KEY"]["valueFrom"] == {"secretKeyRef": reference}
    assert env["AWS_ENDPOINT_URL"]["value"] == kfp.store.endpoint
    assert SECRET_KEY not in kfp.manifests()


def test_a_folder_that_the_pods_share_with_the_task_stays_the_place(
    kfp: Kfp, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = kfp.folder / "volume"
    # Where KFP's own launcher would have the bucket's content.
    monkeypatch.setattr("kfp.dsl.types.artifact_types._MINIO_LOCAL_MOUNT_PREFIX", f"{root}/")
    volume = {"name": "v", "mount_path": str(root), "source": {"hostPath": {"path": str(root)}}}
    outputs = kfp.outputs()
    kfp.train(outputs, pods={"volumes": [volume]}, **DRILL)
    assert (Path(outputs.model.path).parent / "result.json").is_file()
    assert not list(kfp.opened(kfp.root("train")).objects())
    assert "AWS_" not in kfp.manifests()


def test_a_retry_of_the_task_goes_on_from_the_checkpoint_in_the_store(kfp: Kfp) -> None:
    failing = {**DRILL, "parameters": {"how": "raise", "at_step": 15, "save_every": 5}}
    with pytest.raises(SystemExit):
        kfp.train(kfp.outputs(), **failing)
    store = kfp.opened(kfp.root("train"))
    assert complete(store, "checkpoints") == ["10", "5"]
    assert json.loads(store.get("result.json"))["phase"] == "FAILED"
    again = kfp.outputs()  # of the same URI, as after "Retry" in KFP's UI
    kfp.train(again, **DRILL)
    assert again.metrics.metadata["first"] == 10
    assert json.loads(store.get("result.json"))["phase"] == "SUCCEEDED"


def test_a_set_that_is_started_again_goes_on_from_the_store(kfp: Kfp) -> None:
    killed = {"how": "kill", "at_step": 15, "save_every": 5, "step_seconds": 0.1}
    outputs = kfp.outputs()
    kfp.train(outputs, **{**DRILL, "parameters": killed, "max_restarts": 1})
    result = json.loads(kfp.opened(kfp.root("train")).get("result.json"))
    assert (result["phase"], result["attempts"]) == ("SUCCEEDED", 2)
    assert outputs.metrics.metadata["first"] == 10


def test_a_sweep_hands_on_the_best_model_where_its_trial_wrote_it(kfp: Kfp) -> None:
    outputs = entry.SweepOutputs(
        model=kfp.artifact(dsl.Model, "sweep", "model"),
        metrics=kfp.artifact(dsl.Metrics, "sweep", "metrics"),
        leaderboard=kfp.local(dsl.HTML, "leaderboard"),
        trials_table=kfp.local(dsl.Dataset, "trials"),
    )
    best = entry.sweep(
        outputs,
        task_config=kfp.task_config(),
        **{
            **TRAIN,
            "program": "programs.looped:train",
            "space": {"how": {"type": "choice", "values": ["well", "better"]}},
            "parameters": {"epochs": 1},
            "max_trials": 0,
            "parallel": 2,
            "direction": "maximize",
            "sampler": "grid",
            "pruner": "none",
            "min_step": 1,
            "seed": 1,
            "max_failed": 0,
            "time_budget_seconds": 0,
            "dataset_uri": "",
            "warm_start": "",
        },
    )
    assert best["how"] == "better"
    assert outputs.model.uri.startswith(f"{kfp.root('sweep')}/trials/")
    store = kfp.opened(outputs.model.uri)
    assert json.loads(store.get("parameters.json"))["how"] == "better"
    assert outputs.metrics.metadata["trials_complete"] == 2
    assert "better" in Path(outputs.leaderboard.path).read_text()
    assert SECRET_KEY not in kfp.manifests()


REFUSED = {
    "a secret that is not there": (
        {"secretRef": {"secretName": "none", "accessKeyKey": "a", "secretKeyKey": "b"}},
        "Secret none in namespace ns is not there",
    ),
    "a key that is not there": (
        {
            "secretRef": {
                "secretName": "mlpipeline-minio-artifact",
                "accessKeyKey": "accesskey",
                "secretKeyKey": "password",
            }
        },
        "has no key password",
    ),
    "no credentials": ({"fromEnv": False}, "neither fromEnv nor a secretRef"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_with_the_access_is_the_last_line(
    case: str, kfp: Kfp, capsys: pytest.CaptureFixture[str]
) -> None:
    credentials, sentence = REFUSED[case]
    kfp.tell(credentials=credentials)
    with pytest.raises(SystemExit):
        kfp.train(kfp.outputs())
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert sentence in last
    assert last.endswith(".")
    assert not kfp.server.calls("POST", "jobsets")


def test_a_key_that_the_store_does_not_know_is_said_before_a_job_is_made(
    kfp: Kfp, capsys: pytest.CaptureFixture[str]
) -> None:
    kfp.secret("mlpipeline-minio-artifact", accesskey=ACCESS_KEY, secretkey="not-the-key")
    with pytest.raises(SystemExit):
        kfp.train(kfp.outputs())
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert "refused the credentials (SignatureDoesNotMatch)" in last
    assert "not-the-key" not in last


def test_an_account_that_may_not_read_the_secret_is_told_the_role(
    kfp: Kfp, capsys: pytest.CaptureFixture[str]
) -> None:
    message = 'User "u" cannot get resource "secrets"'
    kfp.server.fail(403, method="GET", path="/secrets/", message=message)
    with pytest.raises(SystemExit) as caught:
        kfp.train(kfp.outputs())
    assert caught.value.code == 77
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert "may not get Secret mlpipeline-minio-artifact" in last
    assert "Role kfp-jax-launcher" in last


def test_keys_of_the_tasks_own_win(kfp: Kfp, monkeypatch: pytest.MonkeyPatch) -> None:
    kfp.secret("mlpipeline-minio-artifact", accesskey="nobody", secretkey="nothing")
    for name, value in kfp.store.environ().items():
        monkeypatch.setenv(name, value)
    kfp.secret("mine", a=ACCESS_KEY, b=SECRET_KEY)
    mine = {"AWS_ACCESS_KEY_ID": "mine/a", "AWS_SECRET_ACCESS_KEY": "mine/b"}
    kfp.train(kfp.outputs(), pods={"secret_env": mine}, **DRILL)
    assert complete(kfp.opened(kfp.root("train")), "checkpoints")
