"""What a person sees while a sweep runs: a live table on a terminal, plain lines in a pipe."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from kfp_jax.sinks import PlainSink, show_number
from kfp_jax.status import Phase
from kfp_jax.sweep.spec import SweepSpec
from kfp_jax.sweep.trial import Trial, TrialState, ranked
from kfp_jax.sweep_news import SweepNews, parameters_text
from kfp_jax.tuning import SweepSink

_ENDED_SHOWN = 6
_COLOURS = {
    TrialState.COMPLETE: "green",
    TrialState.FAILED: "red",
    TrialState.PRUNED: "yellow",
    TrialState.STOPPED: "yellow",
}


@contextmanager
def sweep_screen(spec: SweepSpec) -> Iterator[SweepSink]:
    """Gives what shows the news of a sweep on stderr; stdout stays free for results."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield SweepNews(spec, PlainSink(sys.stderr))
        return
    table = _LiveTable(spec, console)
    with table.live:
        yield table


class _LiveTable:
    """The running trials, the last that ended, the best, and how far the sweep is."""

    def __init__(self, spec: SweepSpec, console: Console) -> None:
        self._objective = spec.job.objective
        self._direction = spec.study.direction
        self._running: dict[int, tuple[Trial, Phase]] = {}
        self._ended: dict[int, Trial] = {}
        self._best: Trial | None = None
        self._progress = Progress(
            TextColumn("trials"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f} of {task.total:.0f}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        total = spec.study.max_trials or spec.study.space.points()
        self._bar = self._progress.add_task("trials", total=total)
        self.live = Live(self._shown(), console=console, refresh_per_second=4)

    def kept(self, trials: Sequence[Trial]) -> None:
        self._progress.reset(self._bar, completed=len(trials))
        self._best = next(iter(ranked(trials, self._direction)), None)
        self.live.update(self._shown())

    def trial(self, trial: Trial, phase: Phase) -> None:
        if trial.state.finished:
            self._running.pop(trial.number, None)
            self._ended[trial.number] = trial
            if trial.state is TrialState.FAILED:
                self.note(f"Trial {trial.number} failed: {trial.message}")
            self._progress.update(self._bar, advance=1)
            pair = [trial] if self._best is None else [self._best, trial]
            self._best = next(iter(ranked(pair, self._direction)), None)
        else:
            self._running[trial.number] = (trial, phase)
        self.live.update(self._shown())

    def note(self, text: str) -> None:
        self.live.console.print(Text(text, style="yellow"), highlight=False)

    def _shown(self) -> Group:
        """Returns what matters most first: a small terminal cuts off the rest."""
        lines: list[Table | Text | Progress] = [self._progress]
        if self._best:
            score = show_number(self._best.score or 0.0)
            best = f"best {self._objective} {score} (trial {self._best.number})"
            lines.append(Text(f"{best}: {parameters_text(self._best)}", style="bold green"))
        table = Table(box=None, padding=(0, 2), header_style="dim")
        for heading in ("trial", "phase", self._objective, "step", "parameters"):
            table.add_column(Text(heading), no_wrap=True, overflow="ellipsis")
        for trial, phase in sorted(self._running.values(), key=lambda item: item[0].number):
            last = trial.curve[-1][1] if trial.curve else None
            table.add_row(*_cells(trial, Text(phase.value.lower(), style="cyan"), last))
        for trial in reversed(list(self._ended.values())[-_ENDED_SHOWN:]):
            word = Text(trial.reason or trial.state.value.lower(), style=_COLOURS[trial.state])
            table.add_row(*_cells(trial, word, trial.score), style="dim")
        return Group(*lines, table)


def _cells(trial: Trial, phase: Text, value: float | None) -> tuple[Text, ...]:
    step = str(trial.curve[-1][0]) if trial.curve else ""
    score = show_number(value) if value is not None else ""
    return Text(str(trial.number)), phase, Text(score), Text(step), Text(parameters_text(trial))
