"""Jobs as real processes on this machine, with the same environment that a cluster gives them."""

import math
import os
import re
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from kfp_jax import storage
from kfp_jax.backends.base import JobRef, LogLine, never
from kfp_jax.backends.local_process import LOOPBACK, argv, cores_of, defaults, node_env
from kfp_jax.clock import Clock, SystemClock
from kfp_jax.errors import Conflict, JobCancelled, NotFound, OutputError, SpecError
from kfp_jax.lines import Tail
from kfp_jax.pods import Pods
from kfp_jax.processes import ProcessGroup, suspended
from kfp_jax.spec import RESERVED_ENV, TrainSpec, parameters_json
from kfp_jax.status import (
    EXIT_BAD_INPUT,
    Action,
    JobStatus,
    Phase,
    ProcessStatus,
    next_action,
    reduce_processes,
)

GRACE_SECONDS = 10.0  # to save and leave after SIGTERM
_POLL_SECONDS = 0.01
_HEARTBEAT_SECONDS = 0.25
_LOG_POLL_SECONDS = 0.03
_BAR_SECONDS = 10.0  # how often the state of an unfinished line is handed on
_ACCELERATOR_VARIABLES = ("TPU_WORKER_ID", "TPU_NAME", "CUDA_VISIBLE_DEVICES")


class LocalBackend:
    """N processes over loopback, one per core where there are cores for it."""

    name = "local"

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
        self._jobs: dict[str, _LocalJob] = {}

    def validate(self, spec: TrainSpec, cancelled: Callable[[], bool] = never) -> list[str]:
        """Refuses what cannot work here, and names what will be different from a cluster."""
        cores = len(os.sched_getaffinity(0))
        most = max(8, 4 * cores)
        if spec.num_nodes > most:
            raise SpecError(
                f"num_nodes is {spec.num_nodes:,}, but this machine has {cores} cores and runs at"
                f" most {most} processes; give 1 to {most} or use a cluster."
            )
        storage.local_path(spec.output_uri, "output_uri")
        storage.local_path(spec.checkpoints, "checkpoint_uri")
        if spec.dataset_uri:
            storage.existing_folder(spec.dataset_uri, "dataset_uri")
        if spec.command and shutil.which(spec.command[0], path=self._path(spec)) is None:
            raise SpecError(
                f"command {spec.command[0]!r} is no program of this machine; check its name."
            )
        if spec.program:
            self._check_program(spec, cancelled)
        return [*self._device_warnings(spec), *_pods_warnings(spec)]

    def _device_warnings(self, spec: TrainSpec) -> list[str]:
        found = [name for name in _ACCELERATOR_VARIABLES if name in self._environ]
        if found and spec.num_nodes > 1 and "JAX_PLATFORMS" not in {**self._environ, **spec.env}:
            return [
                f"{found[0]} is set, but an accelerator takes one process of a machine: the"
                f" {spec.num_nodes} processes run on CPU; set JAX_PLATFORMS to choose otherwise."
            ]
        return []

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
        self._jobs[ref.name] = _LocalJob(spec, ref.name, self._environ, self._clock, self._grace)
        return ref

    def watch(self, ref: JobRef) -> Iterator[JobStatus]:
        """Yields the status now, at each change and four times a second."""
        return self._watch(self._job(ref))

    def _watch(self, job: "_LocalJob") -> Iterator[JobStatus]:
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
            self._clock.sleep(_POLL_SECONDS)

    def logs(self, ref: JobRef) -> Iterator[LogLine]:
        """Yields the lines of all attempts, each attempt after the one before."""
        return self._logs(self._job(ref))

    def _logs(self, job: "_LocalJob") -> Iterator[LogLine]:
        attempt = 0
        while files := job.log_files(attempt):
            yield from self._attempt_logs(job, attempt, files)
            attempt += 1

    def _attempt_logs(
        self, job: "_LocalJob", attempt: int, files: Sequence["LogFile"]
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
        return [JobRef(self.name, name) for name in self._jobs if wanted in (None, name)]

    def _job(self, ref: JobRef) -> "_LocalJob":
        if ref.name not in self._jobs:
            raise NotFound(
                f"Job {ref.name} is not one of this launcher; it has ended or never was."
            )
        return self._jobs[ref.name]

    def _path(self, spec: TrainSpec) -> str | None:
        return {**self._environ, **spec.env}.get("PATH")

    def _check_program(self, spec: TrainSpec, cancelled: Callable[[], bool]) -> None:
        """Has the interpreter that will train look at the program and its parameters."""
        environ = {**self._environ, **spec.env}
        environ["KFP_JAX_PARAMETERS"] = parameters_json(spec.parameters)
        command = [sys.executable, "-m", "kfp_jax_runtime.check", spec.program]
        began = self._clock.now()
        with tempfile.TemporaryDirectory() as folder, ProcessGroup() as group:
            said = Path(folder, "said")
            check = group.start(command, env=environ, output=said)
            while check.poll() is None:
                if cancelled():
                    raise JobCancelled("The job was cancelled before it was started.")
                if 0 < spec.limits.start <= self._clock.now() - began:
                    raise SpecError(
                        f"Program {spec.program} was not loaded within {spec.limits.start:g} s;"
                        " move what takes so long from its import into its function."
                    )
                self._clock.sleep(_POLL_SECONDS)
            lines = said.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if check.returncode == 0:
            return
        last = lines[-1] if lines else f"exit code {check.returncode}"
        if check.returncode == EXIT_BAD_INPUT:
            raise SpecError(f"{last[:1].upper()}{last[1:]}.")
        raise SpecError(
            f"Program {spec.program} cannot be loaded: {last}; run"
            f" `python -c 'import {spec.program.partition(':')[0]}'` to see why."
        )


@dataclass(frozen=True)
class LogFile:
    """Where one process of one attempt writes."""

    attempt: int
    process: int
    path: Path


class _LocalJob:
    """One job: its current attempt's processes and what becomes of them."""

    def __init__(
        self, spec: TrainSpec, name: str, environ: Mapping[str, str], clock: Clock, grace: float
    ) -> None:
        self.spec = spec
        self.name = name
        self.ended = threading.Event()
        self._environ = environ
        self._clock = clock
        self._grace = grace
        self._lock = threading.RLock()
        self._logs = storage.local_path(spec.output_uri, "output_uri") / "logs"
        self._log_files: list[list[LogFile]] = []
        self._first_attempt = _next_attempt(self._logs)
        self._restarts = 0
        self._cancelled_at: float | None = None
        self._attempt = self._start()
        self.status = JobStatus(Phase.STARTING)
        self.advance()

    def advance(self) -> JobStatus:
        """Looks at the processes, does what is due, and returns the status."""
        with self._lock:
            if self.ended.is_set():
                return self.status
            processes = self._attempt.poll(self._clock.now())
            action = next_action(
                processes,
                restarts_left=self.spec.max_restarts - self._restarts,
                cancelled_for=self._since(self._cancelled_at),
                failed_for=self._since(self._attempt.failed_at),
                grace=self._grace,
            )
            self.status = reduce_processes(
                processes,
                restarts=self._restarts,
                cancelled=self._cancelled_at is not None,
                action=action,
            )
            match action:
                case Action.KILL:
                    self._attempt.close()
                case Action.RESTART:
                    self._attempt.close()
                    self._restarts += 1
                    self._attempt = self._start()
                case Action.FINISH:
                    self.close()
            return self.status

    def log_files(self, attempt: int) -> Sequence[LogFile]:
        """Returns the log files of an attempt of this launch, from 0, or () where it has none."""
        with self._lock:
            return self._log_files[attempt] if attempt < len(self._log_files) else ()

    def is_over(self, attempt: int) -> bool:
        """Returns whether nothing of an attempt runs any more."""
        with self._lock:
            self.advance()
            return self.ended.is_set() or self._restarts > attempt

    def cancel(self) -> None:
        """Asks the processes to stop; the second time, kills them."""
        with self._lock:
            if self.ended.is_set():
                return
            if self._cancelled_at is not None:
                self._attempt.close()
                return
            self._cancelled_at = self._clock.now()
            self._attempt.group.terminate()

    def close(self) -> None:
        """Kills what is left; a job that was not finished is lost."""
        with self._lock:
            self._attempt.close()
            if not self.status.phase.finished:
                self.status = replace(self.status, phase=Phase.LOST)
            self.ended.set()

    def _since(self, moment: float | None) -> float | None:
        return None if moment is None else self._clock.now() - moment

    def _start(self) -> "_Attempt":
        number = self._first_attempt + self._restarts
        files = [
            LogFile(number, process, self._logs / f"attempt-{number}" / f"process-{process}.log")
            for process in range(self.spec.num_nodes)
        ]
        attempt = _Attempt(self.spec, self.name, self._environ, files)
        self._log_files.append(files)
        return attempt


class _Attempt:
    """One start of all processes, with a port of its own."""

    def __init__(
        self, spec: TrainSpec, job: str, environ: Mapping[str, str], files: list[LogFile]
    ) -> None:
        self.failed_at: float | None = None
        self._failed: dict[int, float] = {}
        self._closed = False
        self._suspended: frozenset[int] = frozenset()
        self._looked = -math.inf
        _make(files[0].path.parent)
        self._port = _hold_port()
        self.group = ProcessGroup()
        base = {key: value for key, value in environ.items() if key not in RESERVED_ENV}
        try:
            self._members = [
                self.group.start(
                    argv(spec),
                    env=base
                    | defaults(base, spec.num_nodes)
                    | node_env(spec, job, file.process, self._port.getsockname()[1], file.attempt),
                    output=file.path,
                    cores=cores_of(file.process, spec.num_nodes),
                )
                for file in files
            ]
        except BaseException:
            self.close()
            raise

    def poll(self, now: float) -> list[ProcessStatus]:
        """Returns how each process is; the moment of a failure is when it is first seen here."""
        if not self._closed:  # what ends after that was ended by us
            for process, member in enumerate(self._members):
                if member.poll() not in (None, 0):
                    self._failed.setdefault(process, now)
            self.failed_at = min(self._failed.values(), default=None)
        if now - self._looked >= _HEARTBEAT_SECONDS:  # a file read for each process
            self._looked = now
            self._suspended = frozenset(
                process for process, member in enumerate(self._members) if suspended(member.pid)
            )
        return [
            ProcessStatus(
                process=process,
                alive=member.returncode is None,
                exit_code=member.returncode,
                failed_at=self._failed.get(process),
                suspended=member.returncode is None and process in self._suspended,
            )
            for process, member in enumerate(self._members)
        ]

    def close(self) -> None:
        """Kills what is left and gives the port back."""
        self._closed = True
        self.group.close()
        self._port.close()


def _pods_warnings(spec: TrainSpec) -> list[str]:
    asked = [
        item.name
        for item in fields(Pods)
        if getattr(spec.pods, item.name) != getattr(Pods(), item.name)
    ]
    if not asked:
        return []
    return [f"A job on this machine has no pods: {', '.join(asked)} will not be used."]


def _hold_port() -> socket.socket:
    """Returns a socket that holds a free port for the coordinator.

    It is bound with SO_REUSEPORT and never listens: JAX's coordinator, which sets the same option,
    can bind the port beside it, and nobody is given it as a free port meanwhile.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    holder.bind((LOOPBACK, 0))
    return holder


def _next_attempt(logs: Path) -> int:
    """Returns the first attempt number that no earlier run in this folder has used."""
    used = [
        int(match[1])
        for entry in (logs.iterdir() if logs.is_dir() else ())
        if (match := re.fullmatch(r"attempt-(\d+)", entry.name))
    ]
    return max(used, default=0) + 1


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{folder} cannot be made: {error.strerror}; choose another output folder."
        ) from error
