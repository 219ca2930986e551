"""Jobs as real processes on this machine, with the same environment that a cluster gives them."""

import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

from kfp_jax import storage
from kfp_jax.backends.base import JobRef, LogLine, never
from kfp_jax.backends.local_job import Attempt, LocalJob, LogFile, ProcessesAttempt
from kfp_jax.backends.local_process import argv, cores_of, node_env
from kfp_jax.clock import Clock, SystemClock
from kfp_jax.errors import Conflict, JobCancelled, NotFound, SpecError
from kfp_jax.lines import Tail
from kfp_jax.pods import Pods
from kfp_jax.processes import ProcessGroup
from kfp_jax.spec import TrainSpec, parameters_json
from kfp_jax.status import (
    EXIT_BAD_INPUT,
    JobStatus,
)

GRACE_SECONDS = 10.0  # to save and leave after SIGTERM
_POLL_SECONDS = 0.01
_HEARTBEAT_SECONDS = 0.25
_LOG_POLL_SECONDS = 0.05
_BAR_SECONDS = 10.0  # how often the state of an unfinished line is handed on
_ACCELERATOR_VARIABLES = ("TPU_WORKER_ID", "TPU_NAME", "CUDA_VISIBLE_DEVICES")


class LocalBackend:
    """N processes over loopback, one per core where there are cores for it."""

    name = "local"
    where = "this machine"

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        grace: float = GRACE_SECONDS,
    ) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        self._clock = clock or SystemClock()
        self._grace = grace
        self._jobs: dict[str, LocalJob] = {}

    def validate(self, spec: TrainSpec, cancelled: Callable[[], bool] = never) -> list[str]:
        """Refuses what cannot work here, and names what will be different from a cluster."""
        cores = len(os.sched_getaffinity(0))
        most = max(8, 4 * cores)
        if spec.num_nodes > most:
            raise SpecError(
                f"num_nodes is {spec.num_nodes:,}, but this machine has {cores} cores and runs at"
                f" most {most} processes; give 1 to {most} or use a cluster."
            )
        storage.check_output(spec.output_uri, "output_uri")
        storage.check_place(spec.checkpoints, "checkpoint_uri")
        if spec.dataset_uri:
            storage.check_dataset(spec.dataset_uri, "dataset_uri")
        if spec.command and shutil.which(spec.command[0], path=self._path(spec)) is None:
            raise SpecError(
                f"command {spec.command[0]!r} is no program of this machine; check its name."
            )
        if spec.program:
            self._check_program(spec, cancelled)
        return [*self._device_warnings(spec), *_pods_warnings(spec)]

    def _device_warnings(self, spec: TrainSpec) -> list[str]:
        found = [name for name in _ACCELERATOR_VARIABLES if name in self._environ]
        processes = self._at_once(spec)
        if found and processes > 1 and "JAX_PLATFORMS" not in {**self._environ, **spec.env}:
            return [
                f"{found[0]} is set, but an accelerator takes one process of a machine: the"
                f" {processes} processes run on CPU; set JAX_PLATFORMS to choose otherwise."
            ]
        return []

    def _at_once(self, spec: TrainSpec) -> int:
        """Returns how many processes share the machine's devices."""
        return spec.num_nodes

    def render(self, spec: TrainSpec, ref: JobRef) -> list[dict[str, Any]]:
        """Returns the processes: argv, environment beyond the inherited one, and cores."""
        return [
            {
                "kind": "Process",
                "job": ref.name,
                "process": process,
                "argv": argv(spec),
                "env": node_env(spec, ref.name, process, port=0, attempt=1),
                "cores": sorted(cores_of(process, spec.num_nodes) or ()),
            }
            for process in range(spec.num_nodes)
        ]

    def submit(self, spec: TrainSpec, ref: JobRef) -> JobRef:
        """Starts the processes, or adopts the running job of the same name and spec."""
        present = self._jobs.get(ref.name)
        if present and not present.status.phase.finished:
            if present.spec.hash() != spec.hash():
                raise Conflict(
                    f"Job {ref.name} runs with another spec; cancel it or use another output."
                )
            return ref
        start = functools.partial(self._attempt, spec, ref.name)
        self._jobs[ref.name] = LocalJob(spec, ref.name, start, self._clock, self._grace)
        return ref

    def _attempt(self, spec: TrainSpec, job: str, files: Sequence[LogFile]) -> Attempt:
        return ProcessesAttempt(spec, job, self._environ, files)

    def watch(self, ref: JobRef) -> Iterator[JobStatus]:
        """Yields the status now, at each change and four times a second."""
        return self._watch(self._job(ref))

    def _watch(self, job: LocalJob) -> Iterator[JobStatus]:
        last: JobStatus | None = None
        beat = self._clock.now()
        while True:
            status = job.advance()
            now = self._clock.now()
            if status != last or now - beat >= _HEARTBEAT_SECONDS:
                last, beat = status, now
                yield status
            if status.phase.finished:
                return
            job.wait()

    def logs(self, ref: JobRef) -> Iterator[LogLine]:
        """Yields the lines of all attempts, each attempt after the one before."""
        return self._logs(self._job(ref))

    def _logs(self, job: LocalJob) -> Iterator[LogLine]:
        attempt = 0
        while files := job.log_files(attempt):
            yield from self._attempt_logs(job, attempt, files)
            attempt += 1

    def _attempt_logs(
        self, job: LocalJob, attempt: int, files: Sequence[LogFile]
    ) -> Iterator[LogLine]:
        with ExitStack() as open_files:
            tails = [(file, open_files.enter_context(Tail(file.path))) for file in files]
            heard = dict.fromkeys(files, self._clock.now())
            while True:
                over = job.is_over(attempt)  # asked before reading: nothing is written after it
                idle = True
                for file, tail in tails:
                    texts = tail.read()
                    if texts is None:
                        continue
                    idle, now = False, self._clock.now()
                    if not texts and now - heard[file] >= _BAR_SECONDS:
                        texts = tail.unfinished()  # a progress bar shows life too
                    if texts:
                        heard[file] = now
                    for text in texts:
                        yield LogLine(file.process, file.attempt, text)
                if idle and over:
                    break
                if idle:
                    job.ended.wait(_LOG_POLL_SECONDS)
            for file, tail in tails:
                for text in tail.end():
                    yield LogLine(file.process, file.attempt, text)

    def cancel(self, ref: JobRef) -> None:
        """Sends SIGTERM; after the grace, or on a second call, SIGKILL."""
        self._job(ref).cancel()

    def delete(self, ref: JobRef) -> None:
        """Kills what is left of the job."""
        job = self._jobs.pop(ref.name, None)
        if job:
            job.close()

    def find(self, labels: Mapping[str, str]) -> list[JobRef]:
        """Returns the jobs of this launcher; those of another end with their own launcher."""
        wanted = labels.get("job")
        return [JobRef(self.name, name) for name in list(self._jobs) if wanted in (None, name)]

    def _job(self, ref: JobRef) -> LocalJob:
        job = self._jobs.get(ref.name)
        if job is None:
            raise NotFound(
                f"Job {ref.name} is not one of this launcher; it has ended or never was."
            )
        return job

    def _path(self, spec: TrainSpec) -> str | None:
        return {**self._environ, **spec.env}.get("PATH")

    def _check_program(self, spec: TrainSpec, cancelled: Callable[[], bool]) -> None:
        """Has the interpreter that will train look at the program and its parameters.

        Raises:
            SpecError: They are wrong.
            JobCancelled: `cancelled` said so.
        """
        environ = {**self._environ, **spec.env}
        environ["KFP_JAX_PARAMETERS"] = parameters_json(spec.parameters)
        command = [sys.executable, "-m", "kfp_jax_runtime.check", spec.program]
        with tempfile.TemporaryDirectory() as folder, ProcessGroup() as group:
            said = Path(folder, "said")
            check = group.start(command, env=environ, output=said)
            self._await(lambda: check.poll() is not None, spec, cancelled)
            lines = said.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if check.returncode == 0:
            return
        last = lines[-1] if lines else f"exit code {check.returncode}"
        if check.returncode == EXIT_BAD_INPUT:
            raise refusal(last)
        raise SpecError(
            f"Program {spec.program} cannot be loaded: {last}; run"
            f" `python -c 'import {spec.program.partition(':')[0]}'` to see why."
        )

    def _await(
        self, done: Callable[[], bool], spec: TrainSpec, cancelled: Callable[[], bool]
    ) -> None:
        """Waits until somebody has looked at the program."""
        began = self._clock.now()
        while not done():
            if cancelled():
                raise JobCancelled("The job was cancelled before it was started.")
            if 0 < spec.limits.start <= self._clock.now() - began:
                raise SpecError(
                    f"Program {spec.program} was not loaded within {spec.limits.start:g} s;"
                    " move what takes so long from its import into its function."
                )
            self._clock.sleep(_POLL_SECONDS)


def refusal(sentence: str) -> SpecError:
    """Returns the error of a program that says what is wrong with it or its parameters."""
    return SpecError(f"{sentence[:1].upper()}{sentence[1:]}.")


def _pods_warnings(spec: TrainSpec) -> list[str]:
    asked = [
        item.name
        for item in fields(Pods)
        if getattr(spec.pods, item.name) != getattr(Pods(), item.name)
    ]
    if not asked:
        return []
    return [f"A job on this machine has no pods: {', '.join(asked)} will not be used."]
