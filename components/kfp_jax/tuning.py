"""Runs a sweep: trials as jobs of a backend, several at once. `SweepSpec` in, `SweepEnd` out."""

import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Protocol

from kfp_jax import storage
from kfp_jax.backends.base import Backend, JobRef, LogLine
from kfp_jax.backends.warm import WarmBackend
from kfp_jax.cancellation import Cancellation
from kfp_jax.clock import Clock, SystemClock
from kfp_jax.errors import JobCancelled, KfpJaxError, NotFound
from kfp_jax.launch import job_ref, run_job
from kfp_jax.manifests.identity import STUDY
from kfp_jax.names import job_name
from kfp_jax.reports import Report
from kfp_jax.spec import TrainSpec
from kfp_jax.status import JobStatus, Outcome, Phase
from kfp_jax.sweep.end import End, SweepEnd
from kfp_jax.sweep.pruning import should_prune
from kfp_jax.sweep.spec import SweepSpec
from kfp_jax.sweep.suggestions import suggest, warm_start_problem
from kfp_jax.sweep.trial import Trial, TrialState, extended
from kfp_jax.trial_end import ended, point_of, stopped

_LOOK_SECONDS = 0.2
_PRUNE_SECONDS = 2.0
_PARALLEL_ON_A_CLUSTER = 4


class SweepSink(Protocol):
    """Takes the news of a sweep, from the threads of its trials, one call at a time."""

    def kept(self, trials: Sequence[Trial]) -> None:
        """Takes, before all else, the trials that an earlier start has brought to their end."""
        ...

    def trial(self, trial: Trial, phase: Phase) -> None:
        """Takes a trial that was started, has reported the objective, or has ended."""
        ...

    def note(self, text: str) -> None:
        """Takes a sentence of the launcher's own."""
        ...


class Journal(Protocol):
    """Remembers the trials of a sweep when the launcher does not live to."""

    def read(self) -> list[Trial]:
        """Returns the trials as they were last written."""
        ...

    def write(self, trial: Trial) -> None:
        """Writes a trial whole, or not at all."""
        ...


def run_sweep(
    spec: SweepSpec,
    backend: Backend,
    journal: Journal,
    *,
    sink: SweepSink,
    cancellation: Cancellation,
    clock: Clock | None = None,
) -> SweepEnd:
    """Runs trials until enough have ended; a failed trial is a result, not an error.

    Goes on with what the journal holds: finished trials stay as they are, those that were running
    are run again under their numbers, and a cluster's job that still runs is adopted, before any
    other trial is started. What is left of an earlier sweep in the same folder is no result of this
    one.

    Args:
        spec: What to try.
        backend: Where the trials run.
        journal: What was tried.
        sink: Takes the news.
        cancellation: Lets others stop the sweep: its trials save and end.
        clock: Time.

    Raises:
        SpecError: The job of the first trial is refused; nothing was started.
        ClusterError: The backend does not answer.
        OutputError: The journal cannot be written.
    """
    sweep = _Sweep(spec, backend, journal, sink, clock or SystemClock())
    with cancellation.carried_out_by(sweep.stop):
        return sweep.run(lambda: cancellation.requested)


_PHASES = {
    TrialState.COMPLETE: Phase.SUCCEEDED,
    TrialState.PRUNED: Phase.CANCELLED,
    TrialState.STOPPED: Phase.CANCELLED,
    TrialState.FAILED: Phase.FAILED,
}


def study_name(job: TrainSpec) -> str:
    """Returns what a sweep's jobs have in common: the same for the same output folder."""
    identity = storage.identity(job.output_uri, "output_uri")
    return _all_attempts(job_name(job.name, identity, 1))


def _all_attempts(name: str) -> str:
    return name.rpartition("-")[0]


def default_parallel(backend: Backend, num_nodes: int) -> int:
    """Returns how many trials run at once where nobody says: here, one on each core."""
    if backend.name != "local":
        return _PARALLEL_ON_A_CLUSTER
    return max(1, len(os.sched_getaffinity(0)) // num_nodes)


@contextmanager
def trial_backend(backend: Backend, parallel: int) -> Iterator[Backend]:
    """Gives the backend for trials: on this machine, of warm workers that many trials share."""
    if backend.name != "local":
        yield backend
        return
    with WarmBackend(parallel) as workers:
        yield workers


class _Sweep:
    """The trials of a running sweep. Its lock is held for each change and each news of one."""

    def __init__(
        self, spec: SweepSpec, backend: Backend, journal: Journal, sink: SweepSink, clock: Clock
    ) -> None:
        self.objective = spec.job.objective
        self._spec = spec
        self._backend = backend
        self._journal = journal
        self._sink = sink
        self._clock = clock
        self._trials = {trial.number: trial for trial in journal.read()}
        self._to_redo = sorted(n for n, t in self._trials.items() if _is_to_redo(t))
        self._next = max(self._trials, default=-1) + 1
        self._failed = sum(trial.state is TrialState.FAILED for trial in self._trials.values())
        # Times of an earlier start lie before those of this one.
        before = (trial.started + trial.seconds for trial in self._trials.values())
        self._began = clock.now() - max(before, default=0.0)
        self._deadline = clock.now() + (spec.time_budget or math.inf)
        self._running: dict[int, Cancellation] = {}
        self._ended: SimpleQueue[tuple[int, BaseException | None]] = SimpleQueue()
        self._lock = threading.RLock()
        self._validated = False
        self._trouble: KfpJaxError | None = None
        self._left: dict[str, JobRef] = {}  # by what all attempts' names begin with

    def run(self, cancelled: Callable[[], bool]) -> SweepEnd:
        """Starts trials, and waits for those that run, until there is nothing more to do."""
        none_left: End | None = None
        self._sink.kept([trial for trial in self._trials.values() if not _is_to_redo(trial)])
        self._tell_of_warm_start()
        self._find_left()
        try:
            while True:
                over = self._over(cancelled)
                while not (over or none_left) and self._has_room():
                    none_left = self._start_next(cancelled)
                    over = self._over(cancelled)
                if not self._running:
                    return self._ended_by(over, none_left)
                if over in (End.TIME_BUDGET, End.FAILED_BUDGET, End.TROUBLE):
                    self._stop_once()
                self._wait_for_one()
        finally:
            self._abandon()

    def _has_room(self) -> bool:
        # What runs already is followed, however many may: left alone it would run all the same.
        left = bool(self._to_redo) and self._left_of(self._to_redo[0]) is not None
        return left or len(self._running) < self._spec.parallel

    def _find_left(self) -> None:
        """Looks for jobs of an earlier launcher, which was killed, and puts their trials first."""
        refs = self._backend.find({STUDY: study_name(self._spec.job)})
        self._left = {_all_attempts(ref.name): ref for ref in refs}
        self._to_redo.sort(key=lambda number: (self._left_of(number) is None, number))

    def _left_of(self, number: int) -> JobRef | None:
        if not self._left:
            return None
        ref = job_ref(self._spec.trial_job(number, {}), self._backend)
        return self._left.get(_all_attempts(ref.name))

    def _drop_left(self, number: int) -> None:
        """Deletes a job that has ended and is of another sweep, to which this folder belonged."""
        ref = self._left_of(number)
        if ref is None:
            return
        with suppress(NotFound):
            status = next(iter(self._backend.watch(ref)), None)
            if status and status.phase.finished:
                self._backend.delete(ref)

    def _tell_of_warm_start(self) -> None:
        said = warm_start_problem(self._spec.study, self._spec.earlier)
        if said:
            self._sink.note(said)

    def stop(self) -> None:
        """Asks all running trials to stop; a second time, not to wait for them to save."""
        with self._lock:
            for cancellation in self._running.values():
                cancellation.request()

    def _ended_by(self, over: End | None, none_left: End | None) -> SweepEnd:
        trials = tuple(self._trials[number] for number in sorted(self._trials))
        stopped = any(trial.state is TrialState.STOPPED for trial in trials)
        asked = self._spec.study.max_trials
        if none_left is None and asked and len(trials) >= asked:
            none_left = End.DONE
        # A budget that ran out, or a cancel that came, at the very end has cost nothing.
        whole = none_left and not stopped and over not in (End.FAILED_BUDGET, End.TROUBLE)
        why = none_left if whole else over
        seconds = self._clock.now() - self._began
        return SweepEnd(trials, why or End.DONE, seconds, self._trouble)

    def _stop_once(self) -> None:
        with self._lock:
            for cancellation in self._running.values():
                if not cancellation.requested:
                    cancellation.request()

    def _abandon(self) -> None:
        """Ends what an error has left running; nothing runs on after the sweep."""
        self.stop()
        self.stop()
        while self._running:
            self._running.pop(self._ended.get()[0])

    def _over(self, cancelled: Callable[[], bool]) -> End | None:
        if cancelled():
            return End.CANCELLED
        if self._trouble:
            return End.TROUBLE
        if self._failed > self._spec.most_failed:
            return End.FAILED_BUDGET
        return End.TIME_BUDGET if self._clock.now() >= self._deadline else None

    def _start_next(self, cancelled: Callable[[], bool]) -> End | None:
        """Starts one more trial, or returns why there is none."""
        with self._lock:
            if self._to_redo:
                number = self._to_redo.pop(0)
                parameters = self._trials[number].parameters
            else:
                number = self._next
                study = self._spec.study
                if study.max_trials and number >= study.max_trials:
                    return End.DONE
                known = list(self._trials.values())
                suggested = suggest(study, known, number, self._spec.earlier)
                if suggested is None:
                    return End.EXHAUSTED
                parameters = suggested
            job = self._spec.trial_job(number, parameters)
            if number == self._next:
                self._drop_left(number)
            if not self._validated:
                try:
                    warnings = self._backend.validate(job, cancelled)
                except JobCancelled:
                    return End.CANCELLED
                for warning in warnings:
                    self._sink.note(warning)
                self._validated = True
            started = self._clock.now() - self._began
            trial = Trial(number, parameters, started=started, output_uri=job.output_uri)
            self._write(trial)
            self._next = max(self._next, number + 1)
            cancellation = self._running[number] = Cancellation()
            self._sink.trial(trial, Phase.PENDING)
        threading.Thread(
            target=self._run_trial, args=(trial, job, cancellation), name=f"trial {number}"
        ).start()
        return None

    def _wait_for_one(self) -> None:
        try:
            number, error = self._ended.get(timeout=_LOOK_SECONDS)
        except Empty:
            return
        with self._lock:
            del self._running[number]
        if error:
            raise error

    def _run_trial(self, trial: Trial, job: TrainSpec, cancellation: Cancellation) -> None:
        """Runs one trial; the top of its thread."""
        error: BaseException | None = None
        follower = _Follower(self, trial.number, cancellation)
        try:
            try:
                run_job(
                    job,
                    self._backend,
                    sink=follower,
                    cancellation=cancellation,
                    clock=self._clock,
                    keep=follower.keep,
                )
            except JobCancelled:
                self._end(trial.number, stopped)
            except KfpJaxError as trouble:
                self._stays_open(trial.number, trouble)
        except BaseException as unforeseen:  # noqa: BLE001 - the top of a thread: `run` raises it
            error = unforeseen
        self._ended.put((trial.number, error))

    def _stays_open(self, number: int, trouble: KfpJaxError) -> None:
        """Ends the sweep for what is no fault of a trial: a full disk, say, or a cluster's refusal.

        The trial is made when the sweep goes on.
        """
        with self._lock:
            self._trouble = self._trouble or trouble
        if not self._trials[number].state.finished:
            self._end(number, stopped)

    def report(self, number: int, step: int, value: float) -> bool:
        """Adds a point to a trial's curve; returns whether to end the trial."""
        with self._lock:
            trial = extended(self._trials[number], step, value)
            self._trials[number] = trial
            self._sink.trial(trial, Phase.RUNNING)
            return should_prune(self._spec.study, trial, self._trials.values())

    def phase(self, number: int, phase: Phase) -> None:
        """Tells of a trial's phase."""
        with self._lock:
            self._sink.trial(self._trials[number], phase)

    def keep(self, number: int, outcome: Outcome, *, asked: bool, pruned: bool) -> None:
        """Takes how a trial's job ended, and whether this sweep had asked for its end."""
        self._end(number, lambda trial, _: ended(trial, outcome, self.objective, pruned=pruned))
        if outcome.phase is Phase.CANCELLED and not asked:
            self.note(
                f"Trial {number} was cancelled by somebody else: it has no result, and is made"
                " again when the sweep goes on."
            )

    def note(self, text: str) -> None:
        """Hands a sentence on."""
        with self._lock:
            self._sink.note(text)

    def _end(self, number: int, ending: Callable[[Trial, float], Trial]) -> None:
        with self._lock:
            trial = self._trials[number]
            elapsed = self._clock.now() - self._began - trial.started
            trial = ending(trial, elapsed)
            # What it waited for its turn, or in a queue, is no machine's time.
            trial = replace(trial, started=trial.started + max(0.0, elapsed - trial.seconds))
            self._write(trial)
            self._failed += trial.state is TrialState.FAILED
            self._sink.trial(trial, _PHASES[trial.state])

    def _write(self, trial: Trial) -> None:
        self._journal.write(trial)
        self._trials[trial.number] = trial


def _is_to_redo(trial: Trial) -> bool:
    """Returns whether a trial of an earlier start has no result yet."""
    return trial.state in (TrialState.RUNNING, TrialState.STOPPED)


class _Follower:
    """A job's sink that makes its reports the trial's curve, and ends it when it falls behind."""

    def __init__(self, sweep: _Sweep, number: int, cancellation: Cancellation) -> None:
        self._sweep = sweep
        self._number = number
        self._cancellation = cancellation
        self._objective = sweep.objective
        self._pruned = False

    def keep(self, outcome: Outcome) -> None:
        asked = self._cancellation.requested
        self._sweep.keep(self._number, outcome, asked=asked, pruned=self._pruned)

    def status(self, job: str, status: JobStatus) -> None:
        if not status.phase.finished:
            self._sweep.phase(self._number, status.phase)

    def log(self, line: LogLine) -> None:
        """Drops it: the logs are files of the job, and a failure's outcome has the last lines."""

    def report(self, process: int, report: Report) -> None:
        point = point_of(report, self._objective)
        if point is None or self._cancellation.requested:
            return
        if self._sweep.report(self._number, *point):
            self._pruned = True
            self._cancellation.request()
            # Nobody needs what it could save, but a warm worker that is left alive is worth a wait.
            impatience = threading.Timer(_PRUNE_SECONDS, self._cancellation.request)
            impatience.daemon = True
            impatience.start()

    def note(self, text: str) -> None:
        self._sweep.note(f"Trial {self._number}: {text}")
