"""What a launcher on a cluster must survive, on a fake cluster that really runs the pods."""

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from fakes.api_server import FakeApiServer
from fakes.clock import FastClock
from fakes.cluster import JOBSETS, PODS, RUNTIMES, TRAINJOBS, FakeCluster, make_server, pods_of
from fakes.kube_client import make_client
from kfp_jax.backends.base import JobRef
from kfp_jax.backends.cluster import ClusterBackend
from kfp_jax.backends.jobset import JobSetBackend
from kfp_jax.backends.trainer import TrainerBackend
from kfp_jax.cancellation import Cancellation
from kfp_jax.clock import Clock, SystemClock
from kfp_jax.cluster.ending import cancel_job
from kfp_jax.cluster.lookup import find_job
from kfp_jax.errors import Conflict, Forbidden, SpecError
from kfp_jax.kube.client import Client
from kfp_jax.launch import job_ref, launch
from kfp_jax.manifests.identity import Owner
from kfp_jax.names import next_attempt
from kfp_jax.pods import Pods, Volume
from kfp_jax.sinks import NullSink
from kfp_jax.spec import Limits, TrainSpec
from kfp_jax.status import JobStatus, Outcome, Phase

SPELLINGS: dict[str, Callable[[Path], str]] = {
    "up and down": lambda folder: f"{folder}/x/../out",
    "slash": lambda folder: f"{folder}/out/",
    "URI": lambda folder: f"file://{folder}/out",
    "link": lambda folder: f"{folder}/link/out",
}
KINDS = {"trainer": TRAINJOBS, "jobset": JOBSETS}
MakeBackend = Callable[..., ClusterBackend]


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with make_server() as server:
        yield server


@pytest.fixture
def cluster(server: FakeApiServer) -> Iterator[FakeCluster]:
    with FakeCluster(server) as cluster:
        yield cluster


@pytest.fixture(params=[TrainerBackend, JobSetBackend], ids=lambda kind: kind.name)
def make(server: FakeApiServer, request: pytest.FixtureRequest) -> Iterator[MakeBackend]:
    """Makes a backend as a launcher that has just started has it."""
    clients: list[Client] = []
    backends: list[ClusterBackend] = []

    def make(clock: Clock | None = None, **more: Any) -> ClusterBackend:
        clients.append(make_client(server, clock=clock or SystemClock()))
        backends.append(request.param(clients[-1], **more))
        return backends[-1]

    yield make
    for backend in backends:
        backend.close()
    for client in clients:
        client.close()


def spec(folder: Path, script: str = "true", **more: Any) -> TrainSpec:
    given = {"name": "drill", "output_uri": str(folder / "out"), "command": ("sh", "-c", script)}
    return TrainSpec(**{**given, **more})


def jobs(server: FakeApiServer, backend: ClusterBackend) -> list[dict[str, Any]]:
    return list(server.objects.get(KINDS[backend.name], {}).values())


_SUBMITTING = ("backends/cluster.py", "backends/trainer.py", "backends/jobset.py")


class Killed(BaseException):
    pass


def killed_at(step: int, act: Callable[[], object]) -> bool:
    """Runs `act` until that many lines of ours were executed; returns whether it was not over."""
    left = itertools.count(step, -1)

    def trace(frame: FrameType, event: str, _: object) -> Any:
        ours = frame.f_code.co_filename.endswith(_SUBMITTING)
        if ours and event == "line" and next(left) == 0:
            raise Killed
        return trace if ours else None

    before = sys.gettrace()  # coverage's
    sys.settrace(trace)
    try:
        act()
    except Killed:
        return True
    finally:
        sys.settrace(before)
    return False


def test_killed_at_any_moment_of_the_submit_and_started_again_there_is_one_job(
    server: FakeApiServer, make: MakeBackend, tmp_path: Path
) -> None:
    wanted = spec(tmp_path, max_restarts=1)  # with a runtime of its own
    for step in itertools.count():
        first = make()
        first.validate(wanted)
        ref = job_ref(wanted, first)
        was_killed = killed_at(step, lambda: first.submit(wanted, ref))  # noqa: B023
        after = make()
        found = after.submit(wanted, ref)
        (job,) = jobs(server, after)
        assert (found.name, found.uid) == (ref.name, job["metadata"]["uid"])
        runtimes = list(server.objects.get(RUNTIMES, {}).values())
        if after.name == "trainer":
            owners = [o["uid"] for r in runtimes for o in r["metadata"]["ownerReferences"]]
            assert owners == [found.uid]
        server.remove(*KINDS[after.name], ref.name)
        if not was_killed:
            break
    assert step > 20


@pytest.mark.parametrize("kind", ["lose_answer", "drop"])
def test_a_create_whose_answer_is_lost_makes_one_job(
    server: FakeApiServer, make: MakeBackend, tmp_path: Path, kind: str
) -> None:
    backend, wanted = make(), spec(tmp_path, max_restarts=1)
    getattr(server, kind)(method="POST", path=f"/{KINDS[backend.name][1]}")
    ref = backend.submit(wanted, job_ref(wanted, backend))
    assert [job["metadata"]["uid"] for job in jobs(server, backend)] == [ref.uid]


@pytest.mark.parametrize("taken", ["job", "jobset", "service"])
def test_what_somebody_else_has_is_not_adopted(
    server: FakeApiServer, make: MakeBackend, tmp_path: Path, taken: str
) -> None:
    backend, wanted = make(), spec(tmp_path)
    ref = job_ref(wanted, backend)
    kind = {"job": KINDS[backend.name], "jobset": JOBSETS, "service": ("v1", "services")}[taken]
    theirs = server.put(*kind, {"metadata": {"name": ref.name}, "spec": {}})
    with pytest.raises(Conflict, match=ref.name):
        backend.submit(wanted, ref)
    assert server.find(*kind, ref.name) == theirs
    assert len(server.objects.get(KINDS[backend.name], {})) <= 1


def test_a_submit_right_after_the_checks_sends_nothing_before_the_create(
    server: FakeApiServer, make: MakeBackend, tmp_path: Path
) -> None:
    backend, wanted = make(), spec(tmp_path)
    backend.validate(wanted)
    before = len(server.requests)
    backend.submit(wanted, job_ref(wanted, backend))
    assert server.requests[before].method == "POST"


def test_checks_of_long_ago_are_not_believed(
    server: FakeApiServer, make: MakeBackend, tmp_path: Path
) -> None:
    backend, wanted = make(clock=FastClock()), spec(tmp_path)
    backend.validate(wanted)
    time.sleep(0.1)  # ten seconds by that clock
    ref = job_ref(wanted, backend)
    server.put("v1", "services", {"metadata": {"name": ref.name}, "spec": {}})
    with pytest.raises(Conflict, match="not of this task"):
        backend.submit(wanted, ref)
    assert jobs(server, backend) == []


def test_a_job_that_is_gone_since_the_checks_is_made_anew(
    server: FakeApiServer, make: MakeBackend, tmp_path: Path
) -> None:
    backend, wanted = make(), spec(tmp_path)
    first = make().submit(wanted, job_ref(wanted, backend))
    backend.validate(wanted)
    server.remove(*KINDS[backend.name], first.name)
    again = backend.submit(wanted, job_ref(wanted, backend))
    assert [job["metadata"]["uid"] for job in jobs(server, backend)] == [again.uid]
    assert (again.name, again.uid != first.uid) == (first.name, True)


def test_a_name_that_is_free_since_the_checks_is_used(
    server: FakeApiServer, make: MakeBackend, tmp_path: Path
) -> None:
    backend, wanted = make(), spec(tmp_path)
    ref = job_ref(wanted, backend)
    server.put("v1", "services", {"metadata": {"name": ref.name}, "spec": {}})
    server.add_pod("left", **{"jobset.sigs.k8s.io/jobset-name": ref.name})
    backend.validate(wanted)
    server.remove("v1", "services", ref.name)
    server.remove("v1", "pods", "left")
    assert backend.submit(wanted, ref).name == ref.name


def test_what_was_checked_for_one_spec_is_no_base_for_another(
    server: FakeApiServer, make: MakeBackend, tmp_path: Path
) -> None:
    backend = make()
    checked, wanted = (spec(tmp_path, max_restarts=restarts) for restarts in (1, 3))
    backend.validate(checked)
    backend.submit(wanted, job_ref(wanted, backend))
    kind = RUNTIMES if backend.name == "trainer" else JOBSETS
    (made,) = server.objects[kind].values()
    jobset = made["spec"]["template"]["spec"] if backend.name == "trainer" else made["spec"]
    assert jobset["failurePolicy"]["maxRestarts"] == 3


@pytest.mark.parametrize("spell", SPELLINGS.values(), ids=SPELLINGS)
def test_a_folder_has_one_job_however_it_is_spelled(
    server: FakeApiServer, make: MakeBackend, tmp_path: Path, spell: Callable[[Path], str]
) -> None:
    first = spec(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    again = spec(tmp_path, output_uri=spell(tmp_path))
    backend, other = make(), make()
    ref = backend.submit(first, job_ref(first, backend))
    with pytest.raises(Conflict, match=f"{ref.name} runs with another spec"):
        other.submit(again, job_ref(again, other))
    assert len(jobs(server, backend)) == 1


@pytest.mark.parametrize("spell", SPELLINGS.values(), ids=SPELLINGS)
def test_what_is_checked_is_what_is_submitted_however_the_folder_is_spelled(
    server: FakeApiServer, make: MakeBackend, tmp_path: Path, spell: Callable[[Path], str]
) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    backend, wanted = make(), spec(tmp_path, output_uri=spell(tmp_path))
    backend.validate(wanted)
    (dry,) = server.calls("POST", dryRun="All")
    before = len(server.requests)
    backend.submit(wanted, job_ref(wanted, backend))
    (job,) = jobs(server, backend)
    assert dry.body["metadata"]["name"] == job["metadata"]["name"]
    assert server.requests[before].method == "POST"


def test_a_job_of_another_run_is_not_adopted(
    server: FakeApiServer, make: MakeBackend, tmp_path: Path
) -> None:
    wanted = spec(tmp_path)
    owners = [Owner("argoproj.io/v1alpha1", "Workflow", "w", uid) for uid in ("1", "2")]
    first, second = make(owner=owners[0]), make(owner=owners[1])
    first.submit(wanted, job_ref(wanted, first))
    with pytest.raises(Conflict, match="not of this task"):
        second.submit(wanted, job_ref(wanted, second))


def test_an_owner_in_another_namespace_owns_nothing(
    server: FakeApiServer, make: MakeBackend, tmp_path: Path
) -> None:
    backend = make(owner=Owner("argoproj.io/v1alpha1", "Workflow", "w", "1"), namespace="other")
    wanted = spec(tmp_path)
    backend.submit(wanted, job_ref(wanted, backend))
    (job,) = jobs(server, backend)
    assert not job["metadata"].get("ownerReferences")


@pytest.mark.parametrize(
    ("modes", "nodes", "warned"),
    [
        (["ReadWriteOnce"], 2, True),
        (["ReadWriteOncePod"], 2, True),
        (["ReadWriteOnce"], 1, False),
        (["ReadWriteOnce", "ReadWriteMany"], 2, False),
    ],
)
def test_a_volume_for_one_machine_is_told(
    server: FakeApiServer,
    make: MakeBackend,
    tmp_path: Path,
    modes: list[str],
    nodes: int,
    warned: bool,
) -> None:
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": modes}}
    server.put("v1", "persistentvolumeclaims", claim)
    source = {"persistentVolumeClaim": {"claimName": "data"}}
    pods = Pods(volumes=(Volume(name="v", mount_path="/v", source=source),))
    found = make().validate(spec(tmp_path, num_nodes=nodes, pods=pods))
    assert [f"claim data with access mode {', '.join(modes)}" in text for text in found] == (
        [True] if warned else []
    )


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_claim_that_is_not_there_is_told(
    server: FakeApiServer, make: MakeBackend, tmp_path: Path, nodes: int
) -> None:
    wanted = spec(tmp_path, num_nodes=nodes, output_uri="pvc://data/out")
    (warning,) = make().validate(wanted)
    assert "is the claim data, which is not in namespace ns: the nodes do not start" in warning
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteMany"]}}
    server.put("v1", "persistentvolumeclaims", claim)
    assert make().validate(wanted) == []


def test_a_claim_that_may_not_be_read_is_left_alone(
    server: FakeApiServer, make: MakeBackend, tmp_path: Path
) -> None:
    message = 'User "u" cannot get resource "persistentvolumeclaims"'
    server.fail(403, path="/persistentvolumeclaims/", message=message)
    assert make().validate(spec(tmp_path, output_uri="pvc://data/out")) == []


@pytest.mark.usefixtures("cluster")
def test_after_a_failed_attempt_comes_the_next_name(make: MakeBackend, tmp_path: Path) -> None:
    first, wanted = make(), spec(tmp_path, "exit 1")
    ref = job_ref(wanted, first)
    first.submit(wanted, ref)
    assert last(first, ref).phase is Phase.FAILED
    second = make()
    again = second.submit(wanted, ref)
    assert again.name == next_attempt(ref.name)
    second.delete(again)


@pytest.mark.usefixtures("cluster")
def test_a_job_that_has_done_its_work_is_found_and_not_run_again(
    make: MakeBackend, tmp_path: Path
) -> None:
    first, wanted = make(), spec(tmp_path, f"echo ran >> {tmp_path}/ran; echo done")
    ref = job_ref(wanted, first)
    first.submit(wanted, ref)
    assert last(first, ref).phase is Phase.SUCCEEDED
    outcome = launch(wanted, make())
    assert outcome.phase is Phase.SUCCEEDED
    assert (tmp_path / "ran").read_text() == "ran\n"


@pytest.mark.usefixtures("cluster")
def test_what_is_being_deleted_is_waited_for(
    make: MakeBackend, server: FakeApiServer, tmp_path: Path
) -> None:
    first, wanted = make(), spec(tmp_path, "trap '' TERM; sleep 60")
    ref = job_ref(wanted, first)
    first.submit(wanted, ref)
    server.wait_for(
        lambda: any(p["status"]["phase"] == "Running" for p in pods_of(server, ref.name))
    )
    first.cancel(ref)
    second = make()
    again = second.submit(wanted, ref)
    assert again.name == next_attempt(ref.name)
    assert not any(pod["status"]["phase"] == "Running" for pod in pods_of(server, ref.name))
    second.delete(again)


def last(backend: ClusterBackend, ref: JobRef) -> JobStatus:
    return list(backend.watch(ref))[-1]


class Following:
    """A launch in a thread of its own."""

    def __init__(self, wanted: TrainSpec, backend: ClusterBackend) -> None:
        self.cancellation = Cancellation()
        self.lines: list[str] = []
        self.notes: list[str] = []
        self.phases: list[Phase] = []
        self._outcome: list[Outcome] = []
        sink = NullSink()
        sink.log = lambda line: self.lines.append(line.text)  # type: ignore[method-assign]
        sink.note = self.notes.append  # type: ignore[method-assign]
        sink.status = lambda _, s: self.phases.append(s.phase)  # type: ignore[method-assign]
        self._thread = threading.Thread(
            target=lambda: self._outcome.append(
                launch(wanted, backend, sink=sink, cancellation=self.cancellation)
            )
        )
        self._thread.start()

    def heard(self, text: str) -> None:
        end = time.monotonic() + 10
        while text not in self.lines:
            assert time.monotonic() < end, self.lines
            time.sleep(0.01)

    def outcome(self) -> Outcome:
        self._thread.join(timeout=30)
        assert not self._thread.is_alive()
        return self._outcome[0]


COUNTING = "for i in $(seq 60); do echo $i; sleep 0.02; done"


def quiet(server: FakeApiServer) -> None:
    server.down()
    time.sleep(0.5)
    server.up()


def cut(server: FakeApiServer) -> None:
    for _ in range(8):
        server.break_connections()
        time.sleep(0.1)


def forget(server: FakeApiServer) -> None:
    server.compact()
    server.end_streams()


def freeze(server: FakeApiServer) -> None:
    server.pause()
    time.sleep(0.5)
    server.resume()


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("trouble", [quiet, cut, forget, freeze], ids=lambda do: do.__name__)
def test_trouble_with_the_server_loses_no_line_and_no_end(
    make: MakeBackend, server: FakeApiServer, tmp_path: Path, trouble: Callable[..., None]
) -> None:
    following = Following(spec(tmp_path, COUNTING), make())
    following.heard("5")
    trouble(server)
    outcome = following.outcome()
    assert outcome.phase is Phase.SUCCEEDED, outcome.message
    assert following.lines == [str(number) for number in range(1, 61)]
    assert outcome.attempts == 1


@pytest.mark.usefixtures("cluster")
def test_nothing_is_left_behind(make: MakeBackend, server: FakeApiServer, tmp_path: Path) -> None:
    backend = make()
    outcome = launch(spec(tmp_path, max_restarts=1), backend)
    assert outcome.phase is Phase.SUCCEEDED
    kinds = (TRAINJOBS, JOBSETS, RUNTIMES, PODS)
    server.wait_for(lambda: not any(server.objects.get(kind) for kind in kinds))


@pytest.mark.usefixtures("cluster")
def test_a_job_that_somebody_deletes_is_lost(
    make: MakeBackend, server: FakeApiServer, tmp_path: Path
) -> None:
    backend, wanted = make(), spec(tmp_path, "echo up; sleep 60")
    following = Following(wanted, backend)
    following.heard("up")
    server.remove(*KINDS[backend.name], job_ref(wanted, backend).name, alone=True)
    outcome = following.outcome()
    assert outcome.phase is Phase.LOST
    assert "deleted by somebody else" in outcome.message


@pytest.mark.usefixtures("cluster")
def test_a_job_that_somebody_cancels_from_the_command_line_is_cancelled(
    make: MakeBackend, server: FakeApiServer, tmp_path: Path
) -> None:
    backend, wanted = make(), spec(tmp_path, "echo up; sleep 60")
    following = Following(wanted, backend)
    following.heard("up")
    other = make_client(server)
    job, _ = find_job(other, "ns", job_ref(wanted, backend).name)
    cancel_job(other, job)
    outcome = following.outcome()
    assert (outcome.phase, outcome.reason) == (Phase.CANCELLED, "cancelled")
    other.close()


@pytest.mark.usefixtures("cluster")
def test_a_pod_that_somebody_deletes_is_named(
    make: MakeBackend, server: FakeApiServer, tmp_path: Path
) -> None:
    backend, wanted = make(), spec(tmp_path, "echo up; sleep 60", num_nodes=2)
    following = Following(wanted, backend)
    following.heard("up")
    (name,) = (
        pod["metadata"]["name"]
        for pod in pods_of(server, job_ref(wanted, backend).name)
        if "-node-0-1-" in pod["metadata"]["name"]
    )
    server.finalize(*PODS, name, grace=30)
    outcome = following.outcome()
    assert (outcome.phase, outcome.failed_process) == (Phase.FAILED, 1)
    assert "the pod of process 1 was deleted by somebody" in outcome.message


@pytest.mark.parametrize("rights", [True, False], ids=["may-delete-pods", "may-not"])
def test_a_failure_is_told_though_another_process_hangs(
    make: MakeBackend, server: FakeApiServer, tmp_path: Path, rights: bool
) -> None:
    if not rights:
        server.fail(403, method="DELETE", path="/pods/", times=10, message="no")
    hang = "trap '' TERM; while :; do sleep 0.1; done"
    script = f'[ "$JAX_PROCESS_ID" = 1 ] || {{ {hang}; }}; echo up; exit 7'
    grace = 20 if rights else 2
    with FakeCluster(server, grace=grace):
        began = time.monotonic()
        outcome = launch(spec(tmp_path, script, num_nodes=2), make())
    assert "process 1 exited with code 7" in outcome.message
    assert time.monotonic() - began < 5


def test_cancelled_it_saves_and_is_gone(
    make: MakeBackend, server: FakeApiServer, cluster: FakeCluster, tmp_path: Path
) -> None:
    script = "trap 'sleep 0.1; echo saved; exit 0' TERM; echo up; while :; do sleep 0.01; done"
    following = Following(spec(tmp_path, script), make())
    following.heard("up")
    following.cancellation.request()
    outcome = following.outcome()
    assert outcome.phase is Phase.CANCELLED
    assert following.lines == ["up", "saved"]
    assert not cluster.running
    assert not server.objects[JOBSETS]


def test_the_delete_follows_the_wish_at_once(
    make: MakeBackend, server: FakeApiServer, cluster: FakeCluster, tmp_path: Path
) -> None:
    following = Following(spec(tmp_path, "echo up; sleep 60"), make())
    following.heard("up")
    following.cancellation.request()
    server.wait_for(lambda: bool(server.calls("DELETE")), seconds=0.5)
    following.outcome()
    assert server.calls("DELETE")[0].body["preconditions"]["uid"]


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("InvalidImageName", "process 0 has no valid name: couldn't parse image name"),
        ("ErrImagePull", "process 0 cannot be pulled: couldn't parse image name"),
    ],
)
def test_what_keeps_a_job_from_starting_is_said(
    make: MakeBackend, cluster: FakeCluster, tmp_path: Path, reason: str, said: str
) -> None:
    waiting = {"reason": reason, "message": "couldn't parse image name"}
    cluster.pod_status = {
        "phase": "Pending",
        "containerStatuses": [{"name": "node", "state": {"waiting": waiting}}],
    }
    outcome = launch(spec(tmp_path, limits=Limits(start=0.5)), make())
    assert outcome.reason == "start-timeout"
    assert said in outcome.message
    assert outcome.failed_process == 0


def test_without_rights_nothing_is_started(
    make: MakeBackend, server: FakeApiServer, tmp_path: Path
) -> None:
    server.allowed = lambda asked: (asked["verb"], asked["resource"]) != ("watch", "pods")
    with pytest.raises(Forbidden, match="may not watch pods in namespace ns; have it bound"):
        launch(spec(tmp_path), make())
    assert not jobs(server, make())


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("code", "phase", "message"),
    [(0, Phase.SUCCEEDED, ""), (3, Phase.FAILED, "process 0 exited with code 3")],
)
def test_without_logs_a_job_is_trained_and_that_is_said(
    make: MakeBackend,
    server: FakeApiServer,
    tmp_path: Path,
    code: int,
    phase: Phase,
    message: str,
) -> None:
    server.allowed = lambda asked: asked.get("subresource") != "log"
    server.fail(403, times=99, path="/log", message='User "u" cannot get resource "pods/log"')
    notes: list[str] = []

    class Sink(NullSink):
        def note(self, text: str) -> None:
            notes.append(text)

    script, limits = f"sleep 0.7; exit {code}", Limits(stall=0.3)
    wanted = spec(tmp_path, script, objective="loss", limits=limits)
    outcome = launch(wanted, make(), sink=Sink())
    assert outcome.phase is phase, outcome.message
    assert message in outcome.message
    assert len(notes) == 1
    assert "may not get pods/log in namespace ns" in notes[0]
    assert not server.calls(path="/log")


def test_without_events_a_job_runs_and_that_is_said(
    make: MakeBackend, server: FakeApiServer, tmp_path: Path
) -> None:
    server.allowed = lambda asked: asked["resource"] != "events"
    (warning,) = make().validate(spec(tmp_path))
    assert "may not list events" in warning


@pytest.mark.parametrize("has_kueue", [False, True])
def test_a_queue_without_kueue_is_told(
    server: FakeApiServer, make: MakeBackend, tmp_path: Path, has_kueue: bool
) -> None:
    if has_kueue:
        server.served.add(("kueue.x-k8s.io/v1beta2", "workloads"))
    found = make().validate(spec(tmp_path, pods=Pods(queue="team-a")))
    assert len(found) == (0 if has_kueue else 1)
    assert all("no Kueue, so the job does not wait in queue team-a but" in text for text in found)


@pytest.mark.usefixtures("cluster")
def test_a_run_says_once_that_there_is_no_kueue(make: MakeBackend, tmp_path: Path) -> None:
    notes: list[str] = []

    class Sink(NullSink):
        def note(self, text: str) -> None:
            notes.append(text)

    outcome = launch(spec(tmp_path, pods=Pods(queue="team-a")), make(), sink=Sink())
    assert outcome.phase is Phase.SUCCEEDED
    assert [text for text in notes if "Kueue" in text] == notes[:1]


def test_a_refused_dry_run_is_the_users_to_mend(
    make: MakeBackend, server: FakeApiServer, tmp_path: Path
) -> None:
    server.fail(422, method="POST", path="dryRun", message="spec.x: unknown field")
    with pytest.raises(SpecError, match="unknown field"):
        make().validate(spec(tmp_path))


def test_a_cluster_without_the_kind_is_refused(tmp_path: Path) -> None:
    with FakeApiServer() as server:
        client = make_client(server)
        for backend in (TrainerBackend(client), JobSetBackend(client)):
            with pytest.raises(SpecError, match=r"has no .*; have .* installed, or choose"):
                backend.validate(spec(tmp_path))
        client.close()
