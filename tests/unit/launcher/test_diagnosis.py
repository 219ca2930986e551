import signal
from pathlib import Path

import pytest
from kfp_jax.diagnosis import RULES, Facts, diagnose
from kfp_jax.reports import Kind, Report
from kfp_jax.status import (
    DELETED,
    EXIT_BAD_INPUT,
    EXIT_DIVERGED,
    EXIT_STOPPED,
    FOREIGN_JOBSET,
    INIT_FAILED,
    JOB_REFUSED,
    POD_REFUSED,
    QUOTA,
    WEBHOOK_DOWN,
    Overdue,
    ProcessStatus,
)

GLOO = "Gloo all-reduce failed: [...] Connection closed by peer [127.0.0.1]:43210"


def failed(
    process: int, code: int | None, at: float = 1.0, reason: str = "", message: str = ""
) -> ProcessStatus:
    return ProcessStatus(
        process, alive=False, exit_code=code, failed_at=at, reason=reason, message=message
    )


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
        (failed(1, 137, reason="OOMKilled"), None, ("step 3",), "out-of-memory",
         ("process 1 was killed (OOMKilled), its pod had used up its memory; raise the memory",)),
        (failed(1, 137, reason="OOMKilled", message="pod j-node-0-1-abcde, limit 2Gi"), None, (),
         "out-of-memory",
         ("(OOMKilled), its pod had used up its memory (pod j-node-0-1-abcde, limit 2Gi); raise",)),
        (failed(1, 137, reason="Evicted", message="The node was low on memory"), None, (),
         "evicted", ("was evicted from its machine (The node was low on memory); run the same",)),
        (failed(1, None, reason="PreemptionByScheduler"), None, (), "evicted",
         ("made room for a pod of higher priority",)),
        (failed(1, None, reason="DeletionByTaintManager"), None, (), "evicted", ("its machine",)),
        (failed(1, 143, reason="NodeShutdown"), None, (), "evicted", ("was shut down",)),
        (failed(1, 143, reason="EvictionByEvictionAPI"), None, (), "evicted", ("in a drain",)),
        (failed(1, None, reason=DELETED), None, (), "evicted",
         ("the pod of process 1 was deleted by somebody",)),
        (failed(1, 128, reason="StartError", message="exec: no such file"), None, (),
         "not-started", ("could not be started (exec: no such file); check that the image",)),
        (failed(1, None, reason=INIT_FAILED, message="fetch exited with code 2"), None, (),
         "init-failed", ("an init container of process 1 failed (fetch exited with code 2)",)),
        (failed(1, 127), None, (), "not-started", ("its command was not found",)),
        (failed(1, 126), None, (), "not-started", ("may not be executed",)),
        (failed(1, 143), None, (), "stopped", ("told to stop from outside (SIGTERM)",)),
        # What the platform says of a process counts more than that it also sounds like a victim.
        (failed(1, 137, reason="OOMKilled"), None, (GLOO,), "out-of-memory", ("memory",)),
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
        (Overdue.DEADLINE, [ProcessStatus(0, alive=False)], {0}, None, "still running after step"),
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


@pytest.mark.parametrize(
    ("reason", "message", "said"),
    [
        ("DeadlineExceeded", "", "failed: the cluster ended it at its deadline; raise"),
        ("TrainingRuntimeNotSupported", "no r", "Trainer cannot use its runtime: no r; name"),
        ("ReachedMaxRestarts", "m", "all its restarts are used up: m"),
        ("FailedJobs", "job j-init failed", "(FailedJobs: job j-init failed), but no process"),
        ("", "", "failed, but no process of it did"),
    ],
)
def test_a_job_of_which_no_process_failed(reason: str, message: str, said: str) -> None:
    facts = Facts(job="j", processes=[ProcessStatus(0)], reason=reason, message=message)
    assert said in diagnose(facts).sentence


@pytest.mark.parametrize("overdue", [Overdue.START, Overdue.STALL, Overdue.DEADLINE])
@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("Unschedulable", "no machine has room for process 1: words; ask for less"),
        ("SchedulingGated", "a scheduling gate holds process 1 back"),
        ("ImagePullBackOff", "the image of process 1 cannot be pulled: words; check its name"),
        ("ErrImageNeverPull", "is not on its machine"),
        ("InvalidImageName", "has no valid name"),
        ("CreateContainerConfigError", "process 1 lacks something that it refers to"),
        ("CreateContainerError", "cannot be made"),
        ("RunContainerError", "cannot be run"),
        ("CrashLoopBackOff", "process 1 fails again and again"),
    ],
)
def test_what_keeps_a_process_from_starting(reason: str, said: str, overdue: Overdue) -> None:
    held = ProcessStatus(1, alive=False, reason=reason, message="words")
    facts = Facts(
        job="j",
        processes=[ProcessStatus(0), held],
        arrived=frozenset({0}),
        overdue=overdue,
        limit=60.0,
    )
    diagnosis = diagnose(facts)
    assert said in diagnosis.sentence
    assert (diagnosis.reason, diagnosis.root) == (overdue.value, 1)


@pytest.mark.parametrize("overdue", [Overdue.START, Overdue.STALL, Overdue.DEADLINE])
@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("FailedMount", "a volume cannot be mounted: words; check the volumes"),
        (QUOTA, "the namespace's quota leaves no room for it: words"),
        (POD_REFUSED, "the cluster refuses its pods: words"),
        (JOB_REFUSED, "its controller cannot make what it needs: words"),
        (WEBHOOK_DOWN, "the cluster's admission does not answer: words"),
        (FOREIGN_JOBSET, "words, so its own cannot be made; delete that JobSet"),
    ],
)
def test_what_keeps_a_job_from_having_processes(reason: str, said: str, overdue: Overdue) -> None:
    facts = Facts(
        job="j",
        processes=[ProcessStatus(0, alive=False)],
        reason=reason,
        message="words",
        overdue=overdue,
        limit=60.0,
    )
    assert said in diagnose(facts).sentence


def test_a_deadline_before_the_start_does_not_say_that_it_ran() -> None:
    waiting = [ProcessStatus(0, alive=False), ProcessStatus(1, alive=False)]
    sentence = diagnose(Facts("j", waiting, overdue=Overdue.DEADLINE, limit=15.0)).sentence
    assert "after 15 s: it had not started yet; raise the deadline, or look" in sentence


def test_restarts_that_did_not_help_are_told() -> None:
    facts = Facts(job="j", processes=[failed(0, 1)], restarts=2)
    assert diagnose(facts).sentence.startswith("Job j failed after 2 restarts: process 0")


def test_the_page_on_trouble_lists_every_reason() -> None:
    page = (Path(__file__).parents[3] / "docs" / "troubleshooting.md").read_text()
    reasons = {rule.reason for rule in RULES} | {item.value for item in Overdue}
    assert [reason for reason in sorted(reasons) if f"\n| `{reason}` |" not in page] == []
