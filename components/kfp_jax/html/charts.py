"""Learning curves: which metrics share a panel, and each panel drawn as a small inline SVG.

Names, legends and captions stay outside the SVG: they come from the training program, and as HTML
they are escaped, wrap on a phone and can be read aloud. The SVG holds lines and axis numbers only.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from kfp_jax.html.history import Curve, History, Point
from kfp_jax.html.svg import COLOURS, Line, Marks, draw
from kfp_jax.html.text import clip, number

_MAX_PANELS = 9
_MAX_BYTES = 80_000

# Below, a loss counts as zero, which a logarithmic axis cannot show.
_SMALLEST_LOGARITHM = 1e-100

_TRAIN = {"train", "training"}
_TEST = {"test", "testing", "eval", "evaluation", "val", "valid", "validation", "dev", "holdout"}
_LOWER_IS_BETTER = ("loss", "error", "perplexity", "mse", "mae", "rmse")
_HIGHER_IS_BETTER = ("accuracy", "precision", "recall", "f1", "auc", "bleu", "score")


@dataclass(frozen=True)
class Series:
    """One curve of a panel, with the words of its legend."""

    curve: Curve
    label: str
    colour: int
    """1 to 6: which of the page's colours."""
    summary: str


@dataclass(frozen=True)
class Panel:
    """One chart: a quantity, and its curves for training, test data and so on."""

    title: str
    series: tuple[Series, ...]
    logarithmic: bool
    svg: Markup


@dataclass(frozen=True)
class Charts:
    """All charts of a report."""

    panels: tuple[Panel, ...]
    left_out: tuple[str, ...]
    """Names of metrics for which there was no room."""
    epochs: bool
    """Whether epochs are marked."""
    bands: bool
    """Whether a curve stands for more values than it has points."""
    not_finite: bool
    """Whether any value was NaN or infinite."""


def draw_charts(history: History) -> Charts:
    """Returns the learning curves, loss and accuracy first, in at most 80 KB of SVG."""
    panels: list[Panel] = []
    left_out: list[str] = []
    room = _MAX_BYTES
    for quantity, curves in _grouped(history.curves):
        drawn, rest = curves[:COLOURS], curves[COLOURS:]
        if len(panels) < _MAX_PANELS:
            panel = _panel(quantity, drawn, history, salt=f"p{len(panels)}")
            if len(panel.svg) <= room:
                room -= len(panel.svg)
                panels.append(panel)
                drawn = []
        left_out += [clip(curve.name, 60) for curve in [*drawn, *rest]]
    shown = [series.curve for panel in panels for series in panel.series]
    return Charts(
        panels=tuple(panels),
        left_out=tuple(left_out),
        epochs=bool(history.epochs) and bool(shown),
        bands=any(curve.count - curve.not_finite > len(curve.buckets) for curve in shown),
        not_finite=any(curve.not_finite for curve in shown),
    )


def _grouped(curves: Iterable[Curve]) -> list[tuple[str, list[Curve]]]:
    groups: dict[str, list[Curve]] = {}
    for curve in curves:
        groups.setdefault(_quantity(curve.name)[0], []).append(curve)
    first = {"loss": 0, "accuracy": 1, "learning rate": 2}
    for group in groups.values():
        group.sort(key=lambda curve: _quantity(curve.name)[1] in _TEST)
    return sorted(groups.items(), key=lambda group: first.get(group[0], len(first)))


def _quantity(name: str) -> tuple[str, str]:
    """Returns what a metric measures and on which data: "test_loss" is ("loss", "test")."""
    words = [word for word in re.split(r"[\s_./-]+", name) if word]
    split = next((word for word in words if word.lower() in _TRAIN | _TEST), "")
    if split and len(words) > 1:
        words.remove(split)
    else:
        split = ""
    quantity = " ".join(words) or name
    aliases = {"lr": "learning rate", "acc": "accuracy"}
    lowered = quantity.lower()
    return aliases.get(lowered, lowered), split.lower()


def _panel(quantity: str, curves: Sequence[Curve], history: History, *, salt: str) -> Panel:
    series = _series(quantity, curves)
    logarithmic = "loss" in quantity and _spans_two_decades(curves)
    title = clip(quantity, 60)
    svg = draw(
        [Line(one.curve, one.colour) for one in series],
        marks=Marks(history.epochs, _steps(history)),
        logarithmic=logarithmic,
        description=_described(title, series),
        salt=salt,
    )
    return Panel(
        title=title,
        series=series,
        logarithmic=logarithmic,
        svg=svg,
    )


def _series(quantity: str, curves: Sequence[Curve]) -> tuple[Series, ...]:
    free = list(range(1, COLOURS + 1))
    series = []
    for curve in curves:
        split = _quantity(curve.name)[1]
        wanted = 2 if split in _TEST else 1
        colour = wanted if wanted in free else free[0]
        free.remove(colour)
        label = split if split and len(curves) > 1 else clip(curve.name, 60)
        if len(curves) == 1 and _quantity(curve.name) == (quantity, ""):
            label = ""  # the title says it
        series.append(Series(curve, label, colour, _summary(quantity, curve)))
    return tuple(series)


def _summary(quantity: str, curve: Curve) -> str:
    parts = []
    if curve.last is not None:
        parts.append(f"last {number(curve.last.value)}")
    words = quantity.split()
    if any(word in words for word in _LOWER_IS_BETTER):
        parts += _best("lowest", curve.low, curve.last)
    elif any(word in words for word in _HIGHER_IS_BETTER):
        parts += _best("highest", curve.high, curve.last)
    if curve.not_finite:
        at = number(curve.not_finite_steps[0])
        times = "" if curve.not_finite == 1 else f", {curve.not_finite:,} times in all"
        parts.append(f"not finite at step {at}{times}")
    return ", ".join(parts)


def _best(word: str, best: Point | None, last: Point | None) -> list[str]:
    if best is None or last is None:
        return []
    if best.value == last.value:
        return [f"the {word}"]
    return [f"{word} {number(best.value)} at step {number(best.step)}"]


def _described(title: str, series: Sequence[Series]) -> str:
    parts = [f"{title} by step."]
    for one in series:
        first = one.curve.first
        start = f"begins at {number(first.value)}, " if first is not None else ""
        name = f"{one.label}: " if one.label else ""
        parts.append(f"{name}{start}{one.summary}.")
    return " ".join(parts)


def _steps(history: History) -> tuple[float, float]:
    """Returns the first and last step of all curves: panels side by side share their axis."""
    ends = [
        step
        for curve in history.curves
        for bucket in curve.buckets
        for step in (bucket.first_step, bucket.last_step)
    ]
    ends += [step for curve in history.curves for step in curve.not_finite_steps]
    return min(ends, default=0.0), max(ends, default=0.0)


def _spans_two_decades(curves: Iterable[Curve]) -> bool:
    lows = [curve.low.value for curve in curves if curve.low is not None]
    highs = [curve.high.value for curve in curves if curve.high is not None]
    return bool(lows) and min(lows) > _SMALLEST_LOGARITHM and max(highs) / min(lows) > 100
