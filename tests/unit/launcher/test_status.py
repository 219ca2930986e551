import signal

import pytest
from kfp_jax.errors import JobCancelled, JobFailed, JobLost, JobTimeout
from kfp_jax.status import (
    EXIT_BAD_INPUT,
    EXIT_DIVERGED,
    EXIT_STOPPED,
    Action,
    JobStatus,
    Outcome,
    Overdue,
    Phase,
    ProcessStatus,
    next_action,
    reduce_processes,
)


def alive(process: int = 0) -> ProcessStatus:
    return ProcessStatus(process)


def ended(code: int, process: int = 0, *, by_us: bool = False) -> ProcessStatus:
    failed_at = None if code == 0 or by_us else 1.0
    return ProcessStatus(process, alive=False, exit_code=code, failed_at=failed_at)


@pytest.mark.parametrize(
    ("processes", "restarts_left", "cancelled_for", "failed_for", "action"),
    [
        pytest.param([alive(), alive(1)], 0, None, None, Action.WAIT, id="running"),
        pytest.param([ended(0), alive(1)], 0, None, None, Action.WAIT, id="one is done"),
        pytest.param([ended(0), ended(0, 1)], 3, None, None, Action.FINISH, id="all are done"),
        pytest.param([ended(1), alive(1)], 3, None, 0.0, Action.KILL, id="one failed"),
        pytest.param(
            [ended(1), ended(-9, 1, by_us=True)], 0, None, 0.1, Action.FINISH, id="failed"
        ),
        pytest.param(
            [ended(1), ended(-9, 1, by_us=True)], 1, None, 0.1, Action.RESTART, id="again"
        ),
        pytest.param([ended(EXIT_STOPPED), alive(1)], 0, None, 1.0, Action.WAIT, id="others save"),
        pytest.param(
            [ended(EXIT_STOPPED), alive(1)], 0, None, 5.0, Action.KILL, id="saves too long"
        ),
        pytest.param([ended(EXIT_STOPPED)], 1, None, 1.0, Action.RESTART, id="preempted"),
        pytest.param(
            [ended(EXIT_BAD_INPUT)], 5, None, 0.0, Action.FINISH, id="bad input stays bad"
        ),
        pytest.param(
            [ended(EXIT_DIVERGED)], 5, None, 0.0, Action.FINISH, id="it would diverge again"
        ),
        pytest.param([alive()], 5, 1.0, None, Action.WAIT, id="cancelled, saving"),
        pytest.param([alive()], 5, 5.0, None, Action.KILL, id="cancelled, too slow"),
        pytest.param([ended(EXIT_STOPPED)], 5, 1.0, 0.5, Action.FINISH, id="cancelled and gone"),
    ],
)
def test_next_action(
    processes: list[ProcessStatus],
    restarts_left: int,
    cancelled_for: float | None,
    failed_for: float | None,
    action: Action,
) -> None:
    got = next_action(
        processes,
        restarts_left=restarts_left,
        cancelled_for=cancelled_for,
        failed_for=failed_for,
        grace=5.0,
    )
    assert got is action


@pytest.mark.parametrize(
    ("processes", "cancelled", "action", "phase"),
    [
        ([alive()], False, Action.WAIT, Phase.RUNNING),
        ([ended(1)], False, Action.RESTART, Phase.RESTARTING),
        ([ended(0), ended(0, 1)], False, Action.FINISH, Phase.SUCCEEDED),
        ([ended(0), ended(1, 1)], False, Action.FINISH, Phase.FAILED),
        ([ended(-signal.SIGKILL, by_us=True)], True, Action.FINISH, Phase.CANCELLED),
        ([ended(0)], True, Action.FINISH, Phase.CANCELLED),
    ],
)
def test_reduce(
    processes: list[ProcessStatus], cancelled: bool, action: Action, phase: Phase
) -> None:
    status = reduce_processes(processes, restarts=2, cancelled=cancelled, action=action)
    assert status == JobStatus(phase, restarts=2, processes=tuple(processes))


def test_phases_that_are_final() -> None:
    final = {phase for phase in Phase if phase.finished}
    assert final == {Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED, Phase.LOST}


def outcome(phase: Phase, reason: str = "") -> Outcome:
    return Outcome(
        job="j",
        backend="local",
        phase=phase,
        reason=reason,
        message="why",
        program="p",
        parameters={},
        num_processes=1,
        seconds={},
        metrics={"loss": float("nan"), "accuracy": 1.0},
        attempts=1,
        output_uri="/o",
        dataset_uri="",
        model_uri="",
    )


@pytest.mark.parametrize(
    ("phase", "reason", "kind"),
    [
        (Phase.FAILED, "exception", JobFailed),
        *[(Phase.FAILED, reason.value, JobTimeout) for reason in Overdue],
        (Phase.CANCELLED, "cancelled", JobCancelled),
        (Phase.LOST, "lost", JobLost),
    ],
)
def test_the_error_of_an_outcome(phase: Phase, reason: str, kind: type[Exception]) -> None:
    error = outcome(phase, reason).error()
    assert type(error) is kind
    assert str(error) == "why"


def test_success_has_no_error() -> None:
    assert outcome(Phase.SUCCEEDED).error() is None


def test_a_result_is_strict_json() -> None:
    assert outcome(Phase.FAILED).to_json()["metrics"] == {"loss": "NaN", "accuracy": 1.0}
