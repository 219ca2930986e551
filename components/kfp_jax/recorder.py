"""What the launcher knows of a job from the lines that its processes write."""

import os
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from kfp_jax import storage
from kfp_jax.backends.base import LogLine
from kfp_jax.clock import Clock
from kfp_jax.errors import OutputError, Unheard
from kfp_jax.history import HistoryFile
from kfp_jax.reports import Kind, Malformed, Report, parse_line
from kfp_jax.sinks import Sink

TAIL_LINES = 60
TAIL_LINE_CHARACTERS = 2000
_MALFORMED_SHOWN = 5


class Recorder:
    """Takes every line once, in one thread; its attributes are read by another.

    A context manager: leaving it closes the history.

    Memory does not grow with the number of lines: of the log a tail is kept, of the reports the
    last value of each metric; the rest goes to `history.jsonl` and to the sink.

    Attributes:
        last_output: When the last line came, by the clock.
        arrived: Which processes of the current attempt were ready to join.
        joined: Which have joined.
        parameters: What the program says it trains with, defaults included; None if it does not.
        errors: Their error reports.
        last_step: The last reported step, or None.
        values: The last value of each metric, the result's over the reported ones.
        result: The result report, or None.
        problem: Why recording ended early, or None.
        deaf: Whether this account cannot know what the processes write.
    """

    def __init__(self, folder: Path, clock: Clock, sink: Sink) -> None:
        """Opens the history.

        Raises:
            OutputError: It cannot be written.
        """
        self.last_output = clock.now()
        self.arrived: frozenset[int] = frozenset()
        self.joined: frozenset[int] = frozenset()
        self.parameters: object = None
        self.errors: dict[int, Report] = {}
        self.last_step: int | None = None
        self.values: dict[str, float] = {}
        self.result: Report | None = None
        self.problem: Exception | None = None
        self.deaf = False
        self._tails: dict[int, deque[str]] = {}
        self._numbers: dict[int, int] = {}
        self._attempt = 0
        self._malformed = 0
        self._clock = clock
        self._sink = sink
        path = folder / storage.HISTORY
        try:
            self._history = HistoryFile(path)
        except OSError as error:
            raise _unwritable(path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._history.close()

    def consume(self, lines: Iterable[LogLine]) -> None:
        """Takes all lines, and keeps what ended that early as `problem`."""
        try:
            for line in lines:
                self._take(line)
        except Unheard:
            self.deaf = True
        except Exception as error:  # noqa: BLE001 - the top of a thread: another one raises it
            self.problem = error

    def tails(self) -> Mapping[int, tuple[str, ...]]:
        """Returns the last lines of each process of the current attempt."""
        return {process: tuple(tail) for process, tail in self._tails.items()}

    def _take(self, line: LogLine) -> None:
        process, attempt, text = line
        self.last_output = self._clock.now()
        if attempt > self._attempt:
            self._next_attempt(attempt)
        number = self._numbers[process] = self._numbers.get(process, 0) + 1
        report = parse_line(text, number)
        if isinstance(report, Report):
            self._report(process, report)
            return
        if report is not None:
            self._note_malformed(process, report)
        if process not in self._tails:
            self._tails[process] = deque(maxlen=TAIL_LINES)
        self._tails[process].append(text[:TAIL_LINE_CHARACTERS])
        self._sink.log(line)

    def _report(self, process: int, report: Report) -> None:
        if report.kind in (Kind.WAITING, Kind.JOINED) and process in self.joined:
            self._start_again()  # a queue took back the job's place and gave it another
        match report.kind:
            case Kind.WAITING:
                self.arrived |= {process}
            case Kind.JOINED:
                self.arrived |= {process}
                self.joined |= {process}
                if process == 0:
                    self.parameters = report.fields.get("parameters")
            case Kind.ERROR:
                self.errors.setdefault(process, report)
            case Kind.METRICS:
                self.last_step = report.step
                self.values.update(report.values)
            case Kind.RESULT:
                self.result = report
                self.values.update(report.values)
            case Kind.RESTORED:
                self.last_step = report.step
            case Kind.PROGRESS:
                pass
        self._keep(report)
        self._sink.report(process, report)

    def _keep(self, report: Report) -> None:
        try:
            self._history.add(report)
        except OSError as error:
            raise _unwritable(self._history.path, error) from error

    def _next_attempt(self, attempt: int) -> None:
        self._attempt = attempt
        self._numbers = {}
        self._start_again()

    def _start_again(self) -> None:
        self.arrived = self.joined = frozenset()
        self.errors = {}
        self.last_step = self.result = None
        self.values = {}
        self._tails = {}
        self._history.next_attempt()

    def _note_malformed(self, process: int, report: Malformed) -> None:
        self._malformed += 1
        if self._malformed <= _MALFORMED_SHOWN:
            more = "; more like it are not shown" if self._malformed == _MALFORMED_SHOWN else ""
            self._sink.note(
                f"Process {process} wrote a malformed report in line {report.line}:"
                f" {report.problem}{more}."
            )


def _unwritable(path: Path, error: OSError) -> OutputError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    return OutputError(
        f"The job's history {path} cannot be written: {reason}; free space or choose another"
        " output folder."
    )
