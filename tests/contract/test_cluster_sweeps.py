"""Sweeps on a fake cluster that really runs the pods."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
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
from kfp_jax.launch import job_ref
from kfp_jax.sinks import NullSink
from kfp_jax.spec import TrainSpec
from kfp_jax.status import Phase
from kfp_jax.sweep import Sampler, Space, Study, Trial, TrialState, choice
from kfp_jax.sweep.end import SweepEnd
from kfp_jax.sweep.spec import SweepSpec
from kfp_jax.sweep_news import SweepNews
from kfp_jax.tuning import run_sweep, study_name

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
    sink: NullSink | None = None,
) -> SweepEnd:
    return run_sweep(
        spec,
        backend,
        ConfigMapJournal(client, "ns", "sweep-1", spec.identity()),
        sink=SweepNews(spec, sink or NullSink()),
        cancellation=cancellation or Cancellation(),
    )


class CancelsAfterFour(NullSink):
    def __init__(self, cancellation: Cancellation) -> None:
        self._cancellation = cancellation
        self._complete = 0

    def note(self, text: str) -> None:
        self._complete += " complete in " in text
        if self._complete == 4:
            self._cancellation.request()


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
    first = run(spec, backend, client, cancellation, CancelsAfterFour(cancellation))
    kept = [trial for trial in first.trials if trial.state is TrialState.COMPLETE]
    assert 0 < len(kept) < 12
    end = run(spec, backend, client)
    assert [trial.number for trial in end.trials] == list(range(12))
    assert {trial.state for trial in end.trials} == {TrialState.COMPLETE}
    for trial in kept:
        assert (tmp_path / f"{trial.number:04d}").read_text() == "run\n"
        assert json.dumps(end.trials[trial.number].to_json()) == json.dumps(trial.to_json())


def test_a_sweep_rides_out_an_api_server_that_is_gone_for_a_while(
    server: FakeApiServer, client: Client, backend: ClusterBackend, tmp_path: Path
) -> None:
    def outage() -> None:
        server.down()
        time.sleep(1.0)
        server.up()

    timer = threading.Timer(0.5, outage)
    timer.start()
    end = run(sweep(tmp_path, script=f"sleep 0.3; echo '{SCORE}'"), backend, client)
    timer.join()
    assert {trial.state for trial in end.trials} == {TrialState.COMPLETE}
    assert len(end.trials) == 12


def test_two_sweeps_at_once_in_one_namespace_keep_apart(
    server: FakeApiServer, client: Client, tmp_path: Path
) -> None:
    ends: dict[str, SweepEnd] = {}

    def one(name: str) -> None:
        backend = TrainerBackend(client, labels={"study": name})
        spec = sweep(tmp_path / name, trials=6)
        journal = ConfigMapJournal(client, "ns", name, spec.identity())
        news = SweepNews(spec, NullSink())
        ends[name] = run_sweep(spec, backend, journal, sink=news, cancellation=Cancellation())
        backend.close()

    threads = [threading.Thread(target=one, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in ("a", "b"):
        assert {trial.state for trial in ends[name].trials} == {TrialState.COMPLETE}
        assert len(ends[name].trials) == 6
        assert all(f"/{name}/" in trial.output_uri for trial in ends[name].trials)


def test_a_trial_whose_job_is_deleted_by_hand_costs_itself(
    server: FakeApiServer, client: Client, backend: ClusterBackend, tmp_path: Path
) -> None:
    spec = sweep(tmp_path, trials=5, script=f"sleep 1; echo '{SCORE}'")
    gone: list[str] = []

    def delete_one() -> None:
        (ref, *_) = backend.find({"study": "s"})
        gone.append(ref.name)
        client.delete(backend.job, "ns", ref.name)

    timer = threading.Timer(0.5, delete_one)
    timer.start()
    end = run(spec, backend, client)
    timer.join()
    lost = [trial for trial in end.trials if trial.state is TrialState.FAILED]
    assert [(trial.job, trial.reason) for trial in lost] == [(gone[0], "lost")]
    assert len(end.trials) == 5


def left_running(
    spec: SweepSpec, backend: ClusterBackend, client: Client, numbers: range
) -> dict[str, str]:
    """Leaves jobs and a journal as a launcher does that is killed while these trials run."""
    journal = ConfigMapJournal(client, "ns", "sweep-1", spec.identity())
    uids = {}
    for number in numbers:
        job = spec.trial_job(number, {"x": number})
        journal.write(Trial(number, {"x": number}, output_uri=job.output_uri))
        ref = backend.submit(job, job_ref(job, backend))
        uids[ref.name] = ref.uid
    return uids


@pytest.mark.parametrize("kind", [TrainerBackend, JobSetBackend], ids=lambda kind: kind.name)
def test_all_jobs_that_run_are_followed_by_a_sweep_that_goes_on_with_fewer_at_once(
    client: Client, kind: type[ClusterBackend], tmp_path: Path
) -> None:
    runs = f"echo run >> {tmp_path}/$(basename $KFP_JAX_OUTPUT_URI); sleep 3; echo '{SCORE}'"
    spec = replace(sweep(tmp_path / "sweep", trials=5, script=runs), parallel=1)
    with closing(kind(client, labels={"study": study_name(spec.job)})) as killed:
        uids = left_running(spec, killed, client, range(3))
    with closing(kind(client, labels={"study": study_name(spec.job)})) as backend:
        end = run(spec, backend, client)
    assert {trial.state for trial in end.trials} == {TrialState.COMPLETE}
    # All three were followed at once: none began after another had ended.
    first = end.trials[:3]
    assert max(t.started for t in first) < min(t.started + t.seconds for t in first)
    assert {trial.job for trial in first} == {*uids}
    for number in range(5):
        assert (tmp_path / f"{number:04d}").read_text() == "run\n"


@pytest.mark.parametrize("kind", [TrainerBackend, JobSetBackend], ids=lambda kind: kind.name)
def test_what_a_killed_sweep_has_left_is_no_result_of_the_next_in_its_folder(
    client: Client, kind: type[ClusterBackend], tmp_path: Path
) -> None:
    runs = f"echo run >> {tmp_path}/$(basename $KFP_JAX_OUTPUT_URI); echo '{SCORE}'"
    spec = sweep(tmp_path / "sweep", trials=3, script=runs)
    with closing(kind(client, labels={"study": study_name(spec.job)})) as killed:
        for number in range(2):
            job = spec.trial_job(number, {"x": number})
            ref = killed.submit(job, job_ref(job, killed))
            assert [*killed.watch(ref)][-1].phase is Phase.SUCCEEDED
    with closing(kind(client, labels={"study": study_name(spec.job)})) as backend:
        end = run(spec, backend, client)
    assert {trial.state for trial in end.trials} == {TrialState.COMPLETE}
    assert [(tmp_path / f"{n:04d}").read_text() for n in range(3)] == ["run\nrun\n"] * 2 + ["run\n"]
