"""What a terminal shows of a running job."""

import io

from kfp_jax.backends.base import LogLine
from kfp_jax.cli.progress import Screen
from kfp_jax.reports import Kind, Report
from kfp_jax.status import JobStatus, Phase
from rich.console import Console


def test_brackets_in_names_metrics_and_lines_are_shown_as_they_are() -> None:
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=160)
    with Screen(console) as screen:
        sink = screen.task("a[/]")
        sink.status("a[/]-1", JobStatus(Phase.RUNNING, restarts=1))
        sink.report(0, Report(Kind.METRICS, 1.0, 1, {"loss[/x]": 0.5}))
        sink.report(0, Report(Kind.PROGRESS, 2.0, fields={"done": 1, "total": 2}))
        sink.report(0, Report(Kind.RESULT, 3.0, None, {"best[/]": 0.25}))
        sink.log(LogLine(0, 1, "a line [/bold]"))
        sink.note("a note [red]")
    shown = terminal.getvalue()
    for text in ("a[/]", "loss[/x]=0.5", "best[/]=0.25", "[0] a line [/bold]", "a note [red]"):
        assert text in shown
