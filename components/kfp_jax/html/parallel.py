"""Each trial of a sweep as a line across its parameters, to its score."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from kfp_jax.html.axes import Axis, axis, score_axis
from kfp_jax.html.plot_parts import (
    Paths,
    Plot,
    clipped,
    evenly,
    from_best,
    label,
    picture,
    score,
    units,
)
from kfp_jax.html.text import as_float, clip, number, plain
from kfp_jax.sweep.trial import Direction, Trial, ranked

_MOST_LINES = 300
_MOST_AXES = 10
_MOST_CATEGORIES = 12
_SHADES = 5  # how many colours tell scores apart
_CLASSES = (*(f"p{shade}" for shade in range(_SHADES)), "p-none", "l-best")  # the last on top

_TOP, _BOTTOM, _BELOW = 30, 236, 32


@dataclass(frozen=True)
class _Column:
    """An axis: of numbers, or of words in their places (0 to 1)."""

    name: str
    numbers: Axis | None
    words: Mapping[str, float]
    missing: str
    """What is written where a trial has no value."""

    def share(self, value: Any) -> float | None:
        if self.numbers is None:
            return self.words.get(plain(value))
        x = as_float(value)
        return self.numbers.share(x) if x is not None and math.isfinite(x) else None

    def ticks(self) -> list[tuple[float, str]]:
        if self.numbers is not None:
            return [(self.numbers.share(tick.value), tick.label) for tick in self.numbers.ticks]
        stride = math.ceil(len(self.words) / _MOST_CATEGORIES)
        return [(share, word) for word, share in list(self.words.items())[::stride]]

    def described(self) -> str:
        if self.numbers is not None:
            return f"from {number(self.numbers.low)} to {number(self.numbers.high)}"
        return ", ".join(clip(word, 30) for word in list(self.words)[:_MOST_CATEGORIES])


@dataclass(frozen=True)
class _Line:
    """A trial, and where it crosses each column: 0 to 1, or None where it has no value."""

    trial: Trial
    shares: tuple[float | None, ...]


def draw_parallel(
    trials: Sequence[Trial], direction: Direction, importances: Mapping[str, float]
) -> Plot | None:
    """Returns the plot, the most important parameters first; None without any parameter."""
    names = sorted(
        dict.fromkeys(name for trial in trials for name in trial.parameters),
        key=lambda name: -importances.get(name, 0.0),
    )
    if not names:
        return None
    scores = [value for trial in trials if (value := score(trial)) is not None]
    up, _ = score_axis(scores, maximize=direction is Direction.MAXIMIZE)
    columns = [_column(name, trials) for name in names[:_MOST_AXES]]
    order = from_best(trials, direction)
    half = _MOST_LINES // 2
    lines = [_line(trial, columns, up) for trial in [*order[:half], *evenly(order[half:], half)]]
    columns.append(_Column("score", up, {}, "no score"))
    best = next(iter(ranked(trials, direction)), None)

    gaps = len(columns) - 1
    spacing = min(max(1040 / gaps, 104), 230)
    width = 80 + spacing * gaps
    missing = [any(line.shares[i] is None for line in lines) for i in range(len(columns))]
    height = _BOTTOM + (_BELOW + 22 if any(missing) else 20)
    paths = _paths(lines, best, spacing)
    body = paths.markup()
    for i, column in enumerate(columns):
        body += _column_svg(column, _x(spacing, i), spacing)
        if missing[i]:
            body += _tick(_x(spacing, i), _y(None), column.missing)
    style = Markup("width:100%;min-width:{}px;max-width:{}px").format(
        round(width * 0.8), round(width * 1.05)
    )
    svg = picture(width, height, _described(columns, lines, best), body, style)
    notes = _notes(trials, lines, columns, more=len(names) - _MOST_AXES)
    return Plot(svg, tuple(paths.data), notes)


def _column(name: str, trials: Iterable[Trial]) -> _Column:
    values = [trial.parameters[name] for trial in trials if name in trial.parameters]
    numbers = [
        x
        for value in values
        if not isinstance(value, str) and (x := as_float(value)) is not None and math.isfinite(x)
    ]
    if len(numbers) == len(values):
        whole = all(isinstance(value, int) for value in values)
        return _Column(name, axis(numbers, few=True, whole=whole), {}, "not set")
    words = sorted({plain(value) for value in values})
    if len(words) == 1:
        return _Column(name, None, {words[0]: 0.5}, "not set")
    places = {word: i / (len(words) - 1) for i, word in enumerate(words)}
    return _Column(name, None, places, "not set")


def _line(trial: Trial, columns: Iterable[_Column], up: Axis) -> _Line:
    shares = [
        column.share(trial.parameters[column.name]) if column.name in trial.parameters else None
        for column in columns
    ]
    value = score(trial)
    return _Line(trial, (*shares, up.share(value) if value is not None else None))


def _paths(lines: Sequence[_Line], best: Trial | None, spacing: float) -> Paths:
    """Returns the lines by the colour of their score, those with better ones on top."""
    paths = Paths()
    scored = sum(line.shares[-1] is not None for line in lines)
    for place in range(len(lines) - 1, -1, -1):
        line = lines[place]
        if line.shares[-1] is None:
            name = "p-none"
        elif line.trial is best:
            name = "l-best"
        else:
            name = f"p{_SHADES - 1 - place * _SHADES // scored}"
        points = (f"{units(_x(spacing, i))} {units(_y(s))}" for i, s in enumerate(line.shares))
        paths.add(name, f"M{'L'.join(points)}")
    return paths.ordered(_CLASSES)


def _x(spacing: float, index: int) -> float:
    return 6 + spacing * index


def _y(share: float | None) -> float:
    return _BOTTOM + _BELOW if share is None else _BOTTOM - share * (_BOTTOM - _TOP)


def _column_svg(column: _Column, x: float, spacing: float) -> Markup:
    # A character is about 6 units wide; the last column has less room beside it.
    room = 10 if column.missing == "no score" else int(0.8 * spacing / 7)
    markup = Markup('<path class="axis" d="M{} {}V{}"/>').format(units(x), _BOTTOM, _TOP)
    for share, text in column.ticks():
        markup += _tick(x, _y(share), clipped(text, room))
    title = Markup('<text class="name" x="{}" y="14">{}<title>{}</title></text>')
    name = clipped(column.name, int(spacing / 7) - 1)
    return markup + title.format(units(x - 2), name, clip(column.name, 200))


def _tick(x: float, y: float, text: str) -> Markup:
    mark = Markup('<path class="axis" d="M{} {}h4"/>').format(units(x), units(y))
    return mark + label(x + 6, y + 4, text, "halo")


def _notes(
    trials: Sequence[Trial], lines: Sequence[_Line], columns: Iterable[_Column], *, more: int
) -> tuple[str, ...]:
    notes = []
    if len(lines) < len(trials):
        notes.append(
            f"{len(lines):,} of {len(trials):,} trials are drawn: the best {_MOST_LINES // 2}, and "
            "the others evenly chosen."
        )
    if more > 0:
        notes.append(f"{more:,} more parameters are not drawn.")
    logarithmic = [
        clip(column.name, 40)
        for column in columns
        if column.numbers is not None and column.numbers.logarithmic
    ]
    if logarithmic:
        notes.append(f"Log scale: {', '.join(logarithmic)}.")
    return tuple(notes)


def _described(columns: Sequence[_Column], lines: Sequence[_Line], best: Trial | None) -> str:
    parts = [f"{len(lines):,} trials as lines across their parameters."]
    parts += [f"{clip(column.name, 60)}: {column.described()}." for column in columns[:-1]]
    if best is not None:
        pairs = list(best.parameters.items())[:_MOST_AXES]
        values = ", ".join(f"{clip(name, 60)} {number(value)}" for name, value in pairs)
        parts.append(f"The best, trial {best.number}: {values}; score {number(best.score)}.")
    return " ".join(parts)
