"""Whole jobs whose output is in a real S3 server."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from fakes.s3_server import ACCESS_KEY, READ_ONLY_KEY, WRITER_KEY, S3Server
from kfp_jax import job_folder, storage
from kfp_jax.backends.local import LocalBackend
from kfp_jax.errors import SpecError
from kfp_jax.launch import launch
from kfp_jax.spec import TrainSpec
from kfp_jax.status import Outcome, Phase
from kfp_jax_store import Store, complete, is_complete, open_store

pytestmark = pytest.mark.integration

MNIST = {
    "program": "kfp_jax_runtime.mnist",
    "parameters": {"epochs": 1, "channels": [4], "hidden": 8, "checkpoint_every_steps": 20},
}


def run(output: str, **changes: Any) -> Outcome:
    spec = TrainSpec(name="train", output_uri=output, **{**MNIST, **changes})
    return launch(spec, LocalBackend())


def opened(uri: str) -> Store:
    return open_store(uri, os.environ)


@pytest.fixture
def prepared(bucket: str) -> str:
    """The URI of MNIST's bundled subset, prepared by a job whose output is the store."""
    uri = f"s3://{bucket}/data"
    program = {"program": "kfp_jax_runtime.data.prepare", "parameters": {"source": "bundled"}}
    assert run(uri, **program).phase is Phase.SUCCEEDED
    return f"{uri}/dataset"


def test_prepare_train_evaluate_with_all_of_it_in_the_store(bucket: str, prepared: str) -> None:
    output = f"s3://{bucket}/train"
    trained = run(output, dataset_uri=prepared, num_nodes=2, objective="accuracy")
    assert trained.phase is Phase.SUCCEEDED, trained
    assert trained.model_uri == f"{output}/model"
    store = opened(output)
    assert is_complete(store, "model")
    assert complete(store, "checkpoints")
    assert json.loads(store.get("result.json")) == trained.to_json()
    assert len(store.get("history.jsonl").splitlines()) > 1
    with storage.results(output) as folder:
        job_folder.write_report(folder)
    assert b"<svg" in store.get("report.html")

    scored = run(
        f"s3://{bucket}/evaluate",
        program="kfp_jax_runtime.evaluate",
        parameters={"model": trained.model_uri, "split": "test"},
        dataset_uri=prepared,
    )
    assert scored.phase is Phase.SUCCEEDED, scored
    assert scored.metrics["accuracy"] == pytest.approx(trained.metrics["accuracy"], abs=1e-3)
    assert storage.read_result(scored.output_uri, storage.EVALUATION)["classes"]


def test_nothing_of_a_job_stays_on_this_machine(
    bucket: str, prepared: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert run(f"s3://{bucket}/train", dataset_uri=prepared).phase is Phase.SUCCEEDED
    left = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"]
    assert all("kfp-jax-cache-" in str(path) for path in left), left


BAD = {
    "secret": ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "refused the credentials"),
    "key": ({"AWS_ACCESS_KEY_ID": "nobody"}, "refused the credentials"),
    "reader": ({"AWS_ACCESS_KEY_ID": READ_ONLY_KEY}, "does not let these credentials write"),
    "address": (
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
        "cannot be reached at http://127.0.0.1:9",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_the_store_refuses_is_said_before_anything_starts(
    case: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ, sentence = BAD[case]
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SpecError, match=sentence) as caught:
        run(f"s3://{bucket}/train")
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)
    assert "a-secret-of-the-tests" not in str(caught.value)


@pytest.mark.parametrize("key", [ACCESS_KEY, WRITER_KEY])
def test_a_bucket_that_is_not_there_is_named(
    key: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    with pytest.raises(SpecError, match=f"create '{bucket}-not' or name another"):
        run(f"s3://{bucket}-not/train")


def test_a_server_without_tls_is_told_from_one_that_is_not_there(
    bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint.replace("http:", "https:"))
    with pytest.raises(SpecError, match="its TLS certificate is not trusted, or it does not speak"):
        run(f"s3://{bucket}/train")
