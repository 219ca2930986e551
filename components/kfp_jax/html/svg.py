"""One panel of learning curves as a small inline SVG, drawn by matplotlib."""

import io
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from kfp_jax.html.history import Bucket, Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = 6
"""How many curves a panel can tell apart."""
_WIDTH, _HEIGHT = 420, 200
"""User units of a panel; about as many pixels on a desktop, so that its text keeps its size."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 10, 24
_MOST_EPOCH_LINES = 24
_MOST_DOTS = 40

# Drawn in these colours and then turned into the page's CSS variables, so that the curves follow
# its light and dark schemes.
_INK, _GRID, _MARK, _BAD = "#0000e1", "#0000e2", "#0000e3", "#0000e4"
_SERIES = tuple(f"#0000f{i}" for i in range(1, COLOURS + 1))
_VARIABLES = {
    _INK: "var(--dim)",
    _GRID: "var(--line)",
    _MARK: "var(--mark)",
    _BAD: "var(--bad)",
    **{colour: f"var(--c{i})" for i, colour in enumerate(_SERIES, 1)},
}


@dataclass(frozen=True)
class Line:
    """A curve and which of the page's colours (1 to 6) it has."""

    curve: Curve
    colour: int


@dataclass(frozen=True)
class Marks:
    """Steps marked by vertical lines, and the first and last step to make room for."""

    epochs: Sequence[float]
    steps: tuple[float, float]


def draw(
    lines: Sequence[Line], *, marks: Marks, logarithmic: bool, description: str, salt: str
) -> Markup:
    """Returns an SVG element without any text but axis numbers.

    `description` is what a screen reader says; `salt` keeps the ids of panels on one page apart.
    """
    # Imported here: it takes half a second, and most commands draw nothing.
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context():
        mpl.rcdefaults()  # whatever style a notebook has set is not for this page
        mpl.rcParams["svg.fonttype"] = "none"
        mpl.rcParams["svg.hashsalt"] = salt
        mpl.rcParams["font.size"] = 11
        mpl.rcParams["axes.linewidth"] = 1
        figure = Figure(figsize=(_WIDTH / 72, _HEIGHT / 72))
        axes = figure.add_axes(
            (
                _LEFT / _WIDTH,
                _BOTTOM / _HEIGHT,
                (_WIDTH - _LEFT - _RIGHT) / _WIDTH,
                (_HEIGHT - _TOP - _BOTTOM) / _HEIGHT,
            )
        )
        figure.patch.set_visible(False)
        _style(axes, logarithmic=logarithmic)
        for line in lines:
            _draw_curve(axes, line.curve, _SERIES[line.colour - 1])
        first, last = marks.steps
        margin = (last - first) / 100 or 0.5
        axes.set_xlim(first - margin, last + margin)
        _draw_marks(axes, lines, marks)
        buffer = io.StringIO()
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(buffer, format="svg", metadata=nothing)
    opening = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">')
    return opening.format(_WIDTH, _HEIGHT, description) + _body(buffer.getvalue())


def _style(axes: "Axes", *, logarithmic: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axes.patch.set_visible(False)
    axes.spines[["top", "left", "right"]].set_visible(False)
    axes.spines["bottom"].set_color(_MARK)
    axes.tick_params(bottom=False, left=False, labelcolor=_INK, pad=5)
    axes.grid(axis="y", color=_GRID, linewidth=1, clip_on=False)
    axes.set_axisbelow(True)
    axes.margins(y=0.06)
    if logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(numticks=6))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: axis_number(value)))


def _draw_curve(axes: "Axes", curve: Curve, colour: str) -> None:
    dots: list[Bucket] = []
    for run in _runs(curve.buckets):
        if any(bucket.count > 1 for bucket in run):
            axes.fill(
                [b.step for b in run] + [b.step for b in reversed(run)],
                [b.high for b in run] + [b.low for b in reversed(run)],
                facecolor=colour,
                alpha=0.2,
                linewidth=0,
                clip_on=False,
            )
        if len(run) == 1 or len(curve.buckets) <= _MOST_DOTS:
            dots += run
    steps, values = _line(curve)
    axes.plot(steps, values, color=colour, linewidth=1.6, clip_on=False)
    if dots:
        axes.plot(
            [b.step for b in dots],
            [b.mean for b in dots],
            color=colour,
            linestyle="none",
            marker="o",
            markersize=4,
            markeredgewidth=0,
            clip_on=False,
        )


def _runs(buckets: Iterable[Bucket]) -> Iterator[list[Bucket]]:
    """Yields the stretches between gaps."""
    run: list[Bucket] = []
    for bucket in buckets:
        if bucket.after_gap and run:
            yield run
            run = []
        run.append(bucket)
    if run:
        yield run


def _line(curve: Curve) -> tuple[list[float], list[float]]:
    """Returns the steps and means to join by a line; it begins and ends at reported values."""
    steps: list[float] = []
    values: list[float] = []
    for bucket in curve.buckets:
        if bucket.after_gap and steps:
            steps.append(bucket.step)
            values.append(math.nan)
        steps.append(bucket.step)
        values.append(bucket.mean)
    if curve.first is not None and curve.buckets[0].count > 1:
        steps.insert(0, curve.first.step)
        values.insert(0, curve.first.value)
    if curve.last is not None and curve.buckets[-1].count > 1:
        steps.append(curve.last.step)
        values.append(curve.last.value)
    return steps, values


def _draw_marks(axes: "Axes", lines: Sequence[Line], marks: Marks) -> None:
    low, high = axes.get_xlim()
    across = axes.get_xaxis_transform()  # steps across, 0 to 1 upwards
    if len(marks.epochs) <= _MOST_EPOCH_LINES:
        for step in marks.epochs:
            if low < step < high:
                axes.axvline(step, color=_GRID, linewidth=1, zorder=0.5, clip_on=False)
    bad = [step for line in lines for step in line.curve.not_finite_steps]
    if bad:
        axes.plot(
            bad,
            [0.04] * len(bad),
            color=_BAD,
            linestyle="none",
            marker="x",
            markersize=6,
            markeredgewidth=1.6,
            transform=across,
            clip_on=False,
        )


def axis_number(value: float) -> str:
    """Returns an axis number in at most about six characters."""
    size = abs(value)
    for unit, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if unit <= size < 1e15:
            return f"{value / (1e3 if suffix == 'k' else unit):.4g}{suffix}"
    if 1e-4 <= size < 1e4 or size == 0:
        return f"{value:.5g}"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


_HEADER = re.compile(r"^.*?<svg[^>]*>", re.DOTALL)
_DROPPED = re.compile(
    r"<metadata>.*?</metadata>|<style.*?</style>|</?g\b[^>]*>|</svg>"
    r'| clip-path="[^"]*"| transform="rotate\(-0 [^"]*"|font-(?:size|family): [^;"]*;\s*'
    r"|<clipPath.*?</clipPath>|<defs>\s*</defs>",
    re.DOTALL,
)
_COORDINATES = re.compile(r' (?:d|x|y)="[^"]*"')
_FRACTION = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")


def _body(document: str) -> Markup:
    """Returns what is inside matplotlib's `<svg>`, without what an inline figure has no use for.

    Coordinates are rounded to a tenth of a unit: finer is not seen, and takes twice the bytes.
    """
    body = _DROPPED.sub("", _HEADER.sub("", document))
    body = re.sub(r"<defs>\s*</defs>", "", body.replace("xlink:href", "href"))
    body = _COORDINATES.sub(
        lambda match: _FRACTION.sub(lambda n: f"{float(n[0]):.1f}".removesuffix(".0"), match[0]),
        body,
    )
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, variable)
    body = re.sub(r"\s*\n\s*", " ", body).replace("> <", "><").strip()
    # Everything in it was drawn here from numbers: no text of the training program is inside.
    return Markup(body + "</svg>")
