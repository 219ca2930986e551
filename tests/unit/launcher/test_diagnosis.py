import signal

import pytest
from kfp_jax.diagnosis import Facts, diagnose
from kfp_jax.reports import Kind, Report
from kfp_jax.status import (
    EXIT_BAD_INPUT,
    EXIT_DIVERGED,
    EXIT_STOPPED,
    Overdue,
    ProcessStatus,
)

GLOO = "Gloo all-reduce failed: [...] Connection closed by peer [127.0.0.1]:43210"


def failed(process: int, code: int, at: float = 1.0) -> ProcessStatus:
    return ProcessStatus(process, alive=False, exit_code=code, failed_at=at)


def error(message: str, step: int | None = None, reason: str = "exception") -> Report:
    return Report(Kind.ERROR, 0.0, step, fields={"message": message, "reason": reason})


@pytest.mark.parametrize(
    ("status", "report", "tail", "reason", "parts"),
    [
        (failed(1, 1), error("ValueError: bad shape", 7), (), "exception",
         ("process 1", "ValueError: bad shape", "at step 7")),
        (failed(1, 3), error("the program called sys.exit(3)", reason="exit"), (), "exit",
         ("process 1 ended: the program called sys.exit(3); its last lines are in its log",)),
        (failed(1, 3), None, ("line",), "exit", ("process 1", "code 3")),
        (failed(1, -signal.SIGKILL), None, (), "killed", ("process 1", "SIGKILL", "memory")),
        (failed(1, 137), None, (), "killed", ("SIGKILL",)),
        (failed(1, -signal.SIGSEGV), None, (), "signal", ("SIGSEGV",)),
        (failed(1, EXIT_DIVERGED), error("loss is nan", 12), (), "diverged",
         ("loss is nan",)),
        (failed(1, EXIT_STOPPED), error("stopped", 9), (), "preempted", ("at step 9", "again")),
        (failed(1, EXIT_STOPPED), error("stopped before it asked", reason="stopped"), (),
         "preempted", ("left at once", "last checkpoint, if it has one")),
        (failed(1, EXIT_BAD_INPUT), error("Unknown parameter 'x'; valid are y"), (), "bad-input",
         ("Unknown parameter 'x'",)),
        (failed(1, 1), error("OSError: [Errno 28] No space left on device"), (), "disk-full",
         ("no space",)),
        (failed(1, 1), error("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory"), (),
         "out-of-memory", ("smaller batch",)),
        (failed(1, 1), None, ("MemoryError",), "out-of-memory", ("memory",)),
    ],
)  # fmt: skip
def test_rows_of_the_table(
    status: ProcessStatus,
    report: Report | None,
    tail: tuple[str, ...],
    reason: str,
    parts: tuple[str, ...],
) -> None:
    facts = Facts(
        job="j",
        processes=[ProcessStatus(0, alive=False, exit_code=-9), status],
        errors={1: report} if report else {},
        tails={1: tail},
    )
    diagnosis = diagnose(facts)
    assert diagnosis.reason == reason
    assert diagnosis.root == 1
    assert all(part in diagnosis.sentence for part in parts), diagnosis.sentence
    assert "\n" not in diagnosis.sentence


@pytest.mark.parametrize(
    ("victim", "report", "tail"),
    [
        (failed(0, 1), error(f"JaxRuntimeError: FAILED_PRECONDITION: {GLOO}"), ()),
        (failed(0, -signal.SIGABRT), None, ("Terminating process because ...",)),
        (failed(0, 134), None, ()),
        (failed(0, 1), None, ("...", GLOO)),
    ],
)
def test_the_culprit_is_found_though_a_victim_is_seen_first(
    victim: ProcessStatus, report: Report | None, tail: tuple[str, ...]
) -> None:
    facts = Facts(
        job="j",
        processes=[victim, failed(1, 7, at=1.5)],
        errors={0: report} if report else {},
        tails={0: tail},
    )
    diagnosis = diagnose(facts)
    assert diagnosis.root == 1
    assert "process 1 exited with code 7" in diagnosis.sentence


def test_among_victims_only_the_first_counts() -> None:
    facts = Facts("j", [failed(0, 134, at=2.0), failed(1, 134, at=1.0)])
    assert diagnose(facts).root == 1


def test_the_last_reported_step_stands_in() -> None:
    facts = Facts("j", [failed(0, -signal.SIGKILL)], last_step=40)
    assert "after step 40" in diagnose(facts).sentence


@pytest.mark.parametrize(
    ("overdue", "processes", "arrived", "root", "part"),
    [
        (Overdue.START, [ProcessStatus(0), ProcessStatus(1)], {0}, 1, "process 1 never joined"),
        (Overdue.START, [ProcessStatus(0), ProcessStatus(1, suspended=True)], {0}, 1, "suspended"),
        (Overdue.STALL, [ProcessStatus(0), ProcessStatus(1, suspended=True)], {0, 1}, 1,
         "process 1 is suspended"),
        (Overdue.STALL, [ProcessStatus(0), ProcessStatus(1)], {0, 1}, None, "no process wrote"),
        (Overdue.DEADLINE, [ProcessStatus(0)], {0}, None, "still running after step 3"),
        (Overdue.QUEUE, [], set(), None, "no queue admitted it"),
    ],
)  # fmt: skip
def test_limits(
    overdue: Overdue,
    processes: list[ProcessStatus],
    arrived: set[int],
    root: int | None,
    part: str,
) -> None:
    facts = Facts(
        "j", processes, arrived=frozenset(arrived), overdue=overdue, limit=30.0, last_step=3
    )
    diagnosis = diagnose(facts)
    assert diagnosis.reason == overdue.value
    assert diagnosis.root == root
    assert part in diagnosis.sentence
    assert "30 s" in diagnosis.sentence


def test_many_processes_are_not_all_listed() -> None:
    facts = Facts("j", [ProcessStatus(n) for n in range(100)], overdue=Overdue.START, limit=1.0)
    assert "processes 0, 1, 2, 3, 4 and 95 more" in diagnose(facts).sentence
