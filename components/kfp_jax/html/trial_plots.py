"""The plots of a sweep, each an inline SVG of a few paths: one path for all marks of a kind.

Small whatever the number of trials; colours are the page's, by class. Only the names and values
of parameters are text in them, clipped and escaped; all else is words outside, or numbers.
"""

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from markupsafe import Markup, escape

from kfp_jax.html.axes import LARGEST, Axis, axis, score_axis
from kfp_jax.html.text import as_float, clip, duration, number, plain
from kfp_jax.sweep.trial import Direction, Trial, TrialState, ranked

_Item = TypeVar("_Item")

_WIDTH, _HEIGHT = 420, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 10, 24
_ABOVE_FAILED = 20
MOST_MARKS = 2_000
MOST_CURVES = 150
MOST_POINTS = 60
MOST_LINES = 300
MOST_AXES = 10
MOST_SLOTS = 40
_MOST_CATEGORIES = 12
_LAST_STEP = 10**15
SHADES = 5
"""How many colours tell scores apart."""

_KINDS = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAILED: "failed",
    TrialState.STOPPED: "stopped",
    TrialState.RUNNING: "stopped",
}


@dataclass(frozen=True)
class Plot:
    """A plot, and the words to say below it."""

    svg: Markup
    kinds: tuple[str, ...] = ()
    """Which marks are in it, for the legend."""
    notes: tuple[str, ...] = ()


@dataclass
class _Paths:
    """Path data by class, drawn in the order in which the classes came first."""

    data: dict[str, list[str]] = field(default_factory=dict)

    def add(self, name: str, data: str) -> None:
        self.data.setdefault(name, []).append(data)

    def markup(self) -> Markup:
        path = Markup('<path class="{}" d="{}"/>')
        return Markup("").join(path.format(name, "".join(d)) for name, d in self.data.items())


def history(trials: Sequence[Trial], direction: Direction) -> Plot | None:
    """Returns the score of every trial by its number; None when no trial has a score."""
    scored = [trial for trial in trials if score(trial) is not None]
    if not scored:
        return None
    shown = evenly(sorted(trials, key=lambda trial: trial.number), MOST_MARKS)
    failed = any(score(trial) is None for trial in shown)
    up, limit = score_axis(
        [value for trial in scored if (value := score(trial)) is not None],
        maximize=direction is Direction.MAXIMIZE,
    )
    across = axis((float(trial.number) for trial in trials), linear=True, whole=True)
    bottom = _HEIGHT - _BOTTOM - (_ABOVE_FAILED if failed else 0)

    def x(number: float) -> float:
        return _LEFT + 5 + across.share(number) * (_WIDTH - _LEFT - _RIGHT - 10)

    def y(value: float) -> float:
        return bottom - 5 - up.share(value) * (bottom - _TOP - 10)

    paths = _Paths()
    for kind in ("pruned", "complete", "stopped", "failed"):  # the later ones are on top
        for trial in shown:
            if _KINDS[trial.state] == kind:
                value = score(trial)
                height = y(value) if value is not None else _HEIGHT - _BOTTOM - 8
                paths.add(f"m-{kind}", _MARKS[kind](x(trial.number), height))
    best = next(iter(ranked(trials, direction)), None)
    so_far = _best_so_far(trials, direction)
    if best is not None and best.score is not None:
        line = f"M{_n(x(so_far[0].number))} {_n(y(_known(so_far[0])))}"
        line += "".join(f"H{_n(x(one.number))}V{_n(y(_known(one)))}" for one in so_far[1:])
        paths.add("so-far", line + f"H{_n(_WIDTH - _RIGHT)}")
        paths.add("m-best", _ring(x(best.number), y(best.score)))
    described = _history_described(trials, scored, best, limit)
    grid = _grid(up, y) + _across(across, x) + _base(_HEIGHT - _BOTTOM)
    kinds = [name.removeprefix("m-") for name in paths.data if name.startswith("m-")]
    notes = []
    if limit is not None:
        beyond = sum((_known(trial) < up.low) or (_known(trial) > up.high) for trial in scored)
        word = "below" if direction is Direction.MAXIMIZE else "above"
        notes.append(f"{beyond:,} scores {word} {number(limit)} are drawn at the edge.")
    if len(shown) < len(trials):
        notes.append(f"{len(shown):,} of {len(trials):,} trials are drawn, evenly chosen.")
    if up.logarithmic:
        notes.append("Log scale.")
    return Plot(_svg(_WIDTH, _HEIGHT, described, grid + paths.markup()), tuple(kinds), tuple(notes))


def _history_described(
    trials: Sequence[Trial], scored: Sequence[Trial], best: Trial | None, limit: float | None
) -> str:
    values = [_known(trial) for trial in scored]
    parts = [
        f"Score by trial number: {len(scored):,} of {len(trials):,} trials have one, from "
        f"{number(min(values))} to {number(max(values))}."
    ]
    if best is not None:
        parts.append(f"The best is trial {best.number} with {number(best.score)}.")
    return " ".join(parts)


def _best_so_far(trials: Iterable[Trial], direction: Direction) -> list[Trial]:
    steps: list[Trial] = []
    for trial in sorted(trials, key=lambda trial: trial.number):
        if trial.state is TrialState.COMPLETE and score(trial) is not None:
            better = not steps or ranked([steps[-1], trial], direction)[0] is trial
            if better:
                steps.append(trial)
    return steps


def curves(trials: Sequence[Trial], direction: Direction) -> Plot | None:
    """Returns the reported objective of the trials by step; None when none reported it twice."""
    points = {trial.number: _drawable(evenly(trial.curve, MOST_POINTS)) for trial in trials}
    if not any(len(curve) > 1 for curve in points.values()):
        return None
    with_curve = [trial for trial in trials if points[trial.number]]
    best = next(iter(ranked(trials, direction)), None)
    order = _from_best(with_curve, direction)
    shown = [*order[:20], *evenly(order[20:], MOST_CURVES - 20)]
    points = {trial.number: points[trial.number] for trial in shown}
    values = [value for curve in points.values() for _, value in curve]
    # All curves begin badly, so that less is cut than of the scores.
    up, limit = score_axis(values, maximize=direction is Direction.MAXIMIZE, usual=0.9)
    across = axis((step for curve in points.values() for step, _ in curve), linear=True, whole=True)
    bottom = _HEIGHT - _BOTTOM

    def x(step: float) -> float:
        return _LEFT + across.share(step) * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return bottom - 5 - up.share(value) * (bottom - _TOP - 10)

    paths = _Paths()
    for trial in reversed(shown):
        kind = "best" if trial is best else _KINDS[trial.state]
        inside = _from_edge(points[trial.number], up, maximize=direction is Direction.MAXIMIZE)
        if len(inside) > 1:
            line = "L".join(f"{_n(x(step))} {_n(y(value))}" for step, value in inside)
            paths.add(f"l-{kind}", f"M{line}")
    ends = _Paths()
    for trial in shown:
        step, value = points[trial.number][-1]
        if not up.low <= value <= up.high:
            continue
        if trial.state is TrialState.PRUNED:
            ends.add("m-end", f"M{_n(x(step))} {_n(y(value) - 3)}v6")
        elif trial.state is TrialState.FAILED:
            ends.add("m-failed", _MARKS["failed"](x(step), y(value)))
    order_of_paths = ("l-pruned", "l-stopped", "l-failed", "l-complete", "l-best")
    paths.data = {name: paths.data[name] for name in order_of_paths if name in paths.data}
    described = (
        f"Learning curves of {len(shown):,} of {len(trials):,} trials, from step "
        f"{number(across.low)} to {number(across.high)}."
    )
    if best is not None and best.number in points:
        curve = points[best.number]
        first, last = curve[0], curve[-1]
        described += (
            f" The best, trial {best.number}, goes from {number(first[1])} to {number(last[1])}."
        )
    notes = []
    if limit is not None:
        word = "below" if direction is Direction.MAXIMIZE else "above"
        notes.append(f"What is {word} {number(limit)} is cut off.")
    if len(shown) < len(with_curve):
        notes.append(
            f"{len(shown):,} of {len(with_curve):,} curves are drawn: the best 20, and the others "
            "evenly chosen."
        )
    if up.logarithmic:
        notes.append("Log scale.")
    grid = _grid(up, y) + _across(across, x) + _base(bottom)
    kinds = [*paths.data, *ends.data]
    body = grid + paths.markup() + ends.markup()
    return Plot(_svg(_WIDTH, _HEIGHT, described, body), tuple(kinds), tuple(notes))


def _drawable(curve: Iterable[tuple[int, float]]) -> list[tuple[float, float]]:
    return [
        (float(min(step, _LAST_STEP)), min(max(value, -LARGEST), LARGEST))
        for step, value in curve
        if math.isfinite(value)
    ]


def _from_edge(
    curve: Sequence[tuple[float, float]], up: Axis, *, maximize: bool
) -> list[tuple[float, float]]:
    """Returns a curve from where it last comes in from the cut-off side."""
    outside = [
        index
        for index, (_, value) in enumerate(curve)
        if (value < up.low if maximize else value > up.high)
    ]
    if not outside:
        return [*curve]
    last = outside[-1]
    if last + 1 == len(curve):
        return []
    (step, value), (next_step, next_value) = curve[last], curve[last + 1]
    edge = up.low if maximize else up.high
    crossing = step + (next_step - step) * (edge - value) / (next_value - value)
    return [(crossing, edge), *curve[last + 1 :]]


@dataclass(frozen=True)
class _Column:
    """An axis of the parallel coordinates."""

    name: str
    numbers: Axis | None
    words: Mapping[str, float]
    detail: str

    def share(self, value: Any) -> float | None:
        if self.numbers is not None:
            x = as_float(value) if not isinstance(value, str) else None
            return self.numbers.share(x) if x is not None and math.isfinite(x) else None
        return self.words.get(plain(value))

    def ticks(self) -> Iterable[tuple[float, str]]:
        if self.numbers is not None:
            return [(self.numbers.share(tick.value), tick.label) for tick in self.numbers.ticks]
        step = math.ceil(len(self.words) / _MOST_CATEGORIES)
        return [(share, word) for word, share in list(self.words.items())[::step]]


def parallel(
    trials: Sequence[Trial], direction: Direction, importances: Mapping[str, float]
) -> Plot | None:
    """Returns each trial as a line across its parameters; None when there are none to show."""
    names = sorted(
        dict.fromkeys(name for trial in trials for name in trial.parameters),
        key=lambda name: -importances.get(name, 0.0),
    )
    if not names:
        return None
    columns = [_column(name, trials) for name in names[:MOST_AXES]]
    values = [value for trial in trials if (value := score(trial)) is not None]
    up, _ = score_axis(values, maximize=direction is Direction.MAXIMIZE)
    columns.append(_Column("score", up, {}, ""))
    order = _from_best(trials, direction)
    shown = [*order[: MOST_LINES // 2], *evenly(order[MOST_LINES // 2 :], MOST_LINES // 2)]
    spacing = min(max(1040 / (len(columns) - 1), 104), 230)
    width, height, top, bottom = 80 + spacing * (len(columns) - 1), 290, 30, 236
    rows: list[list[float | None]] = [
        [*(_share(column, trial) for column in columns[:-1]), _score_share(up, trial)]
        for trial in shown
    ]
    missing = any(share is None for row in rows for share in row)
    if not missing:
        height = 256

    def y(share: float | None) -> float:
        return bottom - share * (bottom - top) if share is not None else bottom + 32

    paths = _Paths()
    best = next(iter(ranked(trials, direction)), None)
    with_score = sum(score(trial) is not None for trial in shown)
    classes = [*(f"p{shade}" for shade in range(SHADES)), "p-none", "l-best"]
    for index, (trial, row) in reversed(list(enumerate(zip(shown, rows, strict=True)))):
        if score(trial) is None:
            name = "p-none"
        elif trial is best:
            name = "l-best"
        else:
            name = f"p{SHADES - 1 - index * SHADES // max(with_score, 1)}"
        line = "L".join(f"{_n(_x(spacing, i))} {_n(y(s))}" for i, s in enumerate(row))
        paths.add(name, f"M{line}")
    paths.data = {name: paths.data[name] for name in classes if name in paths.data}
    body = Markup("")
    for i, column in enumerate(columns):
        body += _column_svg(column, _x(spacing, i), spacing, y)
        if missing and any(row[i] is None for row in rows):
            label = "not set" if i < len(columns) - 1 else "no score"
            body += _text(_x(spacing, i) + 5, bottom + 36, label, "halo")
            body += Markup('<path class="axis" d="M{} {}h8"/>').format(
                _n(_x(spacing, i) - 4), bottom + 32
            )
    notes = []
    if len(shown) < len(trials):
        notes.append(
            f"{len(shown):,} of {len(trials):,} trials are drawn: the best {MOST_LINES // 2}, and "
            "the others evenly chosen."
        )
    if len(names) > MOST_AXES:
        notes.append(f"{len(names) - MOST_AXES:,} more parameters are not drawn.")
    logarithmic = [
        column.name for column in columns if column.numbers and column.numbers.logarithmic
    ]
    if logarithmic:
        notes.append(f"Log scale: {', '.join(clip(name, 40) for name in logarithmic)}.")
    described = _parallel_described(columns, shown, best)
    style = Markup("width:100%;min-width:{}px;max-width:{}px").format(
        round(width * 0.8), round(width * 1.05)
    )
    svg = _svg(width, height, described, paths.markup() + body, style)
    return Plot(svg, tuple(paths.data), tuple(notes))


def _x(spacing: float, index: int) -> float:
    return 6 + spacing * index


def _column(name: str, trials: Iterable[Trial]) -> _Column:
    values = [trial.parameters[name] for trial in trials if name in trial.parameters]
    numbers = [x for v in values if not isinstance(v, str) and (x := as_float(v)) is not None]
    if len(numbers) == len(values) and all(map(math.isfinite, numbers)):
        whole = all(isinstance(value, int) for value in values)
        numeric = axis(numbers, few=True, whole=whole)
        return _Column(name, numeric, {}, f"from {number(numeric.low)} to {number(numeric.high)}")
    words = sorted({plain(value) for value in values})
    gaps = max(len(words) - 1, 1)
    shares = {word: i / gaps if len(words) > 1 else 0.5 for i, word in enumerate(words)}
    return _Column(name, None, shares, ", ".join(clip(word, 30) for word in words[:12]))


def _share(column: _Column, trial: Trial) -> float | None:
    return column.share(trial.parameters[column.name]) if column.name in trial.parameters else None


def _score_share(up: Axis, trial: Trial) -> float | None:
    value = score(trial)
    return up.share(value) if value is not None else None


def _column_svg(column: _Column, x: float, spacing: float, y: Any) -> Markup:
    characters = int(spacing / 7)
    last = column.name == "score" and not column.words
    room = 10 if last else int(characters * 0.8)
    markup = Markup('<path class="axis" d="M{} {}V{}"/>').format(_n(x), _n(y(0)), _n(y(1)))
    for share, label in column.ticks():
        markup += Markup('<path class="axis" d="M{} {}h4"/>').format(_n(x), _n(y(share)))
        markup += _text(x + 6, y(share) + 4, _short(label, room), "halo")
    title = Markup('<text class="name" x="{}" y="14">{}<title>{}</title></text>')
    return markup + title.format(
        _n(x - 2), _short(column.name, characters - 1), clip(column.name, 200)
    )


def _parallel_described(
    columns: Sequence[_Column], shown: Sequence[Trial], best: Trial | None
) -> str:
    parts = [f"{len(shown):,} trials as lines across their parameters."]
    parts += [f"{clip(column.name, 60)}: {column.detail}." for column in columns[:-1]]
    if best is not None:
        pairs = list(best.parameters.items())[:MOST_AXES]
        values = ", ".join(f"{clip(name, 60)} {number(value)}" for name, value in pairs)
        parts.append(f"The best, trial {best.number}: {values}; score {number(best.score)}.")
    return " ".join(parts)


def timeline(trials: Sequence[Trial]) -> Plot | None:
    """Returns when each trial ran; None when that is not known or too many ran at once."""
    timed = [trial for trial in trials if _timed(trial)]
    if len(timed) < 2 or not any(trial.started > 0 for trial in timed):
        return None
    slots = _slots(timed)
    count = 1 + max(slots.values())
    if count > MOST_SLOTS:
        return None
    end = max(trial.started + trial.seconds for trial in timed)
    unit, word = next(
        (size, name)
        for size, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes"), (1, "seconds"))
        if end > 3 * size or size == 1
    )
    across = axis([0.0, end / unit])
    width, pitch = 1100, min(18, max(8, 240 / count))
    height = round(pitch * count + 34)

    def x(value: float) -> float:
        return 8 + across.share(value) * (width - 16)

    paths = _Paths()
    for trial in sorted(timed, key=lambda trial: trial.started):
        middle = 6 + pitch * (slots[trial.number] + 0.5)
        left, right = x(trial.started / unit), x((trial.started + trial.seconds) / unit)
        # A gap of one unit between neighbours; what is shorter is still seen.
        paths.add(
            f"t-{_KINDS[trial.state]}", f"M{_n(left)} {_n(middle)}h{_n(max(right - left - 1, 0.8))}"
        )
    thickness = Markup('<g stroke-width="{}">').format(_n(pitch - 3))
    body = _across(across, x, height - 8) + _base(pitch * count + 10, width)
    body += thickness + paths.markup() + Markup("</g>")
    described = (
        f"When {len(timed):,} trials ran: at most {count:,} at once, {duration(end)} in all."
    )
    style = Markup("width:100%;min-width:860px")
    return Plot(
        _svg(width, height, described, body, style), tuple(paths.data), (f"Horizontally: {word}.",)
    )


def _timed(trial: Trial) -> bool:
    return all(math.isfinite(value) for value in (trial.started, trial.seconds)) and (
        0 <= trial.started <= 1e12 and 0 < trial.seconds <= 1e12
    )


def _slots(trials: Iterable[Trial]) -> dict[int, int]:
    """Returns in which row each trial stands, so that none covers another."""
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    slots: dict[int, int] = {}
    for trial in sorted(trials, key=lambda trial: (trial.started, trial.number)):
        # Half a percent is forgiven: a slot's next trial is submitted while the last one is noted.
        while busy and busy[0][0] <= trial.started + trial.seconds * 0.005:
            heapq.heappush(free, heapq.heappop(busy)[1])
        slot = heapq.heappop(free) if free else len(busy)
        slots[trial.number] = slot
        heapq.heappush(busy, (trial.started + trial.seconds, slot))
    return slots


def score(trial: Trial) -> float | None:
    """Returns a trial's score when it can be drawn."""
    value = as_float(trial.score)
    return value if value is not None and math.isfinite(value) else None


def _known(trial: Trial) -> float:
    value = score(trial)
    assert value is not None, trial
    return value


def _from_best(trials: Iterable[Trial], direction: Direction) -> list[Trial]:
    """Returns the trials by their score, the best first; those without one last."""
    sign = -1.0 if direction is Direction.MAXIMIZE else 1.0
    complete = TrialState.COMPLETE

    def key(trial: Trial) -> tuple[bool, float, bool, int]:
        value = score(trial)
        worth = sign * value if value is not None else 0.0
        return value is None, worth, trial.state is not complete, trial.number

    return sorted(trials, key=key)


def evenly(items: Sequence[_Item], most: int) -> Sequence[_Item]:
    """Returns at most so many of the items, evenly chosen, with the first and the last."""
    if len(items) <= most:
        return items
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _short(text: str, characters: int) -> str:
    printable = clip(text, 400)
    return printable if len(printable) <= characters else printable[: characters - 1] + "…"


def _dot(x: float, y: float) -> str:
    return f"M{_n(x)} {_n(y)}h.01"


def _dash(x: float, y: float) -> str:
    return f"M{_n(x - 3)} {_n(y)}h6"


def _cross(x: float, y: float) -> str:
    return f"M{_n(x - 3)} {_n(y - 3)}l6 6m0-6l-6 6"


def _bar(x: float, y: float) -> str:
    return f"M{_n(x)} {_n(y - 3.5)}v7"


def _ring(x: float, y: float) -> str:
    return f"M{_n(x - 5.5)} {_n(y)}a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0-11 0"


_MARKS = {"complete": _dot, "pruned": _dash, "failed": _cross, "stopped": _bar}


def _text(x: float, y: float, text: str, name: str = "", anchor: str = "start") -> Markup:
    return Markup('<text class="{}" text-anchor="{}" x="{}" y="{}">{}</text>').format(
        name, anchor, _n(x), _n(y), text
    )


def _grid(up: Axis, y: Any) -> Markup:
    """Returns the lines across and their numbers, for an axis that goes upward."""
    markup = Markup("")
    for tick in up.ticks:
        height = y(tick.value)
        markup += Markup('<path class="grid" d="M{} {}H{}"/>').format(
            _LEFT, _n(height), _WIDTH - _RIGHT
        )
        markup += _text(_LEFT - 6, height + 4, tick.label, anchor="end")
    return markup


def _across(across: Axis, x: Any, baseline: float = _HEIGHT - 6) -> Markup:
    return Markup("").join(
        _text(
            x(tick.value),
            baseline,
            tick.label,
            anchor="middle",
        )
        for tick in across.ticks
    )


def _base(y: float, width: float = _WIDTH) -> Markup:
    left = _LEFT if width == _WIDTH else 8
    return Markup('<path class="base" d="M{} {}H{}"/>').format(left, _n(y), _n(width - 8))


def _svg(
    width: float, height: float, description: str, body: Markup, style: Markup | str = ""
) -> Markup:
    opening = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}"{}>')
    styled = Markup(' style="{}"').format(style) if style else ""
    return (
        opening.format(_n(width), _n(height), escape(description), styled) + body + Markup("</svg>")
    )
