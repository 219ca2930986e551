"""Jobs that tests follow while they do something to them, and launchers that they kill."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.mnist import PODS
from e2e.places import Place
from kfp_jax.backends.base import LogLine
from kfp_jax.backends.cluster import ClusterBackend
from kfp_jax.backends.jobset import JobSetBackend
from kfp_jax.backends.trainer import TrainerBackend
from kfp_jax.kube.client import Client
from kfp_jax.kube.requests import Resource
from kfp_jax.kube.resources import JOBSETS, RUNTIMES, TRAINJOBS
from kfp_jax.kube.resources import PODS as ALL_PODS
from kfp_jax.launch import job_ref, launch
from kfp_jax.reports import Report
from kfp_jax.sinks import NullSink
from kfp_jax.spec import TrainSpec
from kfp_jax.status import JobStatus, Outcome, Phase

BACKENDS: dict[str, type[ClusterBackend]] = {"trainer": TrainerBackend, "jobset": JobSetBackend}
KINDS: dict[str, Resource] = {"trainer": TRAINJOBS, "jobset": JOBSETS}
LAUNCHER = Path(__file__).with_name("launcher.py")
_LEFT = (TRAINJOBS, JOBSETS, RUNTIMES, ALL_PODS)


def left_in(place: Place) -> list[str]:
    """Returns what is there of any job."""
    return [
        f"{kind} {item['metadata']['name']}"
        for kind in _LEFT
        for item in place.client.list(kind, place.namespace).items
    ]


def shell(place: Place, script: str, **more: Any) -> TrainSpec:
    """Returns a job of one shell, or of `num_nodes`."""
    given: dict[str, Any] = {
        "name": "drill",
        "command": ("sh", "-c", script),
        "output_uri": str(place.folder / "out"),
        "pods": PODS,
    }
    return TrainSpec(**{**given, **more})


@dataclass
class _Sink(NullSink):
    """Keeps what it hears."""

    lines: dict[int, list[str]]
    phases: list[Phase]
    reports: list[Report]
    said: list[str]

    def report(self, process: int, report: Report) -> None:
        self.reports.append(report)

    def log(self, line: LogLine) -> None:
        self.lines[line.process].append(line.text)

    def status(self, job: str, status: JobStatus) -> None:
        if status.phase not in self.phases[-1:]:
            self.phases.append(status.phase)
        self.said.append(status.message)


class Running:
    """A launch in a thread."""

    def __init__(
        self, place: Place, backend: str, spec: TrainSpec, *, client: Client | None = None
    ) -> None:
        self.lines: dict[int, list[str]] = defaultdict(list)
        self.phases: list[Phase] = []
        self.reports: list[Report] = []
        self.said: list[str] = []
        self.spec = spec
        self._backend = BACKENDS[backend](client or place.client, namespace=place.namespace)
        self.name = job_ref(spec, self._backend).name
        self._ended: list[Outcome | BaseException] = []
        self._thread = threading.Thread(target=self._launch, daemon=True)
        self._thread.start()

    def heard(self, text: str, *, process: int = 0, seconds: float = 60) -> None:
        """Waits until a process has written that line."""
        end = time.monotonic() + seconds
        while text not in self.lines[process]:
            assert time.monotonic() < end, (self.lines, self.phases, self._ended)
            assert not self._ended, self._ended
            time.sleep(0.05)

    def outcome(self, seconds: float = 120) -> Outcome:
        """Returns how it ended; raises what it raised."""
        self._thread.join(seconds)
        assert self._ended, f"not within {seconds} s: {self.phases}"
        (ended,) = self._ended
        if isinstance(ended, BaseException):
            raise ended
        return ended

    def _launch(self) -> None:
        sink = _Sink(self.lines, self.phases, self.reports, self.said)
        try:
            self._ended.append(launch(self.spec, self._backend, sink=sink))
        except BaseException as error:  # noqa: BLE001 - raised again by `outcome`
            self._ended.append(error)


class Launchers:
    """Starts launchers of one job; none is left running."""

    def __init__(self, place: Place, backend: str, script: str) -> None:
        spec = shell(place, script, max_restarts=1)  # the job brings a runtime of its own
        self._argv = [backend, place.namespace, json.dumps(spec.to_json())]
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(LAUNCHER), *self._argv]
        self._started.append(subprocess.Popen(command, env=os.environ, stdout=subprocess.PIPE))
        return self._started[-1]

    def close(self) -> None:
        for launcher in self._started:
            launcher.kill()
            launcher.communicate()
