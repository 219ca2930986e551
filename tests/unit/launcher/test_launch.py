import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes.clock import ManualClock
from fakes.scripted_backend import Event, ScriptedBackend
from kfp_jax.backends.base import JobRef, LogLine
from kfp_jax.cancellation import Cancellation
from kfp_jax.errors import Conflict, JobCancelled, OutputError, SpecError, Unheard
from kfp_jax.launch import launch
from kfp_jax.sinks import NullSink
from kfp_jax.spec import Limits, TrainSpec
from kfp_jax.stages import Stages, overdue
from kfp_jax.status import JobStatus, Outcome, Overdue, Phase, ProcessStatus

RUNNING = JobStatus(Phase.RUNNING, processes=(ProcessStatus(0), ProcessStatus(1)))
DONE = JobStatus(Phase.SUCCEEDED)


def say(kind: str, process: int = 0, attempt: int = 1, **fields: Any) -> LogLine:
    text = "@kfp-jax " + json.dumps({"v": 1, "kind": kind, "time": 0.0, **fields})
    return LogLine(process, attempt, text)


JOINED = (say("joined", 0), say("joined", 1))


class Launcher:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.backend = ScriptedBackend(self.clock, [])

    def run(self, *events: Event, **changes: Any) -> Outcome:
        self.backend = ScriptedBackend(self.clock, events)
        spec = TrainSpec(
            **{
                "name": "test",
                "program": "pkg.train",
                "output_uri": str(self.folder),
                "num_nodes": 2,
                **changes,
            }
        )
        return launch(spec, self.backend, clock=self.clock)

    @property
    def result(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "result.json").read_text()))


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    return Launcher(tmp_path / "out")


def test_a_job_from_start_to_result(launcher: Launcher) -> None:
    (launcher.folder / "model").mkdir(parents=True)
    outcome = launcher.run(
        Event(1, JobStatus(Phase.PENDING)),
        Event(2, RUNNING),
        Event(3, RUNNING, JOINED),
        Event(10, RUNNING, (say("metrics", step=1, values={"loss": 0.5, "accuracy": 0.8}),)),
        Event(
            1,
            DONE,
            (say("result", values={"accuracy": 0.9}, model="model", versions={"jax": "1"}),),
        ),
    )
    assert outcome.phase is Phase.SUCCEEDED
    assert outcome.metrics == {"loss": 0.5, "accuracy": 0.9}
    assert outcome.model_uri == str(launcher.folder / "model")
    assert outcome.seconds == {"queued": 3.0, "starting": 3.0, "training": 11.0, "total": 17.0}
    assert launcher.result == outcome.to_json()
    assert launcher.result["schema"] == 1
    history = (launcher.folder / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in history] == [1]
    assert launcher.backend.calls == ["validate", "submit", "delete"]


def test_a_model_that_only_the_nodes_can_see_is_an_error(launcher: Launcher) -> None:
    with pytest.raises(OutputError, match="a volume that launcher and nodes mount at the same"):
        launcher.run(Event(1, DONE, (say("result", values={}, model="model"),)))
    assert launcher.result["phase"] == "SUCCEEDED"


def test_a_failure_names_the_process_and_keeps_its_last_lines(launcher: Launcher) -> None:
    processes = (
        ProcessStatus(0, alive=False, exit_code=-9),
        ProcessStatus(1, alive=False, exit_code=1, failed_at=1.0),
    )
    outcome = launcher.run(
        Event(1, RUNNING, JOINED),
        Event(
            1,
            JobStatus(Phase.FAILED, processes=processes),
            (
                LogLine(1, 1, "Traceback ..."),
                say("error", 1, step=4, reason="exception", message="ValueError: no"),
            ),
        ),
    )
    assert outcome.phase is Phase.FAILED
    assert outcome.reason == "exception"
    assert outcome.failed_process == 1
    assert outcome.last_lines == ("Traceback ...",)
    assert "process 1 raised ValueError: no at step 4" in outcome.message


@pytest.mark.parametrize(
    ("values", "reason", "part"),
    [
        ({"accuracy": 0.9}, "missing-objective", "it gave accuracy"),
        ({}, "missing-objective", "none at all"),
        ({"score": "NaN"}, "diverged", "nan"),
    ],
)
def test_success_without_the_objective_is_a_failure(
    launcher: Launcher, values: dict[str, object], reason: str, part: str
) -> None:
    outcome = launcher.run(Event(1, DONE, (say("result", values=values),)), objective="score")
    assert outcome.phase is Phase.FAILED
    assert outcome.reason == reason
    assert part in outcome.message


def test_the_stall_limit_ends_a_silent_job(launcher: Launcher) -> None:
    silent = JobStatus(
        Phase.RUNNING, processes=(ProcessStatus(0), ProcessStatus(1, suspended=True))
    )
    outcome = launcher.run(
        Event(1, RUNNING, JOINED),
        *[Event(1, silent)] * 100,
        limits=Limits(stall=30.0),
    )
    assert outcome.reason == "stalled"
    assert outcome.failed_process == 1
    assert 30 <= outcome.seconds["total"] <= 33
    assert launcher.backend.calls[-1] == "delete"


def test_a_line_of_any_process_shows_life(launcher: Launcher) -> None:
    alive = [Event(20, RUNNING, (LogLine(1, 1, "still here"),))] * 10
    outcome = launcher.run(
        Event(1, RUNNING, JOINED), *alive, Event(1, DONE), limits=Limits(stall=30.0)
    )
    assert outcome.phase is Phase.SUCCEEDED


def test_the_start_limit_names_who_never_joined(launcher: Launcher) -> None:
    outcome = launcher.run(
        Event(1, RUNNING, (say("joined", 0),)),
        *[Event(1, RUNNING)] * 100,
        limits=Limits(start=20.0),
    )
    assert outcome.reason == "start-timeout"
    assert "process 1 never joined" in outcome.message


def test_time_in_a_queue_counts_against_no_other_limit(launcher: Launcher) -> None:
    queued = JobStatus(Phase.QUEUED)
    outcome = launcher.run(
        *[Event(600, queued)] * 12,
        Event(1, RUNNING, JOINED),
        Event(30, DONE),
        limits=Limits(start=60.0, stall=60.0, deadline=3600.0),
    )
    assert outcome.phase is Phase.SUCCEEDED
    assert outcome.seconds["queued"] == 7201.0


def test_a_restart_is_counted_and_forgets_the_old_attempt(launcher: Launcher) -> None:
    again = JobStatus(Phase.RUNNING, restarts=1, processes=RUNNING.processes)
    outcome = launcher.run(
        Event(
            1,
            RUNNING,
            (
                *JOINED,
                say("metrics", step=9, values={"old": 1.0}),
                say("error", 0, reason="exception", message="old"),
            ),
        ),
        Event(1, JobStatus(Phase.RESTARTING, restarts=1)),
        Event(1, again, (say("joined", 0, 2), say("joined", 1, 2))),
        Event(1, JobStatus(Phase.SUCCEEDED, restarts=1)),
        max_restarts=1,
    )
    assert outcome.phase is Phase.SUCCEEDED
    assert outcome.attempts == 2
    assert outcome.metrics == {}


def test_a_restart_that_fails_at_once_does_not_name_the_old_step(launcher: Launcher) -> None:
    processes = (ProcessStatus(0, alive=False, exit_code=-9, failed_at=1.0), ProcessStatus(1))
    outcome = launcher.run(
        Event(1, RUNNING, (*JOINED, say("metrics", step=400, values={"loss": 1.0}))),
        Event(1, JobStatus(Phase.RESTARTING, restarts=1), (LogLine(0, 2, "again"),)),
        Event(1, JobStatus(Phase.FAILED, restarts=1, processes=processes)),
        max_restarts=1,
    )
    assert outcome.reason == "killed"
    assert "400" not in outcome.message


def test_a_silent_command_is_not_said_to_have_never_joined(launcher: Launcher) -> None:
    outcome = launcher.run(
        *[Event(1, RUNNING)] * 50, program="", command=("sleep", "60"), limits=Limits(stall=30.0)
    )
    assert outcome.reason == "stalled"
    assert "joined" not in outcome.message
    assert outcome.failed_process is None


def test_cancelled_before_the_submit_it_is_not_started(launcher: Launcher) -> None:
    cancellation = Cancellation()
    cancellation.request()
    backend = ScriptedBackend(launcher.clock, [Event(1, RUNNING, JOINED)] * 3)
    spec = TrainSpec(name="t", program="p", output_uri=str(launcher.folder))
    with pytest.raises(JobCancelled, match="before it was started"):
        launch(spec, backend, clock=launcher.clock, cancellation=cancellation)
    assert backend.calls == ["validate"]


def test_an_earlier_result_does_not_outlive_a_failed_launch(launcher: Launcher) -> None:
    launcher.run(Event(1, DONE))
    for name in ("report.html", "evaluation.json"):
        (launcher.folder / name).write_text("of the first")
    with pytest.raises(RuntimeError, match="network"):
        launch(
            TrainSpec(name="t", program="p", output_uri=str(launcher.folder)),
            BrokenWatch(launcher.clock, []),
            clock=launcher.clock,
        )
    left = {path.name for path in launcher.folder.iterdir() if not path.name.startswith(".")}
    assert left == {"history.jsonl"}


class BrokenSink(NullSink):
    def log(self, line: LogLine) -> None:
        raise BrokenPipeError("nobody reads")


def test_a_sink_that_breaks_ends_the_job_with_its_own_error(launcher: Launcher) -> None:
    events = [Event(1, RUNNING, (*JOINED, LogLine(0, 1, "text"))), Event(1, RUNNING)]
    backend = ScriptedBackend(launcher.clock, events, patience=0.1)
    spec = TrainSpec(name="t", program="p", output_uri=str(launcher.folder))
    with pytest.raises(BrokenPipeError, match="nobody reads"):
        launch(spec, backend, sink=BrokenSink(), clock=launcher.clock)
    assert backend.calls[-1] == "delete"


class BrokenWatch(ScriptedBackend):
    def watch(self, ref: object) -> Any:
        raise RuntimeError("the network is gone")


def test_an_error_while_following_leaves_no_job(launcher: Launcher) -> None:
    backend = BrokenWatch(launcher.clock, [])
    spec = TrainSpec(name="t", program="p", output_uri=str(launcher.folder))
    with pytest.raises(RuntimeError, match="network"):
        launch(spec, backend, clock=launcher.clock)
    assert backend.calls[-1] == "delete"


class Refusing(ScriptedBackend):
    def validate(self, spec: TrainSpec, cancelled: object = None) -> list[str]:
        raise SpecError("no")


def test_refused_input_creates_nothing(launcher: Launcher) -> None:
    backend = Refusing(launcher.clock, [])
    spec = TrainSpec(name="t", program="p", output_uri=str(launcher.folder))
    with pytest.raises(SpecError):
        launch(spec, backend, clock=launcher.clock)
    assert backend.calls == []
    assert not launcher.folder.exists()


class SecondLaunch(ScriptedBackend):
    """Tries to launch another job into the same folder while the first one runs."""

    second: Exception | None = None

    def submit(self, spec: TrainSpec, ref: Any) -> Any:
        try:
            launch(spec, ScriptedBackend(self._clock, []), clock=self._clock)
        except Conflict as error:
            self.second = error
        return super().submit(spec, ref)


def test_two_jobs_do_not_share_a_folder(launcher: Launcher) -> None:
    backend = SecondLaunch(launcher.clock, [Event(1, DONE)])
    spec = TrainSpec(name="t", program="p", output_uri=str(launcher.folder))
    launch(spec, backend, clock=launcher.clock)
    assert "in use" in str(backend.second)


@pytest.mark.parametrize(
    ("phase", "now", "last_output", "limits", "expected"),
    [
        (Phase.QUEUED, 100.0, 0.0, Limits(queue=50.0), Overdue.QUEUE),
        (Phase.QUEUED, 100.0, 0.0, Limits(stall=1.0, start=1.0, deadline=1.0), None),
        (Phase.STARTING, 100.0, 99.0, Limits(start=50.0), Overdue.START),
        (Phase.RUNNING, 100.0, 99.0, Limits(start=50.0), None),
        (Phase.RUNNING, 100.0, 40.0, Limits(stall=50.0), Overdue.STALL),
        (Phase.RUNNING, 100.0, 40.0, Limits(stall=0.0), None),
        (Phase.RUNNING, 100.0, 99.0, Limits(deadline=90.0), Overdue.DEADLINE),
    ],
)
def test_four_clocks(
    phase: Phase, now: float, last_output: float, limits: Limits, expected: Overdue | None
) -> None:
    stages = Stages(0.0, admitted=None if phase is Phase.QUEUED else 1.0, attempt=1.0)
    got = overdue(JobStatus(phase), stages, limits, last_output=last_output, now=now)
    assert (got and got[0]) == expected


def statuses(*phases: Phase) -> Sequence[JobStatus]:
    return [JobStatus(phase) for phase in phases]


def test_stages_keep_the_first_moment_of_each() -> None:
    stages = Stages(0.0)
    for now, status in enumerate(
        statuses(Phase.QUEUED, Phase.STARTING, Phase.RUNNING, Phase.RUNNING), start=1
    ):
        stages = stages.advanced(status, float(now))
    assert stages == Stages(0.0, admitted=2.0, attempt=2.0, joined=3.0)
    assert stages.seconds(5.0) == {"queued": 2.0, "starting": 1.0, "training": 2.0, "total": 5.0}


def through(*phases: Phase, every: float = 100.0) -> Stages:
    """Returns the stages of a job that is seen in these phases, one every 100 s."""
    stages = Stages(0.0)
    for number, phase in enumerate(phases, start=1):
        stages = stages.advanced(JobStatus(phase), number * every)
    return stages


PREEMPTED = (Phase.QUEUED, Phase.RUNNING, Phase.RUNNING, Phase.QUEUED)


def test_a_job_that_lost_its_place_has_all_its_time_again_but_for_what_it_trained() -> None:
    again = through(*PREEMPTED, Phase.QUEUED, Phase.STARTING)
    queued, now = JobStatus(Phase.QUEUED), 500.0
    held = through(*PREEMPTED)
    for limits, expected in (
        (Limits(start=1.0, stall=1.0, deadline=201.0), None),  # none counts while it waits
        (Limits(queue=101.0), None),  # this wait alone
        (Limits(queue=100.0), (Overdue.QUEUE, 100.0)),
    ):
        assert overdue(queued, held, limits, last_output=200.0, now=now) == expected
    starting, now = JobStatus(Phase.STARTING), 650.0
    for limits, expected in (
        (Limits(start=51.0, stall=51.0, deadline=251.0), None),
        (Limits(start=50.0), (Overdue.START, 50.0)),
        (Limits(stall=50.0), (Overdue.STALL, 50.0)),
        (Limits(deadline=250.0), (Overdue.DEADLINE, 250.0)),  # 200 s before it lost its place
    ):
        assert overdue(starting, again, limits, last_output=200.0, now=now) == expected


def test_a_job_that_starts_over_after_a_wait_has_one_history(launcher: Launcher) -> None:
    def step(number: int) -> LogLine:
        return say("metrics", step=number, values={"loss": 1 / number})

    launcher.run(
        Event(1, RUNNING, (*JOINED, step(1), step(2))),
        Event(1, JobStatus(Phase.QUEUED)),
        Event(1, RUNNING, (say("waiting", 0), *JOINED, step(1))),
        Event(1, DONE),
    )
    history = (launcher.folder / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in history] == [1]


def test_all_waits_of_a_job_are_told_as_one() -> None:
    again = through(*PREEMPTED, Phase.STARTING, Phase.RUNNING)
    told = {"queued": 300.0, "starting": 0.0, "training": 400.0, "total": 700.0}
    assert again.seconds(700.0) == told
    assert through(*PREEMPTED).seconds(700.0) == {**told, "queued": 500.0, "training": 200.0}


def held_by(*reasons: str) -> Stages:
    """Returns the stages of a job that something else holds up every 20 s."""
    stages = Stages(0.0)
    for number, reason in enumerate(reasons):
        stages = stages.advanced(JobStatus(Phase.STARTING, reason), 20.0 * number)
    return stages


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        pytest.param(("InvalidImageName",) * 2, (Overdue.START, 10.0), id="no-use-to-wait"),
        pytest.param(("Unschedulable",) * 9, None, id="room-may-come"),
        pytest.param(("ImagePullBackOff",) * 9, None, id="somebody-may-push-it"),
        pytest.param(("ImagePullBackOff",) * 10, (Overdue.START, 180.0), id="nobody-did"),
        pytest.param(("Unschedulable",) * 9 + ("ImagePullBackOff",) * 2, None, id="counted-apart"),
    ],
)
def test_what_waiting_does_not_mend_is_not_waited_for(
    reasons: tuple[str, ...], expected: tuple[Overdue, float] | None
) -> None:
    now = 20.0 * (len(reasons) - 1)
    status = JobStatus(Phase.STARTING, reasons[-1])
    stages = held_by(*reasons)
    assert overdue(status, stages, Limits(), last_output=now, now=now) == expected
    unlimited = Limits(start=0.0)
    assert overdue(status, stages, unlimited, last_output=now, now=now) is None


class Unheardable(ScriptedBackend):
    def logs(self, ref: JobRef) -> Iterator[LogLine]:
        raise Unheard("This account may not get pods/log.")
        yield


def test_processes_that_cannot_be_heard_have_joined_when_they_run(tmp_path: Path) -> None:
    clock = ManualClock()
    events = [Event(0, RUNNING), *[Event(30, RUNNING)] * 4, Event(1, DONE)]
    spec = TrainSpec(
        name="test",
        program="pkg.train",
        output_uri=str(tmp_path / "out"),
        num_nodes=2,
        objective="loss",
        limits=Limits(start=60, stall=60),
    )
    outcome = launch(spec, Unheardable(clock, events, patience=0.05), clock=clock)
    assert (outcome.phase, outcome.message) == (Phase.SUCCEEDED, "")
