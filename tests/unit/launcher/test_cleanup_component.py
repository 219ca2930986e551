"""The cleanup component, as KFP calls it and as it compiles."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from fakes.api_server import FakeApiServer
from fakes.cluster_objects import trainjob
from fakes.kube_client import JOBS
from fakes.kubeconfig import write_kubeconfig
from kfp import compiler, dsl
from kfp_jax.components import cleanup, prepare_data

POD = {"metadata": {"name": "task-1", "labels": {"pipeline/runid": "run-7"}}}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    with FakeApiServer(JOBS) as server:
        monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(server, tmp_path)))
        monkeypatch.delenv("KFP_POD_NAME", raising=False)
        yield server


def test_on_one_machine_nothing_is_left() -> None:
    assert cleanup.python_func(backend="local") == 0


def test_it_deletes_what_its_own_run_left(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.put("v1", "pods", POD)
    server.put(*JOBS, trainjob(created="2026-01-02T03:04:05Z"))
    monkeypatch.setenv("KFP_POD_NAME", "task-1")
    assert cleanup.python_func(backend="trainer") == 1
    assert "TrainJob mnist-0a1b2c3d-1 was deleted: no launcher" in capsys.readouterr().out
    assert cleanup.python_func(run_id="run-8", backend="trainer") == 0


def test_a_task_that_does_not_know_its_run_says_what_to_give(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cleanup.python_func(backend="trainer")
    assert ended.value.code == 2
    assert "give run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER" in capsys.readouterr().err


def test_it_compiles_as_an_exit_task_that_is_never_cached(tmp_path: Path) -> None:
    @dsl.pipeline(name="cleaned")
    def cleaned() -> None:
        with dsl.ExitHandler(cleanup()):
            prepare_data()

    path = tmp_path / "cleaned.yaml"
    compiler.Compiler().compile(cleaned, str(path))
    tasks = next(iter(yaml.safe_load_all(path.read_text())))["root"]["dag"]["tasks"]
    assert tasks["cleanup"]["triggerPolicy"] == {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}
    assert not tasks["cleanup"]["cachingOptions"].get("enableCache", False)
