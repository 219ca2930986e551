"""How long a job has been in each stage, and which of its limits has run out. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kfp_jax.spec import Limits
from kfp_jax.status import FOREIGN_JOBSET, JOB_REFUSED, POD_REFUSED, JobStatus, Overdue, Phase

# What waiting does not mend: for how many seconds it may hold a job up all the same, as somebody
# may be about to mend it. Everything else, such as no room, has the limit of the start.
PATIENCE: Mapping[str, float] = {
    "InvalidImageName": 10.0,
    "ErrImageNeverPull": 10.0,
    "CreateContainerConfigError": 60.0,
    "CreateContainerError": 60.0,
    "RunContainerError": 60.0,
    "ImagePullBackOff": 180.0,
    POD_REFUSED: 60.0,
    JOB_REFUSED: 60.0,
    FOREIGN_JOBSET: 60.0,
}


@dataclass(frozen=True)
class Stages:
    """When a job passed from stage to stage, in seconds of the clock; None: not yet.

    Attributes:
        submitted: It was handed to the backend.
        admitted: No queue holds it back any more.
        attempt: Its current attempt began.
        joined: All processes had joined, for the first time.
        restarts: How often it had been restarted when this was made.
        held_by: What the platform says keeps it from starting, or "".
        held: It has said so.
        requeued: A queue took back its place; None while none holds it back again.
    """

    submitted: float
    admitted: float | None = None
    attempt: float | None = None
    joined: float | None = None
    restarts: int = 0
    held_by: str = ""
    held: float | None = None
    requeued: float | None = None

    def advanced(self, status: JobStatus, now: float) -> "Stages":
        """Returns the stages after a status."""
        if self.admitted is not None and status.phase is Phase.QUEUED:
            return replace(self, requeued=now if self.requeued is None else self.requeued)
        if self.requeued is not None:
            return self._readmitted(now).advanced(status, now)
        waiting = status.phase in (Phase.PENDING, Phase.QUEUED)
        admitted = self.admitted if waiting or self.admitted is not None else now
        restarted = status.restarts > self.restarts
        held_by = status.reason if status.phase is Phase.STARTING else ""
        return Stages(
            submitted=self.submitted,
            admitted=admitted,
            attempt=now
            if restarted or (self.attempt is None and admitted is not None)
            else self.attempt,
            joined=now if self.joined is None and status.phase is Phase.RUNNING else self.joined,
            restarts=status.restarts,
            held_by=held_by,
            held=self.held if held_by == self.held_by else now,
        )

    def seconds(self, end: float) -> dict[str, float]:
        """Returns the length of each stage of a job that ended then."""
        if self.requeued is not None:
            return self._readmitted(end).seconds(end)
        admitted = end if self.admitted is None else self.admitted
        joined = end if self.joined is None else self.joined
        lengths = {
            "queued": admitted - self.submitted,
            "starting": joined - admitted,
            "training": end - joined,
            "total": end - self.submitted,
        }
        return {name: round(max(0.0, length), 3) for name, length in lengths.items()}

    def _readmitted(self, now: float) -> "Stages":
        """Returns the stages after another wait: all before it moves by its length.

        So a wait counts as queued, and against neither deadline nor start.
        """
        waited = now - (now if self.requeued is None else self.requeued)
        return replace(
            self,
            admitted=None if self.admitted is None else self.admitted + waited,
            joined=None if self.joined is None else self.joined + waited,
            attempt=now,
            requeued=None,
        )


def overdue(
    status: JobStatus, stages: Stages, limits: Limits, *, last_output: float, now: float
) -> tuple[Overdue, float] | None:
    """Returns the limit that has run out, with its seconds, or None. Four clocks, each its own."""

    def passed(since: float | None, limit: float) -> bool:
        return since is not None and limit > 0 and now - since >= limit

    if status.phase is Phase.QUEUED:
        since = stages.submitted if stages.requeued is None else stages.requeued
        late = passed(since, limits.queue)
        return (Overdue.QUEUE, limits.queue) if late else None
    if passed(stages.admitted, limits.deadline):
        return Overdue.DEADLINE, limits.deadline
    starting = status.phase in (Phase.STARTING, Phase.RESTARTING)
    if starting and passed(stages.attempt, limits.start):
        return Overdue.START, limits.start
    patience = PATIENCE.get(stages.held_by, 0.0)
    if limits.start and passed(stages.held, patience):
        return Overdue.START, patience
    if stages.attempt is not None and passed(max(last_output, stages.attempt), limits.stall):
        return Overdue.STALL, limits.stall
    return None
