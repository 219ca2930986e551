"""One job on this machine: its current attempt and what becomes of it."""

import math
import re
import select
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from kfp_jax import storage
from kfp_jax.backends.local_process import LOOPBACK, argv, cores_of, defaults, node_env
from kfp_jax.clock import Clock
from kfp_jax.errors import OutputError
from kfp_jax.processes import ProcessGroup, suspended
from kfp_jax.spec import RESERVED_ENV, TrainSpec
from kfp_jax.status import Action, JobStatus, Phase, ProcessStatus, next_action, reduce_processes

_HEARTBEAT_SECONDS = 0.25
_POLL_SECONDS = 0.01
_NEWS_SECONDS = 0.05


@dataclass(frozen=True)
class LogFile:
    """Where one process of one attempt writes."""

    attempt: int
    process: int
    path: Path


class Attempt(Protocol):
    """One start of a job, under way or waiting for its turn."""

    @property
    def failed_at(self) -> float | None:
        """When the first of its processes was seen to have failed, or None."""
        ...

    def waits(self) -> bool:
        """Returns whether it has still to wait; starts it where it has not."""
        ...

    def poll(self, now: float) -> Sequence[ProcessStatus]:
        """Returns how each process is."""
        ...

    def news(self) -> int | None:
        """Returns a descriptor that can be read when something has changed, or None."""
        ...

    def terminate(self) -> None:
        """Asks the processes to stop."""
        ...

    def close(self) -> None:
        """Ends what still runs; a second call is fine."""
        ...


class LocalJob:
    """One job: starts its attempts and decides what becomes of them.

    Args:
        spec: What is trained.
        name: The job's.
        start: Makes an attempt that writes to these files, whose folder exists.
        clock: Time.
        grace: Seconds to save and leave after a cancel.
    """

    def __init__(
        self,
        spec: TrainSpec,
        name: str,
        start: Callable[[Sequence[LogFile]], Attempt],
        clock: Clock,
        grace: float,
    ) -> None:
        self.spec = spec
        self.name = name
        self.ended = threading.Event()
        self._begin = start
        self._clock = clock
        self._grace = grace
        self._lock = threading.RLock()
        self._logs = storage.here(spec.output_uri, "output_uri") / "logs"
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
            if self._attempt.waits() and self._cancelled_at is None:
                phase = Phase.RESTARTING if self._restarts else Phase.QUEUED
                self.status = JobStatus(phase, restarts=self._restarts)
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

    def wait(self) -> None:
        """Waits a moment, not longer than until something has changed."""
        news = self._attempt.news()
        if news is None:
            self._clock.sleep(_POLL_SECONDS)
            return
        waiting = select.poll()
        waiting.register(news, select.POLLIN)
        waiting.poll(_NEWS_SECONDS * 1000)

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
            self._attempt.terminate()

    def close(self) -> None:
        """Kills what is left; a job that was not finished is lost."""
        with self._lock:
            self._attempt.close()
            if not self.status.phase.finished:
                self.status = replace(self.status, phase=Phase.LOST)
            self.ended.set()

    def _since(self, moment: float | None) -> float | None:
        return None if moment is None else self._clock.now() - moment

    def _start(self) -> Attempt:
        number = self._first_attempt + self._restarts
        files = [
            LogFile(number, process, self._logs / f"attempt-{number}" / f"process-{process}.log")
            for process in range(self.spec.num_nodes)
        ]
        _make(files[0].path.parent)
        attempt = self._begin(files)
        self._log_files.append(files)
        return attempt


class ProcessesAttempt:
    """One start of all processes, each new, with a port of its own."""

    def __init__(
        self, spec: TrainSpec, job: str, environ: Mapping[str, str], files: Sequence[LogFile]
    ) -> None:
        self.failed_at: float | None = None
        self._failed: dict[int, float] = {}
        self._closed = False
        self._suspended: frozenset[int] = frozenset()
        self._looked = -math.inf
        self._port = _hold_port()
        self._group = ProcessGroup()
        base = {key: value for key, value in environ.items() if key not in RESERVED_ENV}
        try:
            self._members = [
                self._group.start(
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

    def waits(self) -> bool:
        """Returns False: all processes start at once."""
        return False

    def poll(self, now: float) -> Sequence[ProcessStatus]:
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

    def news(self) -> int | None:
        """Returns None: it has to be looked at."""
        return None

    def terminate(self) -> None:
        """Sends SIGTERM to all processes, and to those that they have started."""
        self._group.terminate()

    def close(self) -> None:
        """Kills what is left and gives the port back."""
        self._closed = True
        self._group.close()
        self._port.close()


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
