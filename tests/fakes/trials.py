"""A backend whose jobs are short scripts, many at once, for tests of sweeps."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfp_jax.backends.base import JobRef, LogLine, never
from kfp_jax.errors import SpecError
from kfp_jax.spec import TrainSpec
from kfp_jax.status import JobStatus, Phase, ProcessStatus


def say(kind: str, **fields: Any) -> str:
    return "@kfp-jax " + json.dumps({"v": 1, "kind": kind, "time": 0.0, **fields})


@dataclass(frozen=True)
class Script:
    """What a job does: reports the objective at steps 1, 2, ..., then ends.

    Attributes:
        values: The objective at each step.
        result: Its final metrics; None for a job that fails.
        pause: Real seconds before each report.
        hangs: Whether it goes on until it is ended.
    """

    values: tuple[float | str, ...] = ()
    result: Mapping[str, float | str] | None = None
    pause: float = 0.0
    hangs: bool = False


class ScriptBackend:
    """Plays a script for each job; says how many ran at once, and which were submitted."""

    name = "scripted"
    where = "this test"

    def __init__(self, script: Callable[[Mapping[str, Any]], Script], *, refuses: str = "") -> None:
        self._script = script
        self._refuses = refuses
        self._jobs: dict[str, _ScriptJob] = {}
        self.left: dict[str, JobStatus] = {}  # of an earlier launcher: names and how they stand
        self._lock = threading.Lock()
        self.submitted: list[str] = []
        self.deleted: list[str] = []
        self.validated = 0
        self.most = 0

    def validate(self, spec: TrainSpec, cancelled: Callable[[], bool] = never) -> list[str]:
        self.validated += 1
        if self._refuses:
            raise SpecError(self._refuses)
        return []

    def render(self, spec: TrainSpec, ref: JobRef) -> list[dict[str, Any]]:
        return []

    def submit(self, spec: TrainSpec, ref: JobRef) -> JobRef:
        with self._lock:
            self._jobs[ref.name] = _ScriptJob(self._script(spec.parameters))
            self.left.pop(ref.name, None)
            self.submitted.append(Path(spec.output_uri).name)
            self.most = max(self.most, len(self._jobs))
        return ref

    def watch(self, ref: JobRef) -> Iterator[JobStatus]:
        if ref.name in self.left:
            yield self.left[ref.name]
            return
        yield JobStatus(Phase.RUNNING, processes=(ProcessStatus(0),))
        job = self._jobs[ref.name]
        while not job.over.wait(0.1):
            yield JobStatus(Phase.RUNNING, processes=(ProcessStatus(0),))
        yield job.end

    def logs(self, ref: JobRef) -> Iterator[LogLine]:
        for text in self._jobs[ref.name].play():
            yield LogLine(0, 1, text)

    def cancel(self, ref: JobRef) -> None:
        self._jobs[ref.name].stop.set()

    def delete(self, ref: JobRef) -> None:
        with self._lock:
            job = self._jobs.pop(ref.name, None)
            if self.left.pop(ref.name, None):
                self.deleted.append(ref.name)
        if job:
            job.stop.set()

    def find(self, labels: Mapping[str, str]) -> list[JobRef]:
        return [JobRef(self.name, name) for name in (*self._jobs, *self.left)]


class _ScriptJob:
    def __init__(self, script: Script) -> None:
        self._script = script
        self.stop = threading.Event()
        self.over = threading.Event()
        self.end = JobStatus(Phase.PENDING)

    def play(self) -> Iterator[str]:
        script = self._script
        yield say("joined")
        for step, value in enumerate(script.values, start=1):
            if self.stop.wait(script.pause):
                break
            yield say("metrics", step=step, values={"accuracy": value})
        if script.hangs:
            self.stop.wait(30)
        if self.stop.is_set():
            self.end = JobStatus(Phase.CANCELLED)
        elif script.result is None:
            failed = (ProcessStatus(0, alive=False, exit_code=1, failed_at=1.0),)
            self.end = JobStatus(Phase.FAILED, processes=failed)
        else:
            yield say("result", values=dict(script.result))
            self.end = JobStatus(Phase.SUCCEEDED)
        self.over.set()
