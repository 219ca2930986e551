"""The launcher's end of a warm worker, and one attempt of a job in it."""

import contextlib
import json
import math
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kfp_jax.lines import LineSplitter
from kfp_jax.processes import ProcessGroup, suspended
from kfp_jax.status import ProcessStatus

_LOOK_SECONDS = 0.25  # between two looks whether it is suspended: a file is read for each
_RETIRES_WITHIN_SECONDS = 2.0
_CHUNK = 64 * 1024


@dataclass(frozen=True)
class Key:
    """What a worker is for.

    Attributes:
        program: The one that it runs.
        environ: What it starts with.
        text: The same for equal keys.
    """

    program: str
    environ: Mapping[str, str]
    text: str

    @classmethod
    def of(cls, program: str, environ: Mapping[str, str]) -> Self:
        """Returns the key of a program with these variables."""
        return cls(program, environ, json.dumps([program, sorted(environ.items())]))


class Worker:
    """One process that runs jobs of a key one after another; `kfp_jax_runtime.worker` in it.

    Attributes:
        code: The exit code of the last job, as a process of its own would have had it.
        refused: What the last check found wrong, "" for nothing; None where it gave no answer.
    """

    def __init__(self, key: Key, cores: frozenset[int] | None, output: Path) -> None:
        self.code: int | None = None
        self.refused: str | None = None
        self._key = key
        self._output = output
        self._jobs = 0
        self._checked = False
        self._retired = False
        self._awaits = ""  # the member of the answer that ends what it is doing
        self._lines = LineSplitter()
        output.unlink(missing_ok=True)
        self._channel, its_end = socket.socketpair()
        self._group = ProcessGroup()
        number = its_end.fileno()
        try:
            self._process = self._group.start(
                [sys.executable, "-m", "kfp_jax_runtime.worker", str(number)],
                env=key.environ,
                output=output,
                cores=cores,
                pass_fds=(number,),
            )
        except BaseException:
            self._group.close()
            self._channel.close()
            raise
        finally:
            its_end.close()

    def serves(self, key: Key) -> bool:
        """Returns whether it can do something for this key now."""
        return self._key.text == key.text and not self._awaits and not self.ended

    @property
    def ended(self) -> bool:
        """Whether its process has ended."""
        return self._process.poll() is not None

    def begin_check(self, parameters: str) -> None:
        """Lets it look at the program and these parameters; `done` says when it has."""
        self.refused = None
        self._check(parameters, self._output)

    def begin_job(self, environ: Mapping[str, str], log: Path) -> None:
        """Lets it run a job as the node that `environ` describes; `done` says when it has."""
        if not self._checked:  # it is to have imported the program before
            self._check(environ["KFP_JAX_PARAMETERS"], log)
        self.code = None
        self._jobs += 1
        self._awaits = "code"
        self._send(
            {"job": self._jobs, "program": self._key.program, "environ": environ, "log": str(log)}
        )

    def ask_to_stop(self) -> None:
        """Asks the job in work to save and leave."""
        self._send({"job": self._jobs, "stop": True})

    def done(self) -> bool:
        """Returns whether it has done what it was asked, or has ended."""
        if self._awaits:
            ended = self.ended  # asked before reading: an answer comes before the end
            self._read()
            if ended and self._awaits:
                self._awaits = ""
                self.code = self._process.returncode
        return not self._awaits

    def news(self) -> int | None:
        """Returns a descriptor that can be read when it has answered or ended; None once closed."""
        number = self._channel.fileno()
        return number if number >= 0 else None

    def suspended(self) -> bool:
        """Returns whether it is stopped by a signal or a debugger."""
        return not self.ended and suspended(self._process.pid)

    def retire(self) -> None:
        """Lets it end by itself, which `close` then waits for; where it is busy, does nothing."""
        if not self._awaits:
            self._retired = True
            with contextlib.suppress(OSError):
                self._channel.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Ends it, and whatever it has started."""
        if self._retired:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_RETIRES_WITHIN_SECONDS)
        self._group.close()
        self.done()
        self._channel.close()

    def _check(self, parameters: str, log: Path) -> None:
        self._checked = True
        self._awaits = "refused"
        environ = {"KFP_JAX_PARAMETERS": parameters}
        self._send({"check": self._key.program, "environ": environ, "log": str(log)})

    def _send(self, message: Mapping[str, Any]) -> None:
        # Of one that has just ended the exit code is what counts.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._channel.sendall(json.dumps(message).encode() + b"\n")

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while data := self._channel.recv(_CHUNK, socket.MSG_DONTWAIT):
                for line in self._lines.feed(data):
                    self._hear(json.loads(line))

    def _hear(self, answer: Mapping[str, Any]) -> None:
        self.code = answer.get("code", self.code)
        self.refused = answer.get("refused", self.refused)
        if self._awaits in answer:
            self._awaits = ""


class WarmAttempt:
    """One start of a job in a worker that has nothing else to do."""

    def __init__(self, worker: Worker, environ: Mapping[str, str], log: Path) -> None:
        self.failed_at: float | None = None
        self._worker = worker
        self._over = False  # and the worker perhaps busy with another job
        self._code: int | None = None
        self._closed = False
        self._suspended = False
        self._looked = -math.inf
        worker.begin_job(environ, log)

    def waits(self) -> bool:
        """Returns False: the worker has begun."""
        return False

    def poll(self, now: float) -> Sequence[ProcessStatus]:
        """Returns how the job's process is, as if it were one of its own."""
        over = self._is_over()
        if not self._closed and self._code and self.failed_at is None:
            self.failed_at = now  # what we end has not failed
        if not over and now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self._suspended = self._worker.suspended()
        return [
            ProcessStatus(
                process=0,
                alive=not over,
                exit_code=self._code,
                failed_at=self.failed_at,
                suspended=not over and self._suspended,
            )
        ]

    def news(self) -> int | None:
        """Returns what its worker has."""
        return self._worker.news()

    def terminate(self) -> None:
        """Asks the job to stop, by SIGTERM in the worker's process."""
        if not self._is_over():
            self._worker.ask_to_stop()

    def close(self) -> None:
        """Leaves a worker that is done to the next job, and ends one that is not."""
        if self._closed:
            return
        self._closed = True
        if not self._is_over() or self._worker.ended:
            self._worker.close()
            self._is_over()

    def _is_over(self) -> bool:
        if not self._over and self._worker.done():
            self._over = True
            self._code = self._worker.code
        return self._over
