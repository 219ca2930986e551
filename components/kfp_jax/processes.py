"""A group of processes that ends as one, also when its parent is killed."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from kfp_jax.errors import OutputError, SpecError

# The guard leads the group and reads a pipe that only this process holds open. When this process
# ends, by SIGKILL too, the kernel closes the pipe, the read returns, and the guard kills the group.
# Grandchildren go as well, which PR_SET_PDEATHSIG would miss; and while the guard lives, no other
# group can get this number, so that a kill never hits a stranger.
_GUARD = ("/bin/sh", "-c", "read _; kill -KILL 0")
_NOT_FOR_THE_GUARD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class ProcessGroup:
    """Processes that are signalled and ended together.

    Use it as a context manager: leaving it kills whatever still runs.
    """

    def __init__(self) -> None:
        # It inherits the mask, and is deaf from its first instruction on.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_THE_GUARD)
        try:
            # close_fds and the vfork path of subprocess: safe beside JAX or other threads.
            self._guard = subprocess.Popen(_GUARD, stdin=subprocess.PIPE, process_group=0)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._members: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "ProcessGroup":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        output: Path,
        cores: frozenset[int] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]:
        """Starts a member whose stdout and stderr are appended to `output`.

        Args:
            argv: Program and arguments.
            env: The whole environment.
            output: The file; the process writes to it directly, so that a slow or dead launcher
                never blocks training, and one write is one piece of the file.
            cores: The cores it may use, or None for all.
            pass_fds: Open files that it inherits besides, under the same numbers.

        Raises:
            SpecError: The program cannot be started.
            OutputError: The file cannot be written.
        """
        with append(output) as log:
            try:
                member = subprocess.Popen(
                    argv,
                    env=dict(env),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    process_group=self._guard.pid,
                    pass_fds=pass_fds,
                )
            except OSError as error:
                raise SpecError(
                    f"Cannot start {argv[0]!r}: {error.strerror or error}; check the command."
                ) from error
        if cores:
            # Before the interpreter has come to import jax, which sizes its thread pools by this.
            os.sched_setaffinity(member.pid, cores)
        self._members.append(member)
        return member

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to every process of the group; the guard itself ignores SIGTERM."""
        if self._guard.returncode is None:
            os.killpg(self._guard.pid, number)

    def terminate(self) -> None:
        """Asks every process to stop."""
        self.signal(signal.SIGTERM)

    def close(self) -> None:
        """Kills what is left and waits until it is gone."""
        if self._guard.returncode is not None:
            return
        self.signal(signal.SIGKILL)
        for process in (*self._members, self._guard):
            process.wait()
        if self._guard.stdin:
            self._guard.stdin.close()


def append(path: Path) -> BinaryIO:
    """Opens a file to write at its end; makes it where there is none.

    Raises:
        OutputError: It cannot be written.
    """
    try:
        return path.open("ab")
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror}; choose another output folder."
        ) from error


def suspended(pid: int) -> bool:
    """Returns whether a process is stopped by a signal or a debugger (Linux)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    # The name in parentheses may hold anything; the state follows the last parenthesis.
    return stat.rpartition(")")[2].split()[0] in ("T", "t")
