import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fakes.clock import ManualClock
from kfp_jax.backends.base import JobRef, LogLine, never
from kfp_jax.spec import TrainSpec
from kfp_jax.status import JobStatus, Phase


@dataclass(frozen=True)
class Event:
    """What happens `after` so many seconds: the job writes lines, and is in a phase."""

    after: float
    status: JobStatus
    lines: tuple[LogLine, ...] = ()


class ScriptedBackend:
    """A backend that plays events in virtual time. Its watch waits until the lines were taken."""

    name = "scripted"

    def __init__(
        self, clock: ManualClock, events: Sequence[Event], *, patience: float = 5.0
    ) -> None:
        self._clock = clock
        self._events = events
        self._patience = patience
        self._pending: list[LogLine] = []
        self._taken = threading.Condition()
        self._over = False
        self.calls: list[str] = []

    def validate(self, spec: TrainSpec, cancelled: Callable[[], bool] = never) -> list[str]:
        self.calls.append("validate")
        return []

    def render(self, spec: TrainSpec, ref: JobRef) -> list[dict[str, Any]]:
        return []

    def submit(self, spec: TrainSpec, ref: JobRef) -> JobRef:
        self.calls.append("submit")
        return ref

    def watch(self, ref: JobRef) -> Iterator[JobStatus]:
        for event in self._events:
            self._clock.sleep(event.after)
            with self._taken:
                self._pending += event.lines
                self._taken.notify_all()
                self._taken.wait_for(lambda: not self._pending, timeout=self._patience)
            status = event.status
            if "cancel" in self.calls:
                status = JobStatus(Phase.CANCELLED)
            if status.phase.finished:
                self._end()
            yield status
            if status.phase.finished:
                return

    def logs(self, ref: JobRef) -> Iterator[LogLine]:
        while True:
            with self._taken:
                self._taken.wait_for(lambda: self._pending or self._over, timeout=self._patience)
                lines, over = list(self._pending), self._over
            yield from lines
            with self._taken:
                del self._pending[: len(lines)]
                self._taken.notify_all()
            if over:
                return

    def _end(self) -> None:
        with self._taken:
            self._over = True
            self._taken.notify_all()

    def cancel(self, ref: JobRef) -> None:
        self.calls.append("cancel")

    def delete(self, ref: JobRef) -> None:
        self.calls.append("delete")
        self._end()

    def find(self, labels: Mapping[str, str]) -> list[JobRef]:
        return []
