"""What of an ended run is removed."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from fakes.api_server import FakeApiServer
from fakes.clock import ManualClock
from fakes.cluster_objects import NOW, at, trainjob
from fakes.kube_client import JOBS, make_client
from kfp_jax.cluster.ending import clean_up_behind, judge, orphans
from kfp_jax.cluster.jobs import read_trainjob

MINUTE = timedelta(minutes=1)
RENEWED = "kfp-jax/renewed-at"


@pytest.mark.parametrize(
    ("created", "renewed", "followed", "removed"),
    [
        pytest.param(60, 1, False, False, id="its-launcher-renews"),
        pytest.param(60, 5, False, True, id="its-launcher-is-silent"),
        pytest.param(60, None, False, True, id="never-renewed-and-old"),
        pytest.param(1, None, False, False, id="just-made"),
        pytest.param(60, 1, True, True, id="renewed-but-the-run-is-over"),
    ],
)
def test_a_job_is_left_when_nobody_follows_it(
    created: int, renewed: int | None, followed: bool, removed: bool
) -> None:
    annotations = {RENEWED: at(renewed * MINUTE)} if renewed else {}
    job = read_trainjob(trainjob(created=at(created * MINUTE), annotations=annotations), None, ())
    assert judge(job, NOW, followed=followed).removed is removed


def test_a_runtime_without_a_job_is_left_when_no_job_can_come() -> None:
    made = {"old": at(10 * MINUTE), "new": at(timedelta(seconds=5)), "kept": at(10 * MINUTE)}
    runtimes = [
        {"metadata": {"name": name, "creationTimestamp": when}} for name, when in made.items()
    ]
    assert orphans(runtimes, {"kept"}, NOW, followed=False) == ["old"]
    assert orphans(runtimes, {"kept"}, NOW, followed=True) == ["old", "new"]


class RunClock(ManualClock):
    """Begins at NOW, and calls what happens while somebody sleeps."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.time = NOW.timestamp()
        self.meanwhile = meanwhile

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.meanwhile()


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with FakeApiServer(JOBS) as server:
        yield server


def put(server: FakeApiServer, renewed: str) -> None:
    server.put(*JOBS, trainjob(annotations={RENEWED: renewed}))


def test_behind_a_run_nothing_is_waited_for_where_nothing_is_left(server: FakeApiServer) -> None:
    clock = RunClock()
    assert clean_up_behind(make_client(server), "ns", "run-7", clock=clock) == []
    assert clock.time == NOW.timestamp()


def test_behind_a_run_a_job_goes_whose_launcher_died_a_moment_ago(server: FakeApiServer) -> None:
    put(server, at(MINUTE))
    clock = RunClock()
    (done,) = clean_up_behind(make_client(server), "ns", "run-7", clock=clock)
    assert done.removed
    assert server.find(*JOBS, done.name) is None
    assert clock.time - NOW.timestamp() == pytest.approx(181)


def test_behind_a_run_a_job_stays_whose_launcher_lives(server: FakeApiServer) -> None:
    put(server, at(MINUTE))
    clock = RunClock(lambda: put(server, at(-2 * MINUTE)))
    (done,) = clean_up_behind(make_client(server), "ns", "run-7", clock=clock)
    assert not done.removed
    assert server.find(*JOBS, done.name)
