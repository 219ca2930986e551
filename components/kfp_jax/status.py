"""What a job is doing, and how it ended: values and the pure rules that make them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kfp_jax.errors import JobCancelled, JobError, JobFailed, JobLost, JobTimeout, SpecError
from kfp_jax.reports import json_number

RESULT_SCHEMA = 1

BAD_INPUT = "bad-input"  # the reason of a job that refused what it was given

EXIT_BAD_INPUT = 64  # unknown module, function or parameter
EXIT_DIVERGED = 65  # a loss that is not finite
EXIT_STOPPED = 75  # saved and left because it was asked to
# The same input gives the same end: another attempt would only cost time.
FINAL_EXITS = frozenset({EXIT_BAD_INPUT, EXIT_DIVERGED})


# Our words, in `reason`, for what Kubernetes has none of its own for.
DELETED = "Deleted"  # somebody deleted the pod
INIT_FAILED = "InitContainerFailed"
OUT_OF_MEMORY = "OOMKilled"  # as Kubernetes says it
QUOTA = "QuotaExceeded"
POD_REFUSED = "PodRefused"
JOB_REFUSED = "JobRefused"  # the controller cannot make the JobSet, or its parts
WEBHOOK_DOWN = "WebhookDown"
FOREIGN_JOBSET = "ForeignJobSet"
SIDECAR = "SidecarRuns"  # another container outlives the training in its pod
FAILING = "Failing"  # a process has failed, and nothing will start it again


class Phase(StrEnum):
    """Where a job stands: PENDING to RUNNING in this order, RESTARTING leads back to STARTING."""

    PENDING = "PENDING"  # accepted, nothing runs yet
    QUEUED = "QUEUED"  # suspended by a queue
    STARTING = "STARTING"  # processes start and look for each other
    RUNNING = "RUNNING"  # every process has joined
    RESTARTING = "RESTARTING"  # a failure; the whole set starts again
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"  # ended by us on request
    LOST = "LOST"  # gone, deleted by somebody else

    @property
    def finished(self) -> bool:
        """Whether nothing more will happen."""
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED, Phase.LOST)


class Overdue(StrEnum):
    """Which limit ran out; the values are reasons of a failed job."""

    QUEUE = "queue-timeout"
    START = "start-timeout"
    STALL = "stalled"
    DEADLINE = "deadline"


@dataclass(frozen=True)
class ProcessStatus:
    """One process of the job.

    Attributes:
        process: Its JAX process id.
        alive: Whether it still runs.
        exit_code: As the parent sees it: -9 for a SIGKILL; None while it runs.
        failed_at: When it failed by itself, by any one clock; None when it did not, or was ended
            with the others.
        suspended: Whether it is stopped by a signal (SIGSTOP) or a debugger.
        reason: The platform's word for its end, or for why it does not run yet, or "".
        message: The platform's sentence on that, or "".
    """

    process: int
    alive: bool = True
    exit_code: int | None = None
    failed_at: float | None = None
    suspended: bool = False
    reason: str = ""
    message: str = ""


@dataclass(frozen=True)
class JobStatus:
    """What a backend knows of a job at one moment.

    Attributes:
        phase: Where it stands.
        reason: The platform's word for its end, or for what holds it up, or "".
        message: The platform's sentence on that, or "".
        restarts: How often the set was started again.
        processes: One for each, in their order.
    """

    phase: Phase
    reason: str = ""
    message: str = ""
    restarts: int = 0
    processes: tuple[ProcessStatus, ...] = ()


class Action(StrEnum):
    """What to do next with a set of local processes."""

    WAIT = "wait"
    KILL = "kill"
    RESTART = "restart"
    FINISH = "finish"


def next_action(
    processes: Sequence[ProcessStatus],
    *,
    restarts_left: int,
    cancelled_for: float | None,
    failed_for: float | None,
    grace: float,
) -> Action:
    """Returns what to do with the processes of one attempt.

    Args:
        processes: As they are now.
        restarts_left: How often the set may still be started again.
        cancelled_for: Seconds since the job was asked to stop, or None.
        failed_for: Seconds since the first process failed, or None.
        grace: Seconds that processes get to save and leave when they stop on request.
    """
    if any(item.alive for item in processes):
        if cancelled_for is not None:
            return Action.KILL if cancelled_for >= grace else Action.WAIT
        if failed_for is None:
            return Action.WAIT
        # All processes save together; the first to leave must not cost the others their checkpoint.
        saving = all(p.exit_code == EXIT_STOPPED for p in processes if p.failed_at is not None)
        return Action.WAIT if saving and failed_for < grace else Action.KILL
    codes = {item.exit_code for item in processes if item.failed_at is not None}
    if codes and cancelled_for is None and restarts_left > 0 and not codes & FINAL_EXITS:
        return Action.RESTART
    return Action.FINISH


def reduce_processes(
    processes: Sequence[ProcessStatus], *, restarts: int, cancelled: bool, action: Action
) -> JobStatus:
    """Returns the job's status from its processes and what is about to be done with them."""
    if action is not Action.FINISH:
        phase = Phase.RESTARTING if action is Action.RESTART else Phase.RUNNING
    elif cancelled:
        phase = Phase.CANCELLED
    elif all(item.exit_code == 0 for item in processes):
        phase = Phase.SUCCEEDED
    else:
        phase = Phase.FAILED
    return JobStatus(phase, restarts=restarts, processes=tuple(processes))


@dataclass(frozen=True)
class Outcome:
    """How a job ended: the content of `result.json`.

    Attributes:
        parameters: What the program trained with, its defaults included.
        seconds: `queued`, `starting`, `training` and `total`.
        attempts: How often the set was started.
        model_uri: The exported model, or "".
        versions: Of Python, JAX and the like, as the processes reported them.
        failed_process: The process with which a failure began, or None.
        last_lines: What that process wrote last.
    """

    job: str
    backend: str
    phase: Phase
    reason: str
    message: str
    program: str
    parameters: Mapping[str, Any]
    num_processes: int
    seconds: Mapping[str, float]
    metrics: Mapping[str, float]
    attempts: int
    output_uri: str
    dataset_uri: str
    model_uri: str
    versions: Mapping[str, str] = field(default_factory=dict)
    failed_process: int | None = None
    last_lines: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the content of `result.json`; numbers that are not finite become strings."""
        return {
            "schema": RESULT_SCHEMA,
            **vars(self),
            "metrics": {name: json_number(value) for name, value in self.metrics.items()},
            "last_lines": list(self.last_lines),
        }

    def error(self) -> JobError | SpecError | None:
        """Returns the error that stands for this outcome, or None for success."""
        match self.phase:
            case Phase.SUCCEEDED:
                return None
            case Phase.CANCELLED:
                return JobCancelled(self.message)
            case Phase.LOST:
                return JobLost(self.message)
        if self.reason in tuple(Overdue):
            return JobTimeout(self.message)
        if self.reason == BAD_INPUT:  # what only the processes could see, such as a broken file
            return SpecError(self.message)
        return JobFailed(self.message)
