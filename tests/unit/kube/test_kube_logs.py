import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fakes.api_server import FakeApiServer
from fakes.kube_client import MakeClient
from kfp_jax.errors import Forbidden
from kfp_jax.kube.client import Client
from kfp_jax.kube.logs import ContainerRun, Label, LogFollower, ProcessLine, container_runs

LABELS = "job=j"


def label(pod: Any) -> Label | None:
    labels = pod["metadata"]["labels"]
    return Label(int(labels["index"]), int(labels["attempt"])) if "index" in labels else None


class Following:
    """A follower whose lines are collected in a thread."""

    def __init__(self, client: Client, silence: float = 60) -> None:
        self.follower = LogFollower(client, "ns", LABELS, "node", label, silence=silence)
        self.lines: list[ProcessLine] = []
        self.error: Exception | None = None
        self.ended_at = 0.0
        self._thread = threading.Thread(target=self._collect)
        self._thread.start()

    def _collect(self) -> None:
        try:
            self.lines.extend(self.follower.lines())
        except Forbidden as error:
            self.error = error
        self.ended_at = time.monotonic()

    def finish(self) -> list[ProcessLine]:
        self.follower.finish()
        return self.wait()

    def wait(self, seconds: float = 10) -> list[ProcessLine]:
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the log does not end"
        return self.lines

    def texts(self, process: int = 0) -> list[str]:
        return [line.text for line in list(self.lines) if line.process == process]


@pytest.fixture
def follow(client: Client) -> Iterator[Callable[..., Following]]:
    made: list[Following] = []

    def start(**more: Any) -> Following:
        made.append(Following(client, **more))
        return made[-1]

    yield start
    for following in made:
        following.follower.stop()
        following.wait()


def pod(server: FakeApiServer, name: str, index: int = 0, attempt: int = 1) -> None:
    server.add_pod(name, job="j", index=str(index), attempt=str(attempt))


def running(server: FakeApiServer, name: str = "p", index: int = 0, attempt: int = 1) -> None:
    pod(server, name, index, attempt)
    server.start(name)


def test_lines_of_all_processes_while_they_run(
    server: FakeApiServer, follow: Callable[..., Following]
) -> None:
    following = follow()
    running(server, "p0", 0)
    running(server, "p1", 1)
    for number in range(3):
        server.log("p0", f"zero {number}\n")
        server.log("p1", f"one {number}\n")
    server.wait_for(lambda: len(following.lines) == 6)
    assert following.texts(0) == ["zero 0", "zero 1", "zero 2"]
    assert following.texts(1) == ["one 0", "one 1", "one 2"]
    assert {line.attempt for line in following.lines} == {1}


def test_a_pod_that_appears_and_starts_later(
    server: FakeApiServer, follow: Callable[..., Following]
) -> None:
    following = follow()
    server.wait_for(lambda: server.streams == 1)
    pod(server, "p")
    server.fail(400, path="/log", message='container "node" is waiting to start')
    server.start("p")
    server.log("p", "first\n")
    server.wait_for(lambda: following.texts() == ["first"])


def test_lines_that_look_like_objects_and_a_last_one_without_newline(
    server: FakeApiServer, follow: Callable[..., Following]
) -> None:
    running(server)
    for text in ("42\n", '{"kind":"Pod"}\n', "\n", "10%\r20%\r100%\n", "end"):
        server.log("p", text)
    server.exit("p")
    assert [line.text for line in follow().finish()] == ["42", '{"kind":"Pod"}', "", "100%", "end"]


def test_a_finished_job_is_read_to_its_end_and_ends(
    server: FakeApiServer, follow: Callable[..., Following]
) -> None:
    following = follow()
    running(server)
    server.log("p", "one\n")
    server.wait_for(lambda: following.texts() == ["one"])
    server.log("p", "two\n")
    server.exit("p")
    following.finish()
    assert following.texts() == ["one", "two"]


def test_a_log_that_was_read_ends_as_soon_as_its_job(
    server: FakeApiServer, follow: Callable[..., Following]
) -> None:
    following = follow()
    running(server)
    server.log("p", "one\n")
    server.exit("p")
    server.wait_for(lambda: following.texts() == ["one"])
    time.sleep(0.3)
    begun = time.monotonic()
    following.finish()
    assert following.ended_at - begun < 0.15


def test_a_job_without_pods_ends(follow: Callable[..., Following]) -> None:
    assert follow().finish() == []


def test_only_pods_of_the_job_and_only_processes(
    server: FakeApiServer, follow: Callable[..., Following]
) -> None:
    server.add_pod("other", job="k", index="0", attempt="1")
    server.add_pod("initializer", job="j")
    for name in ("other", "initializer"):
        server.start(name)
        server.log(name, "noise\n")
        server.exit(name)
    running(server)
    server.log("p", "mine\n")
    server.exit("p")
    assert follow().finish() == [ProcessLine(0, 1, "mine")]


@pytest.mark.parametrize("seed", range(3))
def test_random_cuts_neither_lose_nor_double_a_line(
    server: FakeApiServer, follow: Callable[..., Following], seed: int
) -> None:
    chance = random.Random(seed)
    for _ in range(10):
        server.cut(chance.randrange(2000), path="/log")
    server.fail(500, times=2, path="/log")
    server.fail(429, times=1, path="/log", retry_after="1")
    following = follow()
    running(server)
    expected = [f"line {number} {'x' * chance.randrange(30)}" for number in range(300)]
    for number, text in enumerate(expected):
        server.log("p", f"{text}\n")
        if number % 100 == 50:
            server.break_connections()
    server.wait_for(lambda: len(following.lines) >= 300)
    server.exit("p")
    following.finish()
    assert following.texts() == expected


def test_a_log_that_ends_before_its_container_is_asked_for_again(
    server: FakeApiServer, follow: Callable[..., Following]
) -> None:
    following = follow()
    running(server)
    for number in range(5):
        server.log("p", f"{number}\n")
        server.wait_for(lambda n=number: len(following.lines) > n)
        server.end_streams()
    assert following.texts() == ["0", "1", "2", "3", "4"]


def test_the_status_may_follow_the_end_of_the_log(
    server: FakeApiServer, follow: Callable[..., Following]
) -> None:
    following = follow()
    running(server)
    server.log("p", "last words")
    server.exit("p", told=False)
    time.sleep(0.05)
    assert following.texts() == []
    server.exit("p")
    assert [line.text for line in following.finish()] == ["last words"]


def test_a_silent_connection_is_made_anew(
    server: FakeApiServer, follow: Callable[..., Following]
) -> None:
    server.go_silent(after=0, path="/log")
    following = follow(silence=0.1)
    running(server)
    server.log("p", "heard\n")
    server.wait_for(lambda: following.texts() == ["heard"])


def test_a_connection_that_hangs_at_the_end_is_cut(
    server: FakeApiServer, follow: Callable[..., Following]
) -> None:
    server.go_silent(after=0, path="follow=true")
    following = follow()
    running(server)
    server.log("p", "heard\n")
    server.wait_for(lambda: len(server.calls("GET", "/log")) == 1)
    server.exit("p")
    server.wait_for(lambda: following.texts() == ["heard"])


def test_a_container_restarted_in_place_is_heard_before_and_after(
    server: FakeApiServer, follow: Callable[..., Following]
) -> None:
    following = follow()
    running(server)
    server.log("p", "before\n")
    server.wait_for(lambda: following.texts() == ["before"])
    server.log("p", "and its end\n")
    server.exit("p", 1)
    server.start("p")
    server.log("p", "after\n")
    server.wait_for(lambda: len(following.lines) == 3)
    server.exit("p")
    assert [line.text for line in following.finish()] == ["before", "and its end", "after"]


def test_the_previous_run_is_read_when_it_is_over_already(
    server: FakeApiServer, follow: Callable[..., Following]
) -> None:
    running(server)
    server.log("p", "traceback\n")
    server.exit("p", 1)
    server.start("p")
    server.log("p", "again\n")
    server.exit("p")
    assert [line.text for line in follow().finish()] == ["traceback", "again"]
    assert len(server.calls("GET", "/log", previous="true")) == 1


def test_an_attempt_comes_after_the_one_before(
    server: FakeApiServer, follow: Callable[..., Following]
) -> None:
    following = follow()
    running(server, "p-1", attempt=1)
    server.log("p-1", "one\n")
    server.wait_for(lambda: len(following.lines) == 1)
    running(server, "p-2", attempt=2)
    server.log("p-2", "two\n")
    server.log("p-1", "one more\n")
    server.exit("p-1", 1)
    server.remove("v1", "pods", "p-1")
    server.wait_for(lambda: len(following.lines) == 3 or len(following.lines) == 2)
    server.exit("p-2")
    lines = following.finish()
    assert [line.attempt for line in lines] == sorted(line.attempt for line in lines)
    assert lines[-1] == ProcessLine(0, 2, "two")


def test_a_pod_that_will_not_end_holds_up_the_next_attempt_for_seconds_only(
    server: FakeApiServer, follow: Callable[..., Following]
) -> None:
    following = follow()
    running(server, "p-1", attempt=1)
    server.log("p-1", "one\n")
    running(server, "p-2", attempt=2)
    server.log("p-2", "two\n")
    server.wait_for(lambda: len(following.lines) == 2)
    assert [line.text for line in following.lines] == ["one", "two"]


def test_a_pod_that_vanishes_ends_its_log(
    server: FakeApiServer, follow: Callable[..., Following]
) -> None:
    following = follow()
    running(server)
    server.log("p", "one\n")
    server.wait_for(lambda: following.texts() == ["one"])
    server.remove("v1", "pods", "p")
    assert following.finish() == [ProcessLine(0, 1, "one")]


def test_a_line_that_was_begun_outlives_its_pod(
    server: FakeApiServer, follow: Callable[..., Following]
) -> None:
    following = follow()
    running(server)
    with server.changed:  # so that they come in one piece
        server.log("p", "whole\n")
        server.log("p", "bar 50%\r")
    server.wait_for(lambda: following.texts() == ["whole"])
    with server.changed:  # what the stream still had is all that there will ever be
        server.exit("p", told=False)
        server.remove("v1", "pods", "p")
    assert [line.text for line in following.finish()] == ["whole", "bar 50%"]


def test_finish_does_not_wait_for_a_process_that_is_silent_and_runs_on(
    server: FakeApiServer, follow: Callable[..., Following]
) -> None:
    following = follow()
    running(server)
    server.wait_for(lambda: server.streams == 2)
    begun = time.monotonic()
    assert following.finish() == []
    assert time.monotonic() - begun < 2


def test_stop_ends_it_at_once(server: FakeApiServer, follow: Callable[..., Following]) -> None:
    following = follow()
    for index in range(4):
        running(server, f"p{index}", index)
    server.wait_for(lambda: server.streams == 5)
    begun = time.monotonic()
    following.follower.stop()
    following.wait()
    assert following.ended_at - begun < 0.3
    server.wait_for(
        lambda: not [one for one in threading.enumerate() if one.name.startswith("log of")]
    )


def test_a_missing_right_is_told(server: FakeApiServer, follow: Callable[..., Following]) -> None:
    server.fail(403, times=100, path="/log", message='User "u" cannot get resource "pods/log"')
    running(server)
    following = follow()
    following.wait()
    assert "read the log of pods p in namespace ns" in str(following.error)


def test_a_server_that_restarts(server: FakeApiServer, follow: Callable[..., Following]) -> None:
    following = follow()
    running(server)
    server.log("p", "before\n")
    server.wait_for(lambda: following.texts() == ["before"])
    server.down()
    server.log("p", "meanwhile\n")
    server.up()
    server.log("p", "after\n")
    server.exit("p")
    following.finish()
    assert following.texts() == ["before", "meanwhile", "after"]


def test_lines_wait_while_nobody_takes_them(server: FakeApiServer, make_client: MakeClient) -> None:
    running(server)
    for _ in range(30):
        server.log("p", "x" * 100_000 + "\n")
    follower = LogFollower(make_client(), "ns", LABELS, "node", label)
    lines = follower.lines()
    assert len(next(lines).text) == 100_000
    time.sleep(0.3)
    follower.finish()
    server.exit("p")
    assert sum(1 for _ in lines) == 29


def status(**container: Any) -> dict[str, Any]:
    return {"status": {"containerStatuses": [{"name": "side"}, {"name": "node", **container}]}}


ENDED = {"terminated": {"containerID": "old", "exitCode": 1}}


@pytest.mark.parametrize(
    ("pod", "runs"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param(status(state={"waiting": {"reason": "ContainerCreating"}}), [], id="waiting"),
        pytest.param(status(state={"running": {}}, containerID="new"), [("new", False, False)],
                     id="running"),
        pytest.param(status(state=ENDED, containerID="old"), [("old", True, False)], id="ended"),
        pytest.param(status(state={"running": {}}, containerID="new", lastState=ENDED),
                     [("old", True, True), ("new", False, False)], id="restarted"),
        pytest.param(status(state={"waiting": {"reason": "CrashLoopBackOff"}}, containerID="old",
                            lastState=ENDED), [("old", True, True)], id="crash-loop"),
    ],
)  # fmt: skip
def test_runs_of_a_container(pod: dict[str, Any], runs: list[tuple[str, bool, bool]]) -> None:
    assert container_runs(pod, "node") == [ContainerRun(*run) for run in runs]
