"""Where a job's news go while it runs."""

import json
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TextIO

from kfp_jax.backends.base import LogLine
from kfp_jax.reports import Kind, Report, json_number
from kfp_jax.status import JobStatus, Phase

PROGRESS_EVERY_SECONDS = 5.0
# The command line names a file here, and shows what the tasks of its pipeline write to it.
EVENTS_VARIABLE = "KFP_JAX_EVENTS"


class Sink(Protocol):
    """Takes news. `log` and `report` are called from another thread than `status` and `note`."""

    def status(self, job: str, status: JobStatus) -> None:
        """Takes a status whose phase or reason is another than before."""
        ...

    def log(self, line: LogLine) -> None:
        """Takes a line that is no report."""
        ...

    def report(self, process: int, report: Report) -> None:
        """Takes a report."""
        ...

    def note(self, text: str) -> None:
        """Takes a sentence of the launcher's own."""
        ...


class NullSink:
    """Drops everything."""

    def status(self, job: str, status: JobStatus) -> None:
        """Drops it."""

    def log(self, line: LogLine) -> None:
        """Drops it."""

    def report(self, process: int, report: Report) -> None:
        """Drops it."""

    def note(self, text: str) -> None:
        """Drops it."""


class Remaining:
    """Estimates the time left from the rate since a process started, or went back."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None
        self._last = 0

    def seconds(self, report: Report) -> float | None:
        """Returns the seconds left after this progress report, or None while nobody can know."""
        done, total = progress_of(report)
        if self._first is None or done < self._last:
            self._first = (report.time, done)
        self._last = done
        moved = done - self._first[1]
        if moved <= 0:
            return None
        return (report.time - self._first[0]) / moved * max(0, total - done)


def progress_of(report: Report) -> tuple[int, int]:
    """Returns done and total of a progress report; (0, 0) when it names none."""
    done, total = report.fields.get("done"), report.fields.get("total")
    return (done, total) if isinstance(done, int) and isinstance(total, int) else (0, 0)


class PlainSink:
    """Plain lines, for a pipe, a CI log or the log tab of a pipeline step.

    Attributes:
        failure: What the stream said when it took no more, or None. From then on all is dropped.
    """

    def __init__(self, stream: TextIO | None = None, prefix: str = "") -> None:
        self._stream = stream or sys.stdout
        self._prefix = prefix
        self._remaining = Remaining()
        self._progress_written = 0.0
        self._lock = threading.Lock()
        self.failure: OSError | None = None

    def status(self, job: str, status: JobStatus) -> None:
        """Writes the phase, and what holds the job up."""
        again = f" (restart {status.restarts})" if status.restarts else ""
        held = f": {status.message or status.reason}" if status.reason else ""
        self._write(f"{job}: {status.phase.value}{again}{held}")

    def log(self, line: LogLine) -> None:
        """Writes the line behind its process' number."""
        self._put(f"{self._prefix}[{line.process}] {line.text}\n")

    def report(self, process: int, report: Report) -> None:
        """Writes metrics and what else a reader of the log wants to know."""
        text = self._progress(report) if report.kind is Kind.PROGRESS else describe(report)
        if text:
            self._write(text)

    def note(self, text: str) -> None:
        """Writes the sentence."""
        self._write(text)

    def _progress(self, report: Report) -> str:
        """Returns a line every few seconds and "" in between."""
        left = self._remaining.seconds(report)
        if left is None or report.time - self._progress_written < PROGRESS_EVERY_SECONDS:
            return ""
        self._progress_written = report.time
        done, total = progress_of(report)
        unit = report.fields.get("unit", "step")
        return f"{unit} {done} of {total} ({done / max(total, 1):.0%}), {left:.0f} s left"

    def _write(self, text: str) -> None:
        self._put(f"{self._prefix}{text}\n")

    def _put(self, line: str) -> None:
        with self._lock:  # a text stream loses lines that two threads write at one moment
            try:
                if self.failure is None:
                    self._show(line)
            except OSError as error:
                # A reader that has gone or a full disk must not cost the training behind it.
                self.failure = error

    def _show(self, line: str) -> None:
        try:
            self._stream.write(line)
        except UnicodeEncodeError:
            encoding = self._stream.encoding
            self._stream.write(line.encode(encoding, "backslashreplace").decode(encoding))
        # Each line: it may be the one that explains a silence.
        self._stream.flush()


def describe(report: Report) -> str:
    """Returns a report as one line for people, or "" for what they need not see."""
    match report.kind:
        case Kind.METRICS:
            return f"step {report.step}: {show_values(report)}"
        case Kind.RESULT:
            return f"result: {show_values(report)}"
        case Kind.RESTORED:
            return f"going on from the checkpoint of step {report.step}{_saved_with(report)}"
        case _:
            return ""


def _saved_with(report: Report) -> str:
    """Returns which parameters of a restored checkpoint were others than those of now."""
    others = report.fields.get("saved_with")
    if not others or not isinstance(others, dict):
        return ""
    return ", saved with " + ", ".join(f"{name}={value}" for name, value in others.items())


def show_values(report: Report) -> str:
    """Returns `name=value` pairs for people."""
    return "  ".join(f"{name}={show_number(value)}" for name, value in report.values.items())


def show_number(value: float) -> str:
    """Returns whole numbers whole and others with four digits."""
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.4g}"


class EventFileSink:
    """JSON lines appended to a file, for a front end in another process."""

    def __init__(self, path: Path, task: str) -> None:
        self._path = path
        self._task = task

    def status(self, job: str, status: JobStatus) -> None:
        """Writes a `status` event."""
        self._event(
            "status",
            job=job,
            phase=status.phase.value,
            restarts=status.restarts,
            reason=status.reason,
            message=status.message,
        )

    def log(self, line: LogLine) -> None:
        """Writes nothing: the logs are files already."""

    def report(self, process: int, report: Report) -> None:
        """Writes a `report` event."""
        self._event(
            "report",
            process=process,
            kind=report.kind.value,
            time=report.time,
            step=report.step,
            values={name: json_number(value) for name, value in report.values.items()},
            fields=dict(report.fields),
        )

    def note(self, text: str) -> None:
        """Writes a `note` event."""
        self._event("note", text=text)

    def error(self, text: str, exit_code: int) -> None:
        """Writes an `error` event: the sentence that ended the task."""
        self._event("error", text=text, exit_code=exit_code)

    def _event(self, event: str, **values: object) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"task": self._task, "event": event, **values}) + "\n")


class ManySinks:
    """Hands everything to several sinks."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks

    def status(self, job: str, status: JobStatus) -> None:
        """Hands it on."""
        for sink in self._sinks:
            sink.status(job, status)

    def log(self, line: LogLine) -> None:
        """Hands it on."""
        for sink in self._sinks:
            sink.log(line)

    def report(self, process: int, report: Report) -> None:
        """Hands it on."""
        for sink in self._sinks:
            sink.report(process, report)

    def note(self, text: str) -> None:
        """Hands it on."""
        for sink in self._sinks:
            sink.note(text)


@dataclass(frozen=True)
class TaskError:
    """The sentence that ended a task, and the exit code of its class."""

    text: str
    exit_code: int


def replay(text: str, sinks: Callable[[str], Sink]) -> TaskError | None:
    """Hands the news in one line of an event file to the sink of its task.

    Args:
        text: The line; what is no event is passed over.
        sinks: From a task's name to its sink.

    Returns:
        The error, when the line tells of one.
    """
    try:
        event = json.loads(text)
        task, news = str(event["task"]), _news(event)
    except (ValueError, KeyError, TypeError):
        return None
    if isinstance(news, TaskError):
        return news
    news(sinks(task))
    return None


def _news(event: Any) -> Callable[[Sink], None] | TaskError:
    """Returns what hands an event to a sink, or the error that it tells of.

    Raises:
        ValueError, KeyError, TypeError: It is no event.
    """
    match event["event"]:
        case "status":
            job, status = event["job"], JobStatus(Phase(event["phase"]), restarts=event["restarts"])
            return lambda sink: sink.status(job, status)
        case "report":
            values = {name: float(value) for name, value in dict(event["values"]).items()}
            kind, when, step = Kind(event["kind"]), event["time"], event["step"]
            process, report = event["process"], Report(kind, when, step, values, event["fields"])
            return lambda sink: sink.report(process, report)
        case "note":
            note = event["text"]
            return lambda sink: sink.note(note)
        case "error":
            return TaskError(event["text"], event["exit_code"])
        case other:
            raise ValueError(f"{other!r} is no kind of event")
