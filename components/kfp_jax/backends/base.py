"""The protocol between `launch` and a place where jobs run."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from kfp_jax.spec import TrainSpec
from kfp_jax.status import JobStatus


@dataclass(frozen=True)
class JobRef:
    """One submitted job: which backend has it, under which name."""

    backend: str
    name: str
    namespace: str = ""
    uid: str = ""


class LogLine(NamedTuple):
    """One line that a process wrote, without its newline."""

    process: int
    attempt: int
    text: str


def never() -> bool:
    """Returns False: what nobody can cancel is never cancelled."""
    return False


class Backend(Protocol):
    """What every place can do. `tests/contract` holds all backends to the sentences below."""

    name: str

    @property
    def where(self) -> str:
        """In words where its jobs run: a launcher elsewhere does not find them."""
        ...

    def validate(self, spec: TrainSpec, cancelled: Callable[[], bool] = never) -> list[str]:
        """Returns warnings, one a line, about what this backend will ignore or change.

        Args:
            spec: What is to be trained.
            cancelled: Asked again and again by what takes long.

        Raises:
            SpecError: The job cannot work here. Nothing was started.
            JobCancelled: `cancelled` said so.
        """
        ...

    def render(self, spec: TrainSpec, ref: JobRef) -> list[dict[str, Any]]:
        """Returns what `submit` would create. Pure."""
        ...

    def submit(self, spec: TrainSpec, ref: JobRef) -> JobRef:
        """Starts the job, or adopts the one that the same spec started under this name.

        Raises:
            Conflict: A job of that name with another spec runs.
        """
        ...

    def watch(self, ref: JobRef) -> Iterator[JobStatus]:
        """Yields the status: now, at each change, at least once a second, until finished."""
        ...

    def logs(self, ref: JobRef) -> Iterator[LogLine]:
        """Yields every line of every process and attempt once, and ends after the job has."""
        ...

    def cancel(self, ref: JobRef) -> None:
        """Asks the job to stop and returns at once; a second call does not wait for it to save."""
        ...

    def delete(self, ref: JobRef) -> None:
        """Ends the job now and forgets it; nothing of it runs on. A job that is gone is fine."""
        ...

    def find(self, labels: Mapping[str, str]) -> list[JobRef]:
        """Returns the jobs that carry all these labels."""
        ...
