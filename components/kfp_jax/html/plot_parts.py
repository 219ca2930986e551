"""What the plots of a sweep are made of: marks, lines and labels as SVG, and trials in order.

A plot is a few paths, one for all marks of a kind, so that it is small whatever the number of
trials. Colours are the page's, by class. All words but names and values of parameters, which are
clipped and escaped, stand outside the SVG.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from markupsafe import Markup, escape

from kfp_jax.html.axes import Axis
from kfp_jax.html.text import as_float, clip
from kfp_jax.sweep.trial import Direction, Trial, TrialState

_Item = TypeVar("_Item")

WIDTH, HEIGHT = 420, 210
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 10, 24

KINDS = {
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
    classes: tuple[str, ...] = ()
    """Which marks and lines are in it, for the legend."""
    notes: tuple[str, ...] = ()


@dataclass
class Paths:
    """Path data by class; drawn in this order."""

    data: dict[str, list[str]] = field(default_factory=dict)

    def add(self, name: str, data: str) -> None:
        """Adds to the path of a class."""
        self.data.setdefault(name, []).append(data)

    def ordered(self, names: Iterable[str]) -> "Paths":
        """Returns the paths of these classes in this order, the last on top."""
        return Paths({name: self.data[name] for name in names if name in self.data})

    def markup(self) -> Markup:
        """Returns the elements."""
        path = Markup('<path class="{}" d="{}"/>')
        return Markup("").join(path.format(name, "".join(d)) for name, d in self.data.items())


def score(trial: Trial) -> float | None:
    """Returns a trial's score when it can be drawn."""
    value = as_float(trial.score)
    return value if value is not None and math.isfinite(value) else None


def known_score(trial: Trial) -> float:
    """Returns the score of a trial that has one."""
    value = score(trial)
    assert value is not None, trial
    return value


def from_best(trials: Iterable[Trial], direction: Direction) -> list[Trial]:
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


def units(value: float) -> str:
    """Returns a coordinate: finer than a tenth of a unit is not seen, and takes twice the bytes."""
    return f"{value:.1f}".removesuffix(".0")


def clipped(text: str, characters: int) -> str:
    """Returns a text of at most so many characters."""
    printable = clip(text, 400)
    return printable if len(printable) <= characters else printable[: characters - 1] + "…"


def _dot(x: float, y: float) -> str:
    return f"M{units(x)} {units(y)}h.01"


def _dash(x: float, y: float) -> str:
    return f"M{units(x - 3)} {units(y)}h6"


def _cross(x: float, y: float) -> str:
    return f"M{units(x - 3)} {units(y - 3)}l6 6m0-6l-6 6"


def _bar(x: float, y: float) -> str:
    return f"M{units(x)} {units(y - 3.5)}v7"


def ring(x: float, y: float) -> str:
    """Returns the path of a ring around a mark."""
    return f"M{units(x - 5.5)} {units(y)}a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0-11 0"


MARKS = {"complete": _dot, "pruned": _dash, "failed": _cross, "stopped": _bar}


def label(x: float, y: float, text: str, name: str = "", anchor: str = "start") -> Markup:
    """Returns a text at a place."""
    return Markup('<text class="{}" text-anchor="{}" x="{}" y="{}">{}</text>').format(
        name, anchor, units(x), units(y), text
    )


def grid_lines(up: Axis, y: Callable[[float], float]) -> Markup:
    """Returns the lines across and their numbers, for an axis that goes upward."""
    markup = Markup("")
    for tick in up.ticks:
        height = y(tick.value)
        markup += Markup('<path class="grid" d="M{} {}H{}"/>').format(
            LEFT, units(height), WIDTH - RIGHT
        )
        markup += label(LEFT - 6, height + 4, tick.label, anchor="end")
    return markup


def labels_across(
    across: Axis, x: Callable[[float], float], baseline: float = HEIGHT - 6
) -> Markup:
    """Returns the numbers below an axis that goes across."""
    return Markup("").join(
        label(x(tick.value), baseline, tick.label, anchor="middle") for tick in across.ticks
    )


def base_line(y: float, width: float = WIDTH) -> Markup:
    """Returns the line on which a plot stands."""
    left = LEFT if width == WIDTH else 8
    return Markup('<path class="base" d="M{} {}H{}"/>').format(left, units(y), units(width - 8))


def picture(
    width: float, height: float, description: str, body: Markup, style: Markup | str = ""
) -> Markup:
    """Returns the whole SVG element; `description` is what a screen reader says."""
    opening = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}"{}>')
    styled = Markup(' style="{}"').format(style) if style else ""
    return (
        opening.format(units(width), units(height), escape(description), styled)
        + body
        + Markup("</svg>")
    )
