"""Runs one job: submit or adopt, follow, cancel, collect. Spec in, `Outcome` out."""

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from kfp_jax import storage
from kfp_jax.backends.base import Backend, JobRef
from kfp_jax.clock import Clock, SystemClock
from kfp_jax.diagnosis import Diagnosis, Facts, diagnose
from kfp_jax.names import job_name
from kfp_jax.recorder import Recorder
from kfp_jax.sinks import NullSink, Sink
from kfp_jax.spec import Limits, TrainSpec
from kfp_jax.status import JobStatus, Outcome, Overdue, Phase


class Cancellation:
    """Somebody's wish that a job should stop; may be made at any moment and more than once."""

    def __init__(self) -> None:
        self.requested = False
        self._act: Callable[[], None] | None = None

    def request(self) -> None:
        """Asks the job to stop; a second time, not to wait for it to save."""
        self.requested = True
        if self._act:
            self._act()

    def bind(self, act: Callable[[], None] | None) -> None:
        """Says what stops the job; a wish made before is carried out now."""
        self._act = act
        if act and self.requested:
            act()


@contextmanager
def cancel_on_signals() -> Iterator[Cancellation]:
    """Turns SIGTERM and SIGINT into a `Cancellation`; only for the main thread of a program."""
    cancellation = Cancellation()

    def handle(number: int, frame: FrameType | None) -> None:
        cancellation.request()

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, handle) for number in numbers]
    try:
        yield cancellation
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@dataclass(frozen=True)
class Stages:
    """When a job passed from stage to stage, in seconds of the clock; None: not yet.

    Attributes:
        submitted: It was handed to the backend.
        admitted: No queue holds it back any more.
        attempt: Its current attempt began.
        joined: All processes had joined, for the first time.
        restarts: How often it had been restarted when this was made.
    """

    submitted: float
    admitted: float | None = None
    attempt: float | None = None
    joined: float | None = None
    restarts: int = 0

    def advanced(self, status: JobStatus, now: float) -> "Stages":
        """Returns the stages after a status."""
        waiting = status.phase in (Phase.PENDING, Phase.QUEUED)
        admitted = self.admitted if waiting or self.admitted is not None else now
        restarted = status.restarts > self.restarts
        return Stages(
            submitted=self.submitted,
            admitted=admitted,
            attempt=now
            if restarted or (self.attempt is None and admitted is not None)
            else self.attempt,
            joined=now if self.joined is None and status.phase is Phase.RUNNING else self.joined,
            restarts=status.restarts,
        )

    def seconds(self, end: float) -> dict[str, float]:
        """Returns the length of each stage of a job that ended then."""
        admitted = end if self.admitted is None else self.admitted
        joined = end if self.joined is None else self.joined
        lengths = {
            "queued": admitted - self.submitted,
            "starting": joined - admitted,
            "training": end - joined,
            "total": end - self.submitted,
        }
        return {name: round(max(0.0, length), 3) for name, length in lengths.items()}


def overdue(
    status: JobStatus, stages: Stages, limits: Limits, *, last_output: float, now: float
) -> tuple[Overdue, float] | None:
    """Returns the limit that has run out, with its seconds, or None. Four clocks, each its own."""

    def passed(since: float | None, limit: float) -> bool:
        return since is not None and limit > 0 and now - since >= limit

    if status.phase is Phase.QUEUED:
        late = passed(stages.submitted, limits.queue)
        return (Overdue.QUEUE, limits.queue) if late else None
    if passed(stages.admitted, limits.deadline):
        return Overdue.DEADLINE, limits.deadline
    starting = status.phase in (Phase.STARTING, Phase.RESTARTING)
    if starting and passed(stages.attempt, limits.start):
        return Overdue.START, limits.start
    if stages.attempt is not None and passed(max(last_output, stages.attempt), limits.stall):
        return Overdue.STALL, limits.stall
    return None


def launch(
    spec: TrainSpec,
    backend: Backend,
    *,
    identity: str = "",
    sink: Sink | None = None,
    clock: Clock | None = None,
    cancellation: Cancellation | None = None,
) -> Outcome:
    """Runs a job to its end and returns how it ended; a failed job is an outcome, not an error.

    `result.json`, `history.jsonl` and the logs lie in the output folder afterwards. Nothing of the
    job runs on when this returns or raises.

    Args:
        spec: What to train.
        backend: Where.
        identity: What is equal when this launch is tried again; the output folder by default.
        sink: Takes the news while the job runs.
        clock: Time.
        cancellation: Lets others stop the job.

    Raises:
        SpecError: The input is wrong; nothing was started.
        ClusterError: The backend refused or did not answer.
        OutputError: A result could not be written.
    """
    sink = sink or NullSink()
    clock = clock or SystemClock()
    cancellation = cancellation or Cancellation()
    for warning in backend.validate(spec):
        sink.note(warning)
    with storage.output_folder(spec.output_uri) as folder:
        ref = JobRef(backend.name, job_name(spec.name, identity or str(folder), 1))
        recorder = Recorder(folder, clock, sink)
        stages = Stages(clock.now())
        ref = backend.submit(spec, ref)
        reader = threading.Thread(
            target=recorder.consume, args=(backend.logs(ref),), name=f"logs of {ref.name}"
        )
        try:
            reader.start()
            cancellation.bind(lambda: backend.cancel(ref))
            end = _follow(spec, backend, ref, recorder, stages, sink, clock)
        finally:
            cancellation.bind(None)
            backend.delete(ref)
            reader.join()
        if recorder.problem:
            raise recorder.problem
        outcome = _collect(spec, ref, end, recorder, folder)
        storage.write_json(folder / "result.json", outcome.to_json())
    sink.status(ref.name, JobStatus(outcome.phase, restarts=outcome.attempts - 1))
    return outcome


@dataclass(frozen=True)
class _End:
    """The last status, the stages' lengths, and the limit that ended the job, if one did."""

    status: JobStatus
    seconds: dict[str, float]
    overdue: Overdue | None = None
    limit: float = 0.0


def _follow(
    spec: TrainSpec,
    backend: Backend,
    ref: JobRef,
    recorder: Recorder,
    stages: Stages,
    sink: Sink,
    clock: Clock,
) -> _End:
    """Follows the job until it is finished or a limit runs out."""
    shown: Phase | None = None
    status = JobStatus(Phase.PENDING)
    for reported in backend.watch(ref):
        status = _with_joined(reported, spec, len(recorder.joined))
        now = clock.now()
        stages = stages.advanced(status, now)
        if status.phase.finished:
            break
        if status.phase is not shown:
            shown = status.phase
            sink.status(ref.name, status)
        late = overdue(status, stages, spec.limits, last_output=recorder.last_output, now=now)
        if late:
            return _End(status, stages.seconds(now), *late)
        if recorder.problem:
            raise recorder.problem
    return _End(status, stages.seconds(clock.now()))


def _with_joined(status: JobStatus, spec: TrainSpec, joined: int) -> JobStatus:
    """Returns the status with STARTING until all processes of one of our programs have joined."""
    if status.phase is Phase.RUNNING and spec.program and joined < spec.num_nodes:
        return replace(status, phase=Phase.STARTING)
    return status


def _collect(spec: TrainSpec, ref: JobRef, end: _End, recorder: Recorder, folder: Path) -> Outcome:
    """Puts together how the job ended."""
    phase, diagnosis = _verdict(spec, ref, end, recorder)
    result = recorder.result
    model = result.fields.get("model") if result and phase is Phase.SUCCEEDED else None
    versions = result.fields.get("versions", {}) if result else {}
    parameters = recorder.parameters
    root = diagnosis.root
    return Outcome(
        job=ref.name,
        backend=ref.backend,
        phase=phase,
        reason=diagnosis.reason,
        message=diagnosis.sentence,
        program=spec.program or " ".join(spec.command),
        parameters=parameters if isinstance(parameters, dict) else dict(spec.parameters),
        num_processes=spec.num_nodes,
        seconds=end.seconds,
        metrics=dict(recorder.values),
        attempts=end.status.restarts + 1,
        output_uri=str(folder),
        dataset_uri=spec.dataset_uri,
        model_uri=str(folder / model) if isinstance(model, str) else "",
        versions=versions if isinstance(versions, dict) else {},
        failed_process=root,
        last_lines=recorder.tails().get(root, ()) if root is not None else (),
    )


def _verdict(
    spec: TrainSpec, ref: JobRef, end: _End, recorder: Recorder
) -> tuple[Phase, Diagnosis]:
    """Returns the final phase and why; a job that succeeded without its objective has failed."""
    phase = end.status.phase
    if phase is Phase.SUCCEEDED:
        problem = _objective_problem(spec.objective, recorder.values)
        if not problem:
            return phase, Diagnosis("", "")
        return Phase.FAILED, Diagnosis(*problem)
    if phase is Phase.CANCELLED:
        return phase, Diagnosis("cancelled", f"Job {ref.name} was cancelled{_after(recorder)}.")
    if phase is Phase.LOST:
        return phase, Diagnosis("lost", f"Job {ref.name} was deleted by somebody else.")
    facts = Facts(
        job=ref.name,
        processes=end.status.processes,
        errors=dict(recorder.errors),
        tails=recorder.tails(),
        arrived=recorder.arrived,
        last_step=recorder.last_step,
        overdue=end.overdue,
        limit=end.limit,
    )
    return Phase.FAILED, diagnose(facts)


def _objective_problem(objective: str, values: dict[str, float]) -> tuple[str, str] | None:
    if not objective:
        return None
    if objective not in values:
        found = ", ".join(sorted(values)) or "none at all"
        return "missing-objective", (
            f"The program ended without the metric {objective!r}, it gave {found}; return it from"
            " the program or name another objective."
        )
    if not math.isfinite(values[objective]):
        return "diverged", (
            f"The metric {objective!r} ended as {values[objective]}; lower the learning rate or"
            " look at the data."
        )
    return None


def _after(recorder: Recorder) -> str:
    return f" after step {recorder.last_step}" if recorder.last_step is not None else ""
