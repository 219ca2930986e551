"""Runs one job: submit, follow, cancel, collect. Spec in, `Outcome` out."""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kfp_jax_store import is_remote, join

from kfp_jax import storage
from kfp_jax.backends.base import Backend, JobRef
from kfp_jax.cancellation import Cancellation
from kfp_jax.clock import Clock, SystemClock
from kfp_jax.contained import path_below, refuse_links
from kfp_jax.diagnosis import Diagnosis, Facts, diagnose
from kfp_jax.errors import ClusterError, JobCancelled, OutputError
from kfp_jax.names import job_name
from kfp_jax.recorder import Recorder
from kfp_jax.sinks import NullSink, Sink
from kfp_jax.spec import TrainSpec
from kfp_jax.stages import Stages, overdue
from kfp_jax.status import JobStatus, Outcome, Overdue, Phase


def launch(
    spec: TrainSpec,
    backend: Backend,
    *,
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
        sink: Takes the news while the job runs.
        clock: Time.
        cancellation: Lets others stop the job.

    Raises:
        SpecError: The input is wrong; nothing was started.
        ClusterError: The backend refused or did not answer.
        OutputError: A result could not be written, or is not where launcher and nodes both see it.
        JobCancelled: The job was cancelled before it was started.
    """
    sink = sink or NullSink()
    cancellation = cancellation or Cancellation()
    for warning in backend.validate(spec, lambda: cancellation.requested):
        sink.note(warning)
    return run_job(spec, backend, sink=sink, clock=clock, cancellation=cancellation)


def run_job(
    spec: TrainSpec,
    backend: Backend,
    *,
    sink: Sink,
    cancellation: Cancellation,
    clock: Clock | None = None,
    keep: Callable[[Outcome], None] = lambda _: None,
) -> Outcome:
    """Runs a job that the backend has validated, or one like it, as `launch` does.

    Args:
        spec: What to train.
        backend: Where.
        sink: Takes the news while the job runs.
        cancellation: Lets others stop the job.
        clock: Time.
        keep: Called with a job's outcome while the job is still there: a launcher that is killed
            has either kept the outcome or finds the job again.

    Raises:
        KfpJaxError: As `launch`.
    """
    clock = clock or SystemClock()
    ref = job_ref(spec, backend)
    with (
        storage.output_folder(spec.output_uri) as folder,
        Recorder(folder, clock, sink) as recorder,
    ):
        if cancellation.requested:
            raise JobCancelled(f"Job {ref.name} was cancelled before it was started.")
        storage.forget_results(folder)
        with _submitted(spec, backend, ref, recorder, sink) as job:
            end = job.followed(clock, cancellation)
            outcome = _collect(spec, job.ref, end, recorder, folder)
            storage.write_json(folder / storage.RESULT, outcome.to_json())
            keep(outcome)
        _check_model(outcome, folder)
    sink.status(ref.name, JobStatus(outcome.phase, restarts=outcome.attempts - 1))
    return outcome


def job_ref(spec: TrainSpec, backend: Backend) -> JobRef:
    """Returns what a spec's job is called on a backend: the same for the same output folder."""
    identity = storage.identity(spec.output_uri, "output_uri")
    return JobRef(backend.name, job_name(spec.name, identity, 1))


@dataclass(frozen=True)
class _End:
    """The last status, the stages' lengths, and the limit that ended the job, if one did."""

    status: JobStatus
    seconds: dict[str, float]
    overdue: Overdue | None = None
    limit: float = 0.0


@contextmanager
def _submitted(
    spec: TrainSpec, backend: Backend, ref: JobRef, recorder: Recorder, sink: Sink
) -> Iterator["_Job"]:
    """Submits the job and has its lines read; nothing of it runs on after the block."""
    ref = backend.submit(spec, ref)
    reader = None
    try:
        lines = backend.logs(ref)
        reader = threading.Thread(target=recorder.consume, args=(lines,), name="logs")
        reader.start()
        yield _Job(spec, backend, ref, recorder, sink, reader)
    finally:
        _delete(backend, ref, sink)
        if reader and reader.ident:
            reader.join()


def _delete(backend: Backend, ref: JobRef, sink: Sink) -> None:
    try:
        backend.delete(ref)
    except ClusterError as error:
        sink.note(f"Job {ref.name} could not be deleted: {error}")


@dataclass(frozen=True)
class _Job:
    """A submitted job, and the thread that reads its lines."""

    spec: TrainSpec
    backend: Backend
    ref: JobRef
    recorder: Recorder
    sink: Sink
    reader: threading.Thread

    def followed(self, clock: Clock, cancellation: Cancellation) -> _End:
        """Follows the job until it has ended and all its lines are read."""
        with cancellation.carried_out_by(self._cancel):
            end = self._follow(clock, Stages(clock.now()))
        if end.overdue:
            _delete(self.backend, self.ref, self.sink)
        self.reader.join()
        if self.recorder.problem:
            raise self.recorder.problem
        return end

    def _cancel(self) -> None:
        try:
            self.backend.cancel(self.ref)
        except ClusterError as error:
            self.sink.note(f"Job {self.ref.name} could not be cancelled: {error}")

    def _follow(self, clock: Clock, stages: Stages) -> _End:
        """Follows the job until it is finished or a limit runs out."""
        spec, recorder = self.spec, self.recorder
        shown: tuple[Phase, str] | None = None
        status = JobStatus(Phase.PENDING)
        for reported in self.backend.watch(self.ref):
            status = reported
            if not recorder.deaf:
                status = _with_joined(reported, spec, len(recorder.joined))
            now = clock.now()
            stages = stages.advanced(status, now)
            if status.phase.finished:
                break
            if (status.phase, status.reason) != shown:
                shown = (status.phase, status.reason)
                self.sink.status(self.ref.name, status)
            heard = now if recorder.deaf else recorder.last_output
            late = overdue(status, stages, spec.limits, last_output=heard, now=now)
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
    output = storage.place(spec.output_uri, "output_uri")
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
        output_uri=output,
        dataset_uri=spec.dataset_uri,
        model_uri=_model_uri(output, folder, model) if isinstance(model, str) else "",
        versions=versions if isinstance(versions, dict) else {},
        failed_process=root,
        last_lines=recorder.tails().get(root, ()) if root is not None else (),
    )


def _model_uri(output: str, folder: Path, name: str) -> str:
    return join(output, str(path_below(folder, name, "Model").relative_to(folder)))


def _check_model(outcome: Outcome, folder: Path) -> None:
    """Refuses a model that only the nodes can see, or that leads elsewhere."""
    if outcome.model_uri and not storage.exists(outcome.model_uri):
        remedy = (
            "see that both reach the same store, by the same AWS_ENDPOINT_URL"
            if is_remote(outcome.model_uri)
            else "give an output_uri on a volume that launcher and nodes mount at the same path"
        )
        raise OutputError(
            f"Job {outcome.job} wrote its model to {outcome.model_uri}, but here that is not there;"
            f" {remedy}."
        )
    if is_remote(outcome.output_uri):
        return  # objects are no links
    # One that is not told of is an artifact, too.
    for model in {folder / "model", Path(outcome.model_uri or folder / "model")}:
        refuse_links(model, "Model")


def _verdict(
    spec: TrainSpec, ref: JobRef, end: _End, recorder: Recorder
) -> tuple[Phase, Diagnosis]:
    """Returns the final phase and why; a job that succeeded without its objective has failed."""
    phase = end.status.phase
    if phase is Phase.SUCCEEDED:
        # What nobody could hear is not missing.
        problem = not recorder.deaf and _objective_problem(spec.objective, recorder.values)
        if not problem:
            return phase, Diagnosis("", "")
        return Phase.FAILED, Diagnosis(*problem)
    if phase is Phase.CANCELLED:
        return phase, Diagnosis("cancelled", f"Job {ref.name} was cancelled{_after(recorder)}.")
    if phase is Phase.LOST:
        return phase, Diagnosis(
            "lost",
            f"Job {ref.name} was deleted by somebody else{_after(recorder)}; find out who, and run"
            " the same command again to go on from its last checkpoint, if it has one.",
        )
    facts = Facts(
        job=ref.name,
        processes=end.status.processes,
        reason=end.status.reason,
        message=end.status.message,
        restarts=end.status.restarts,
        errors=dict(recorder.errors),
        tails=recorder.tails(),
        # A command tells nobody when it joins, and one that cannot be heard neither.
        arrived=recorder.arrived
        if spec.program and not recorder.deaf
        else frozenset(range(spec.num_nodes)),
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
