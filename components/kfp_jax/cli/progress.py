"""What a person sees while jobs run: bars on a terminal, plain lines in a pipe."""

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from kfp_jax import storage
from kfp_jax.backends.base import LogLine
from kfp_jax.reports import Kind, Report
from kfp_jax.sinks import (
    PlainSink,
    Remaining,
    Sink,
    describe,
    progress_of,
    show_number,
    show_values,
)
from kfp_jax.status import JobStatus, Outcome, Phase
from kfp_jax.storage import REPORT

# Printed by JAX on CPU in every good run, and no news to anybody.
_NOISE = ("[Gloo] Rank ",)
_COLOURS = {
    Phase.SUCCEEDED: "green",
    Phase.FAILED: "red",
    Phase.LOST: "red",
    Phase.CANCELLED: "yellow",
    Phase.RESTARTING: "yellow",
}


class Screen:
    """Shows the news of one or more tasks on stderr; stdout stays free for results."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._progress: Progress | None = None
        if self._console.is_terminal:
            self._progress = Progress(
                SpinnerColumn(finished_text=" "),
                # Names and metrics are anybody's: a bracket in them is no markup.
                TextColumn("{task.description}", style="bold", markup=False),
                TextColumn("{task.fields[phase]}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[detail]}", markup=False),
                TimeElapsedColumn(),
                console=self._console,
            )

    def __enter__(self) -> "Screen":
        if self._progress:
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._progress:
            self._progress.stop()

    def task(self, name: str, *, label: bool = False) -> Sink:
        """Returns the sink of a new task.

        Args:
            name: What to call it.
            label: Whether plain lines begin with the name, because there are several tasks.
        """
        if self._progress is None:
            return _Quiet(PlainSink(sys.stderr, f"{name}: " if label else ""))
        number = self._progress.add_task(name, total=None, phase="", detail="")
        return _BarSink(self._progress, number)


class _Quiet:
    """A plain sink without the noise."""

    def __init__(self, sink: Sink) -> None:
        self.status = sink.status
        self.report = sink.report
        self.note = sink.note
        self._log = sink.log

    def log(self, line: LogLine) -> None:
        if not line.text.startswith(_NOISE):
            self._log(line)


class _BarSink:
    """One task as one bar; lines of the program and results of epochs go above the bars."""

    def __init__(self, progress: Progress, number: TaskID) -> None:
        self._progress = progress
        self._number = number
        self._remaining = Remaining()
        self._values = ""

    def status(self, job: str, status: JobStatus) -> None:
        colour = _COLOURS.get(status.phase, "cyan")
        again = f" (restart {status.restarts})" if status.restarts else ""
        held = (status.message or status.reason) if status.reason else ""
        self._progress.update(
            self._number,
            phase=f"[{colour}]{status.phase.value.lower()}{again}[/]",
            detail=held or self._values,
        )
        if status.phase.finished:
            done = status.phase is Phase.SUCCEEDED
            total = self._progress.tasks[self._number].total or 1
            self._progress.update(self._number, detail=self._values, total=total)
            if done:
                self._progress.update(self._number, completed=total)
            self._progress.stop_task(self._number)

    def log(self, line: LogLine) -> None:
        if not line.text.startswith(_NOISE):
            self._above(f"[{line.process}] {line.text}", style="dim")

    def report(self, process: int, report: Report) -> None:
        if report.kind is Kind.PROGRESS:
            done, total = progress_of(report)
            left = self._remaining.seconds(report)
            eta = f", {left:.0f} s left" if left is not None else ""
            self._progress.update(
                self._number,
                completed=done,
                total=total,
                detail=f"{done}/{total}{eta}  {self._values}",
            )
        elif report.kind is Kind.METRICS and "epoch" not in report.values:
            self._values = show_values(report)
        elif text := describe(report):
            self._above(text)

    def note(self, text: str) -> None:
        self._above(text, style="yellow")

    def _above(self, text: str, style: str = "") -> None:
        self._progress.console.print(Text(text, style=style), highlight=False)


def print_summary(title: str, rows: dict[str, str], *, good: bool) -> None:
    """Prints the end of a command on stdout."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=1000)  # a pipe has no width, and folded paths cannot be used
    table = Table.grid(padding=(0, 2))
    for name, value in rows.items():
        table.add_row(Text(f"  {name}", style="dim", overflow="fold"), Text(value, overflow="fold"))
    console.print(Text(title, style="bold green" if good else "bold red"))
    console.print(table)


def outcome_rows(outcome: Outcome) -> dict[str, str]:
    """Returns what a person wants to know of a finished job."""
    seconds = outcome.seconds
    rows = {name.replace("_", " "): shown(name, value) for name, value in outcome.metrics.items()}
    rows["processes"] = str(outcome.num_processes)
    rows["time"] = f"{seconds['training']:.1f} s of training, {seconds['total']:.1f} s in all"
    if outcome.attempts > 1:
        rows["attempts"] = str(outcome.attempts)
    if outcome.model_uri:
        rows["model"] = outcome.model_uri
    rows["report"] = f"{storage.shown_at(outcome.output_uri)}/{REPORT}"
    return rows


def shown(name: str, value: float) -> str:
    """Returns a metric for people: accuracies in percent."""
    share = "accuracy" in name and 0 <= value <= 1
    return f"{value:.2%}" if share else show_number(value)
