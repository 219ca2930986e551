"""A process that runs one job after another, so that they share imports, data and compiled code.

    python -m kfp_jax_runtime.worker CHANNEL

CHANNEL is the number of an inherited socket to the launcher; over it go JSON objects, one a line:

    in   {"job": 7, "program": "m:f", "environ": {...}, "log": "/..."}   run it as a node
         {"job": 7, "stop": true}                                        ask it to stop
         {"check": "m:f", "environ": {...}, "log": "/..."}               look at it, run nothing
    out  {"job": 7, "code": 0}                                           how it ended
         {"check": "m:f", "refused": "..."}                              in one sentence, or ""

A job of several processes is none for it: it never joins others. What of a job cannot be undone,
such as a thread that goes on, ends the worker as it would have ended a process of the job's own.
"""

import json
import os
import queue
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from kfp_jax_runtime import bootstrap, check, exits
from kfp_jax_runtime.process_state import ProcessState, is_alone, redirect
from kfp_jax_runtime.signals import SigtermListener, StopOnSigterm

Message = Mapping[str, Any]


class Worker:
    """Takes messages in one thread and acts on them in the main one."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._sigterm = SigtermListener()
        self._todo: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._job: int | None = None  # in work or about to be; guarded by the lock
        self._state = ProcessState()

    def work(self) -> int:
        """Runs jobs until the launcher hangs up, or one cannot be undone; returns the exit code."""
        self._be_idle()
        threading.Thread(target=self._listen, daemon=True, name="channel").start()
        while message := self._todo.get():
            if "check" in message:
                self._check(message)
            elif not self._run(message):
                return self._code
        return 0

    def _listen(self) -> None:
        for message in _messages(self._channel):
            if "stop" in message:
                self._stop(message["job"])
                continue
            if "job" in message:
                # Already now: a stop may come before the main thread gets to the job.
                self._now_on(message["job"])
            self._todo.put(message)
        self._todo.put(None)

    def _stop(self, job: int) -> None:
        # Under the lock, so that a job that ends meanwhile hands no signal on to the next.
        with self._lock:
            if self._job == job:
                self._sigterm.send()

    def _run(self, job: Message) -> bool:
        """Runs a job; returns whether this process is as it was before."""
        self._state.remember()
        redirect(job["log"])
        self._state.begin(job["environ"], [bootstrap.__file__, job["program"]])
        self._code = bootstrap.run_to_its_end([job["program"]], os.environ, self._sigterm)
        self._now_on(None)  # what asks it to stop from here on is too late
        if not (self._state.restore() and is_alone()):
            self._now_on(job["job"])
            return False
        self._be_idle()
        self._answer({"job": job["job"], "code": self._code})
        return True

    def _now_on(self, job: int | None) -> None:
        with self._lock:
            self._job = job

    def _check(self, message: Message) -> None:
        # Imports what it looks at, before the first job's beginning is remembered: what a module
        # does when it is imported is done once and must last.
        redirect(message["log"])
        refused = check.check([message["check"]], message["environ"])
        self._be_idle()
        self._answer({"check": message["check"], "refused": refused})

    def _be_idle(self) -> None:
        redirect(os.devnull)
        self._sigterm.tell(StopOnSigterm(leave=lambda: os._exit(exits.STOPPED)))

    def _answer(self, message: Message) -> None:
        self._channel.sendall(json.dumps(message).encode() + b"\n")


def _messages(channel: socket.socket) -> Iterator[Message]:
    with channel.makefile("rb") as lines:
        for line in lines:
            yield json.loads(line)


def main() -> None:
    """Works for the launcher at the other end of the channel."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    code = Worker(channel).work()
    if code:
        exits.leave_at_once(code)


if __name__ == "__main__":
    main()
