"""The leaderboard of a sweep: values in, one HTML document out."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kfp_jax.html.pages import Fact, Phase, Table, as_table, environment
from kfp_jax.html.parallel import draw_parallel
from kfp_jax.html.plot_parts import Plot, score
from kfp_jax.html.score_plots import draw_curves, draw_scores
from kfp_jax.html.text import clip, duration, number, plain
from kfp_jax.html.timeline import draw_timeline
from kfp_jax.sweep.summary import SweepState, SweepSummary
from kfp_jax.sweep.trial import Direction, Trial, TrialState, ranked

MAX_LEADERBOARD_BYTES = 1_500_000
"""No leaderboard is larger."""
MOST_ROWS = 100
_MOST_COLUMNS = 12
_MOST_BARS = 12
_MOST_REASONS = 12
_MOST_SENTENCES = 3
_MOST_NUMBERS = 12
_CELL = 60

_STATES = {
    SweepState.SUCCEEDED: ("succeeded", "good"),
    SweepState.FAILED: ("failed", "bad"),
    SweepState.STOPPED: ("stopped", "warn"),
}
_WORDS = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAILED: "failed",
    TrialState.STOPPED: "stopped",
    TrialState.RUNNING: "running",
}
_ORDER = tuple(_WORDS)
# What each class of marks and lines is called in a legend, in this order.
_LEGEND = {
    "m-complete": "complete",
    "m-pruned": "pruned (its last score)",
    "m-stopped": "stopped or running",
    "m-best": "the best",
    "l-best": "the best",
    "l-complete": "complete",
    "l-pruned": "pruned",
    "l-failed": "failed",
    "l-stopped": "stopped or running",
    "m-end": "where it was pruned",
    "m-failed": "failed",
    "t-complete": "complete",
    "t-pruned": "pruned",
    "t-failed": "failed",
    "t-stopped": "stopped or running",
}


@dataclass(frozen=True)
class Row:
    """A trial of the table."""

    rank: str
    trial: int
    score: str
    state: str
    values: tuple[str, ...]
    """A cell for each column of parameters; "" where the trial has none."""
    time: str
    job: str


@dataclass(frozen=True)
class Board:
    """The table of the trials."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    more_rows: int
    more_columns: int
    jobs: bool
    """Whether any trial has a job's name."""


@dataclass(frozen=True)
class FailedTrials:
    """Trials that failed for one reason."""

    reason: str
    count: int
    numbers: str
    sentences: tuple[str, ...]
    more: int
    """How many more different sentences there are."""


@dataclass(frozen=True)
class Bar:
    """A bar of a length from 0 to 1 with its words."""

    name: str
    text: str
    share: float
    kind: str = ""


def render_leaderboard(
    summary: SweepSummary, trials: Sequence[Trial], importances: Mapping[str, float]
) -> str:
    """Returns the leaderboard as an HTML document of at most `MAX_LEADERBOARD_BYTES` bytes.

    Args:
        summary: Of these trials.
        trials: In any order. In a sweep made by a pipeline's loop they may have no job and no
            start; then there is no timeline.
        importances: How much of the scores' variance each parameter explains (0 to 1); may be
            empty.
    """
    finite = {name: share for name, share in importances.items() if math.isfinite(share)}
    direction = summary.direction
    scores = draw_scores(trials, direction)
    return (
        environment()
        .get_template("leaderboard.html.j2")
        .render(
            program=clip(summary.program or "sweep", 80),
            objective=clip(summary.objective, 60),
            better="higher" if direction is Direction.MAXIMIZE else "lower",
            phase=_phase(summary),
            headline=_headline(summary),
            facts=_facts(summary, trials),
            note=_note(summary, trials),
            best=as_table(_best_title(summary), summary.best.parameters if summary.best else {}),
            origin=_origin(summary),
            usage=_usage(summary),
            history=scores,
            curves=draw_curves(trials, direction),
            parallel=draw_parallel(trials, direction, finite) if scores else None,
            timeline=draw_timeline(trials),
            legend=_legend,
            importances=_importances(finite),
            more_importances=max(0, len(finite) - _MOST_BARS),
            machine=_machine(summary),
            saved=_saved(summary),
            failures=_failures(trials),
            board=_board(trials, direction, finite),
            tables=_tables(summary),
        )
    )


def _phase(summary: SweepSummary) -> Phase:
    word, tone = _STATES[summary.state]
    failed = summary.state is SweepState.FAILED
    return Phase(word, tone, clip(_sentence(summary.ended), 2_000) if failed else "", "")


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if not text or text[-1] in ".!?" else ".")


def _note(summary: SweepSummary, trials: Sequence[Trial]) -> str:
    """Returns what is to be said before all figures."""
    parts = []
    if summary.ended and summary.state is not SweepState.FAILED:
        parts.append(_sentence(summary.ended))
    if not trials:
        parts.append("The sweep made no trial.")
    elif summary.best is None:
        parts.append("No trial is complete, so there is no best one.")
    return clip(" ".join(parts), 2_000)


def _headline(summary: SweepSummary) -> Fact | None:
    best = summary.best
    if best is None or best.score is None:
        return None
    better = "highest" if summary.direction is Direction.MAXIMIZE else "lowest"
    name = clip(summary.objective.replace("_", " "), 60)
    return Fact(f"{better} {name}", _score(best.score), f"trial {best.number}")


def _score(value: float) -> str:
    """Returns a score with six significant digits: the best ones of a sweep are close."""
    return f"{value:.6g}" if value == 0 or 1e-4 <= abs(value) < 1e6 else number(value)


def _facts(summary: SweepSummary, trials: Sequence[Trial]) -> list[Fact]:
    counts = ", ".join(
        f"{summary.counts[state]:,} {_WORDS[state]}"
        for state in _ORDER
        if summary.counts.get(state)
    )
    facts = [Fact("Trials", f"{len(trials):,}", counts)]
    if summary.makespan is not None:
        at_once = f"{summary.parallel:,} at once" if summary.parallel else ""
        facts.append(Fact("Total time", duration(summary.makespan), at_once))
    spent = summary.machine_time
    if spent.used:
        nodes = f"{summary.num_nodes:,} nodes a trial" if summary.num_nodes > 1 else ""
        facts.append(Fact("Machine time", duration(spent.used), nodes))
    if spent.saved:
        facts.append(Fact("Saved by pruning", f"≈ {duration(spent.saved)}", "estimate"))
    return facts


def _best_title(summary: SweepSummary) -> str:
    return f"Parameters of trial {summary.best.number}" if summary.best else ""


def _origin(summary: SweepSummary) -> list[tuple[str, str]]:
    """Returns where the best trial's files are, and what made them."""
    best = summary.best
    if best is None:
        return []
    facts = [("Job", best.job), ("Output", best.output_uri), ("Model", best.model_uri)]
    return [(name, clip(value, 400)) for name, value in facts if value]


def _usage(summary: SweepSummary) -> list[tuple[str, str]]:
    """Returns how to use the best trial: what each text is, and the text to copy."""
    best = summary.best
    if best is None:
        return []
    parameters = {**summary.parameters, **best.parameters}
    usage = []
    if best.model_uri:
        lines = (
            "from kfp_jax_runtime.export import load_model",
            f"model = load_model({clip(best.model_uri, 1_000)!r})",
        )
        usage.append(("Load its model", "\n".join(lines)))
    text = json.dumps(parameters, indent=2, ensure_ascii=False, default=str)
    usage.append(("Train with its parameters again", clip(text, 4_000)))
    return usage


def _legend(plot: Plot) -> list[tuple[str, str]]:
    return [(kind, words) for kind, words in _LEGEND.items() if kind in plot.classes]


def _importances(importances: Mapping[str, float]) -> list[Bar]:
    ordered = sorted(importances.items(), key=lambda item: (-item[1], item[0]))[:_MOST_BARS]
    most = max((share for _, share in ordered), default=0.0)
    return [
        Bar(clip(name, 80), f"{100 * share:.0f} %", max(share, 0.0) / most if most > 0 else 0.0)
        for name, share in ordered
    ]


def _machine(summary: SweepSummary) -> list[Bar]:
    spent = summary.machine_time
    parts = [
        ("complete trials", spent.useful, "complete"),
        ("pruned trials", spent.pruned, "pruned"),
        ("failed or stopped", spent.wasted, "failed"),
        ("running", spent.used - spent.useful - spent.pruned - spent.wasted, "stopped"),
    ]
    return [
        Bar(name, duration(seconds), seconds / spent.used, kind)
        for name, seconds, kind in parts
        if seconds > 1e-6 * spent.used
    ]


def _saved(summary: SweepSummary) -> str:
    spent = summary.machine_time
    if not spent.saved > 0:
        return ""
    share = spent.saved / (spent.used + spent.saved)
    return (
        f"Pruning saved about {duration(spent.saved)}, {100 * share:.0f} % of what the sweep would "
        "have used. This is an estimate: it assumes that each pruned trial would have run as long "
        "as the mean complete one."
    )


def _failures(trials: Iterable[Trial]) -> list[FailedTrials]:
    groups: dict[str, list[Trial]] = {}
    for trial in sorted(trials, key=lambda trial: trial.number):
        if trial.state is TrialState.FAILED:
            groups.setdefault(trial.reason, []).append(trial)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    shown = [_failed(reason, group) for reason, group in ordered[:_MOST_REASONS]]
    rest = [trial for _, group in ordered[_MOST_REASONS:] for trial in group]
    if rest:
        rest.sort(key=lambda trial: trial.number)
        shown.append(_failed(f"{len(ordered) - _MOST_REASONS:,} other reasons", rest))
    return shown


def _failed(reason: str, trials: Sequence[Trial]) -> FailedTrials:
    # What differs by the job's name alone is said once.
    sentences: dict[str, str] = {}
    for trial in trials:
        if trial.message:
            same = trial.message.replace(trial.job, "") if trial.job else trial.message
            sentences.setdefault(same, trial.message)
    numbers = ", ".join(str(trial.number) for trial in trials[:_MOST_NUMBERS])
    more = len(trials) - _MOST_NUMBERS
    return FailedTrials(
        reason=clip(reason, 80) or "unknown",
        count=len(trials),
        numbers=f"{numbers} and {more:,} more" if more > 0 else numbers,
        sentences=tuple(clip(text, 1_000) for text in list(sentences.values())[:_MOST_SENTENCES]),
        more=max(0, len(sentences) - _MOST_SENTENCES),
    )


def _board(
    trials: Sequence[Trial], direction: Direction, importances: Mapping[str, float]
) -> Board:
    names = sorted(
        dict.fromkeys(name for trial in trials for name in trial.parameters),
        key=lambda name: -importances.get(name, 0.0),
    )
    shown = names[:_MOST_COLUMNS]
    places = {trial.number: place for place, trial in enumerate(ranked(trials, direction), 1)}
    sign = -1.0 if direction is Direction.MAXIMIZE else 1.0

    def key(trial: Trial) -> tuple[int, float, int]:
        value = score(trial)
        worth = sign * value if value is not None else math.inf
        return _ORDER.index(trial.state), worth, trial.number

    rows = [
        _row(trial, places.get(trial.number), shown)
        for trial in sorted(trials, key=key)[:MOST_ROWS]
    ]
    return Board(
        columns=tuple(clip(name, _CELL) for name in shown),
        rows=tuple(rows),
        more_rows=len(trials) - len(rows),
        more_columns=len(names) - len(shown),
        jobs=any(row.job for row in rows),
    )


def _row(trial: Trial, place: int | None, names: Sequence[str]) -> Row:
    value = score(trial)
    return Row(
        rank=str(place) if place is not None else "",
        trial=trial.number,
        score=_score(value) if value is not None else "",
        state=_WORDS[trial.state],
        values=tuple(
            _value(trial.parameters[name]) if name in trial.parameters else "" for name in names
        ),
        time=duration(trial.seconds) if trial.seconds else "",
        job=clip(trial.job, 80),
    )


def _value(value: Any) -> str:
    if isinstance(value, str):
        return clip(value, _CELL)
    return number(value) if not isinstance(value, list | dict) else clip(plain(value), _CELL)


def _tables(summary: SweepSummary) -> list[Table]:
    settings = {
        "Program": summary.program,
        "Objective": f"{summary.objective} ({summary.direction})",
        "Sampler": summary.sampler,
        "Pruner": summary.pruner,
        "Seed": summary.seed,
        "Trials at once": summary.parallel,
        "Nodes a trial": summary.num_nodes,
    }
    shown = {name: value for name, value in settings.items() if value not in (None, "")}
    tables = [
        as_table("Sweep", shown),
        as_table("Parameters that all trials share", summary.parameters),
    ]
    return [table for table in tables if table.rows]
