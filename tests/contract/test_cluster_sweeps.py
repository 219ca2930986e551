"""Sweeps on a fake cluster that really runs the pods."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.api_server import FakeApiServer
from fakes.cluster import FakeCluster, make_server
from fakes.kube_client import make_client
from kfp_jax.backends.cluster import ClusterBackend
from kfp_jax.backends.jobset import JobSetBackend
from kfp_jax.backends.trainer import TrainerBackend
from kfp_jax.cancellation import Cancellation
from kfp_jax.clock import SystemClock
from kfp_jax.cluster.journal import ConfigMapJournal
from kfp_jax.kube.client import Client
from kfp_jax.sinks import NullSink
from kfp_jax.spec import TrainSpec
from kfp_jax.sweep import Sampler, Space, Study, TrialState, choice
from kfp_jax.sweep.end import SweepEnd
from kfp_jax.sweep.spec import SweepSpec
from kfp_jax.sweep_news import SweepNews
from kfp_jax.tuning import run_sweep

SCORE = '@kfp-jax {"v": 1, "kind": "result", "time": 0, "values": {"accuracy": 0.5}}'


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with make_server() as server, FakeCluster(server):
        yield server


@pytest.fixture
def client(server: FakeApiServer) -> Iterator[Client]:
    client = make_client(server, clock=SystemClock())
    yield client
    client.close()


@pytest.fixture(params=[TrainerBackend, JobSetBackend], ids=lambda kind: kind.name)
def backend(client: Client, request: pytest.FixtureRequest) -> Iterator[ClusterBackend]:
    backend: ClusterBackend = request.param(client, labels={"study": "s"})
    yield backend
    backend.close()


def sweep(folder: Path, *, trials: int = 12, script: str = f"echo '{SCORE}'") -> SweepSpec:
    job = TrainSpec(
        name="sweep", command=("sh", "-c", script), output_uri=str(folder), objective="accuracy"
    )
    space = Space.from_json({"x": choice(*range(trials))})
    study = Study(space=space, sampler=Sampler.GRID, max_trials=trials)
    return SweepSpec(job=job, study=study, parallel=4, max_failed=trials)


def run(
    spec: SweepSpec,
    backend: ClusterBackend,
    client: Client,
    cancellation: Cancellation | None = None,
) -> SweepEnd:
    return run_sweep(
        spec,
        backend,
        ConfigMapJournal(client, "ns", "sweep-1", spec.identity()),
        sink=SweepNews(spec, NullSink()),
        cancellation=cancellation or Cancellation(),
    )


def test_one_watch_of_each_kind_serves_all_trials(
    server: FakeApiServer, client: Client, backend: ClusterBackend, tmp_path: Path
) -> None:
    end = run(sweep(tmp_path), backend, client)
    assert {trial.state for trial in end.trials} == {TrialState.COMPLETE}
    assert len(end.trials) == 12
    watches = [call.path for call in server.calls("GET", watch="true")]
    assert len(watches) == len({*backend.watched}) + 1


def test_a_launcher_without_its_folder_goes_on_by_the_cluster(
    client: Client, backend: ClusterBackend, tmp_path: Path
) -> None:
    script = f"echo run >> {tmp_path}/$(basename $KFP_JAX_OUTPUT_URI); sleep 0.2; echo '{SCORE}'"
    spec = sweep(tmp_path / "sweep", script=script)
    cancellation = Cancellation()
    threading.Timer(1.0, cancellation.request).start()
    first = run(spec, backend, client, cancellation)
    kept = [trial for trial in first.trials if trial.state is TrialState.COMPLETE]
    assert 0 < len(kept) < 12
    end = run(spec, backend, client)
    assert [trial.number for trial in end.trials] == list(range(12))
    assert {trial.state for trial in end.trials} == {TrialState.COMPLETE}
    for trial in kept:
        assert (tmp_path / f"{trial.number:04d}").read_text() == "run\n"
        assert json.dumps(end.trials[trial.number].to_json()) == json.dumps(trial.to_json())
