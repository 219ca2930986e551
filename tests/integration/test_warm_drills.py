"""Warm workers: a job finds its process as if it were new; a worker that dies costs one job."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kfp_jax.backends.local import LocalBackend
from kfp_jax.backends.warm import WarmBackend
from kfp_jax.cancellation import Cancellation
from kfp_jax.errors import SpecError
from kfp_jax.launch import launch
from kfp_jax.spec import Limits, TrainSpec
from kfp_jax.status import Outcome, Phase

pytestmark = pytest.mark.integration

PROGRAMS = Path(__file__).parents[1] / "programs"
MARK = f"WARM_DRILLS={os.getpid()}"  # in the environment of every worker and what it starts
ENVIRON = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join((str(PROGRAMS), os.environ.get("PYTHONPATH", ""))),
    **dict([MARK.split("=")]),
}


@pytest.fixture
def one() -> Iterator[WarmBackend]:
    """A pool of one worker, so that each job follows the one before."""
    with WarmBackend(1, environ=ENVIRON, grace=2.0) as backend:
        yield backend
    assert processes() == []


@pytest.fixture
def two() -> Iterator[WarmBackend]:
    with WarmBackend(2, environ=ENVIRON, grace=2.0) as backend:
        yield backend
    assert processes() == []


def trial(folder: Path, how: str = "", **more: Any) -> TrainSpec:
    fields = ("max_restarts", "limits", "env", "program", "num_nodes", "objective")
    given = {name: more.pop(name) for name in fields if name in more}
    return TrainSpec(
        name="trial",
        output_uri=str(folder),
        parameters={"how": how, **more},
        **{"program": "untidy", "limits": Limits(stall=120), **given},
    )


def at_once(backend: WarmBackend, *specs: TrainSpec) -> list[Outcome]:
    with ThreadPoolExecutor(len(specs)) as threads:
        return list(threads.map(lambda spec: launch(spec, backend), specs))


def processes() -> list[int]:
    """Returns the processes of all pools of this test, and of what their jobs have started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                alive = f"{MARK}\0".encode() in (entry / "environ").read_bytes()
            except OSError:
                continue
            found += [int(entry.name)] if alive else []
    return found


def pid_of(folder: Path) -> int:
    """Returns the process that runs a job, as soon as it does."""
    end = time.monotonic() + 90
    while time.monotonic() < end:
        for log in folder.rglob("*.log"):
            if found := re.search(r"^pid: (\d+)$", log.read_text(), re.MULTILINE):
                return int(found[1])
        time.sleep(0.01)
    raise AssertionError("waited in vain")


def said(outcome: Outcome) -> str:
    logs = sorted(Path(outcome.output_uri, "logs").rglob("*.log"))
    return "".join(log.read_text() for log in logs)


def own_lines(outcome: Outcome) -> list[str]:
    lines = [line.partition("@kfp-jax ")[0] for line in said(outcome).splitlines()]
    return [line for line in lines if line and not line.startswith(("draw:", "pid:"))]


@pytest.mark.parametrize(
    "how",
    [
        "",
        "leak",
        "without_newline",
        "native_print",
        "close_streams",
        "close_descriptors",
        "replace_streams",
        "idle_pool",
        "exit_3",
        "exit_0",
        "interrupt",
        "fail",
    ],
)
def test_the_next_job_finds_the_same_process_as_if_it_were_new(
    one: WarmBackend, tmp_path: Path, how: str
) -> None:
    first = launch(trial(tmp_path / "0"), one)
    ends = launch(trial(tmp_path / "1", how), one)
    after = launch(trial(tmp_path / "2"), one)
    alone = launch(trial(tmp_path / "3", how), LocalBackend(environ=ENVIRON))
    assert (ends.phase, ends.reason) == (alone.phase, alone.reason)
    assert ends.message.replace(ends.job, "") == alone.message.replace(alone.job, "")
    assert own_lines(ends) == own_lines(alone)
    assert own_lines(after) == own_lines(first)
    assert after.metrics["pid"] == first.metrics["pid"]
    assert after.metrics["trials"] == 3


@pytest.mark.parametrize(
    "how",
    [
        "daemon_thread",
        "thread_to_wait_for",
        "child",
        "grandchild",
        "open_files",
        "much_memory",
        "exit_hard",
        "kill",
        "crash",
    ],
)
def test_what_cannot_be_undone_costs_the_worker_and_no_other_job(
    one: WarmBackend, tmp_path: Path, how: str
) -> None:
    first = launch(trial(tmp_path / "0"), one)
    ends = launch(trial(tmp_path / "1", how), one)
    assert processes() == []
    after = launch(trial(tmp_path / "2"), one)
    alone = launch(trial(tmp_path / "3", how), LocalBackend(environ=ENVIRON))
    assert (ends.phase, ends.reason) == (alone.phase, alone.reason)
    assert ends.message.replace(ends.job, "") == alone.message.replace(alone.job, "")
    lines = [[line for line in own_lines(end) if "stray" not in line] for end in (ends, alone)]
    assert lines[0] == lines[1]
    assert own_lines(after) == own_lines(first)
    assert after.phase is Phase.SUCCEEDED
    assert after.metrics["pid"] != first.metrics["pid"]


def test_a_setting_of_jax_lasts_no_longer_than_its_job(one: WarmBackend, tmp_path: Path) -> None:
    outcomes = [
        launch(trial(tmp_path / str(number), how), one)
        for number, how in enumerate(("jax_setting", "jax_default", "jax_setting"))
    ]
    kinds = [line for end in outcomes for line in own_lines(end) if line.startswith("64")]
    assert kinds == ["64 bits: float64", "64 bits: float32", "64 bits: float64"]
    assert len({end.metrics["pid"] for end in outcomes}) == 1


def test_random_numbers_are_drawn_anew(one: WarmBackend, tmp_path: Path) -> None:
    outcomes = [launch(trial(tmp_path / str(number), "leak"), one) for number in range(3)]
    draws = {line for end in outcomes for line in said(end).splitlines() if "draw" in line}
    assert len(draws) == 3


def test_two_jobs_at_once_do_not_mix_their_logs(two: WarmBackend, tmp_path: Path) -> None:
    ends = at_once(two, *(trial(tmp_path / say, say=say, seconds=0.5) for say in "ab"))
    assert len({end.metrics["pid"] for end in ends}) == 2
    for end, mine, other in zip(ends, "ab", "ba", strict=True):
        lines = said(end).splitlines()
        assert mine in lines
        assert other not in lines


def test_a_killed_worker_costs_one_job(two: WarmBackend, tmp_path: Path) -> None:
    with ThreadPoolExecutor() as threads:
        killed = threads.submit(launch, trial(tmp_path / "a", "hang"), two)
        other = threads.submit(launch, trial(tmp_path / "b", seconds=2.0), two)
        pid_of(tmp_path / "b")
        victim = pid_of(tmp_path / "a")
        os.kill(victim, signal.SIGKILL)
        assert (killed.result().phase, killed.result().reason) == (Phase.FAILED, "killed")
        assert "SIGKILL" in killed.result().message
        assert other.result().phase is Phase.SUCCEEDED
    after = at_once(two, *(trial(tmp_path / name, seconds=0.5) for name in "cd"))
    assert {end.phase for end in after} == {Phase.SUCCEEDED}
    pids = {end.metrics["pid"] for end in after}
    assert other.result().metrics["pid"] in pids
    assert victim not in pids


def test_a_worker_that_is_killed_between_jobs_is_not_missed(
    one: WarmBackend, tmp_path: Path
) -> None:
    first = launch(trial(tmp_path / "0"), one)
    os.kill(int(first.metrics["pid"]), signal.SIGKILL)
    assert launch(trial(tmp_path / "1"), one).phase is Phase.SUCCEEDED


def test_cancelling_one_job_leaves_the_other_and_the_worker(
    two: WarmBackend, tmp_path: Path
) -> None:
    cancellation = Cancellation()
    with ThreadPoolExecutor() as threads:
        job = trial(tmp_path / "a", seconds=30)
        stopped = threads.submit(launch, job, two, cancellation=cancellation)
        other = threads.submit(launch, trial(tmp_path / "b", seconds=2.0), two)
        worker = pid_of(tmp_path / "a")
        pid_of(tmp_path / "b")
        cancellation.request()
        assert stopped.result().phase is Phase.CANCELLED
        assert "stopped on request" in said(stopped.result())
        assert other.result().phase is Phase.SUCCEEDED
    after = at_once(two, *(trial(tmp_path / name, seconds=0.5) for name in "cd"))
    assert {end.metrics["pid"] for end in after} == {worker, other.result().metrics["pid"]}


@pytest.mark.parametrize(
    ("how", "last_words"),
    [("hang", "stopped by SIGTERM"), ("hang_deaf", ""), ("own_handler", "own handler")],
)
def test_a_job_that_does_not_ask_is_ended_all_the_same(
    one: WarmBackend, tmp_path: Path, how: str, last_words: str
) -> None:
    cancellation = Cancellation()
    with ThreadPoolExecutor() as threads:
        stopped = threads.submit(launch, trial(tmp_path / "a", how), one, cancellation=cancellation)
        wait_for_text(tmp_path / "a", "hanging")
        began = time.monotonic()
        cancellation.request()
        assert stopped.result().phase is Phase.CANCELLED
        assert last_words or time.monotonic() - began >= 2  # its grace
    assert last_words in said(stopped.result())
    assert launch(trial(tmp_path / "b"), one).phase is Phase.SUCCEEDED


def test_a_hung_job_is_ended_by_its_limit(one: WarmBackend, tmp_path: Path) -> None:
    first = launch(trial(tmp_path / "0"), one)
    late = launch(trial(tmp_path / "1", "hang", limits=Limits(stall=1)), one)
    assert (late.phase, late.reason) == (Phase.FAILED, "stalled")
    after = launch(trial(tmp_path / "2"), one)
    assert after.phase is Phase.SUCCEEDED
    assert after.metrics["pid"] != first.metrics["pid"]


def test_a_failed_job_is_started_again(one: WarmBackend, tmp_path: Path) -> None:
    for how in ("fail", "kill"):
        end = launch(trial(tmp_path / how, how, max_restarts=2), one)
        assert (end.phase, end.attempts) == (Phase.FAILED, 3)
        logs = [entry.name for entry in (tmp_path / how / "logs").iterdir()]
        assert sorted(logs) == ["attempt-1", "attempt-2", "attempt-3"]


@pytest.mark.parametrize(
    ("program", "parameters"),
    [
        ("untidy", {"hwo": ""}),
        ("untidy", {"seconds": "long"}),
        ("untidy:no_such_function", {}),
        ("no_such_program", {}),
        ("ends_when_imported", {}),
        ("raises_when_imported", {}),
    ],
)
def test_what_is_wrong_is_said_as_by_a_process_of_its_own(
    one: WarmBackend, tmp_path: Path, program: str, parameters: dict[str, object]
) -> None:
    assert launch(trial(tmp_path / "0"), one).phase is Phase.SUCCEEDED
    sentences = []
    for backend in (one, LocalBackend(environ=ENVIRON)):
        spec = TrainSpec(
            name="t", program=program, parameters=parameters, output_uri=str(tmp_path / "wrong")
        )
        with pytest.raises(SpecError) as refused:
            launch(spec, backend)
        sentences.append(str(refused.value))
    assert sentences[0] == sentences[1]
    assert not (tmp_path / "wrong").exists()
    assert launch(trial(tmp_path / "1"), one).phase is Phase.SUCCEEDED


def test_a_job_with_other_variables_gets_a_worker_that_started_with_them(
    one: WarmBackend, tmp_path: Path
) -> None:
    plain = launch(trial(tmp_path / "0"), one)
    other = launch(trial(tmp_path / "1", env={"JAX_ENABLE_X64": "1"}), one)
    assert other.metrics["pid"] != plain.metrics["pid"]


def test_more_jobs_than_workers_wait_their_turn(one: WarmBackend, tmp_path: Path) -> None:
    ends = at_once(one, *(trial(tmp_path / str(number), seconds=0.1) for number in range(6)))
    assert {end.phase for end in ends} == {Phase.SUCCEEDED}
    assert len({end.metrics["pid"] for end in ends}) == 1
    assert max(end.seconds["queued"] for end in ends) > 0.4


def test_a_job_of_several_processes_runs_alone(two: WarmBackend, tmp_path: Path) -> None:
    ends = at_once(
        two,
        trial(tmp_path / "a", seconds=0.5),
        trial(tmp_path / "b", num_nodes=2, program="returns:nothing"),
        trial(tmp_path / "c", num_nodes=2, program="returns:nothing"),
        trial(tmp_path / "d", seconds=0.5),
    )
    assert {end.phase for end in ends} == {Phase.SUCCEEDED}


LAUNCHER = """
import sys
from pathlib import Path
from kfp_jax.backends.warm import WarmBackend
from kfp_jax.launch import launch
from kfp_jax.spec import TrainSpec

with WarmBackend(1) as backend:
    for name, how in (("a", ""), ("b", "hang")):
        launch(TrainSpec(name="t", program="untidy", parameters={"how": how},
                         output_uri=sys.argv[1] + name), backend)
"""


def test_workers_end_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, f"{tmp_path}/"], env=ENVIRON)
    wait_for_text(tmp_path / "b", "hanging")
    assert pid_of(tmp_path / "a") == pid_of(tmp_path / "b")
    launcher.kill()
    launcher.wait()
    end = time.monotonic() + 5
    while processes():
        assert time.monotonic() < end
        time.sleep(0.01)


def wait_for_text(folder: Path, text: str) -> None:
    end = time.monotonic() + 90
    while not any(text in log.read_text() for log in folder.rglob("*.log")):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
