"""Where values stand along an axis, and which of them are written beside it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kfp_jax.html.svg import axis_number

# Beyond these, values are drawn at them: differences and quotients would not be finite.
LARGEST = 1e100
_SMALLEST = 1e-100
_NEAR = 0.09
_DECADES = 100.0


@dataclass(frozen=True)
class Tick:
    """A value written beside an axis."""

    value: float
    label: str


@dataclass(frozen=True)
class Axis:
    """An axis of numbers from `low` to `high`; values outside stand at its ends."""

    low: float
    high: float
    logarithmic: bool = False
    ticks: tuple[Tick, ...] = ()

    def share(self, value: float) -> float:
        """Returns where a value stands: 0 at the low end, 1 at the high one."""
        value = min(max(value, self.low), self.high)
        if self.low == self.high:
            return 0.5
        if self.logarithmic:
            low, high = math.log(self.low), math.log(self.high)
            return (math.log(value) - low) / (high - low)
        return (value - self.low) / (self.high - self.low)


def axis(
    values: Iterable[float], *, linear: bool = False, few: bool = False, whole: bool = False
) -> Axis:
    """Returns the axis of some values.

    It is logarithmic where they span more than two decades, unless it is to be `linear`.
    `few` writes the values themselves beside the axis when there are no more than six; `whole`
    writes whole numbers alone.
    """
    known = sorted({min(max(value, -LARGEST), LARGEST) for value in values})
    if not known:
        return Axis(0.0, 1.0)
    low, high = known[0], known[-1]
    logarithmic = not linear and low > _SMALLEST and high / low > _DECADES
    bare = Axis(low, high, logarithmic)
    if few and len(known) <= 6:
        return Axis(low, high, logarithmic, _apart(bare, known, []))
    candidates = _powers(low, high) if logarithmic else _round(low, high, whole=whole)
    return Axis(low, high, logarithmic, _apart(bare, *candidates))


def score_axis(
    values: Sequence[float], *, maximize: bool, usual: float = 0.75
) -> tuple[Axis, float | None]:
    """Returns the axis of scores, and where it was cut.

    Some far worse values would press all others into one line, so the axis ends a little beyond
    the best ones (a share of `usual`) where that leaves out most of its length.
    """
    ordered = sorted((min(max(v, -LARGEST), LARGEST) for v in values), reverse=maximize)
    if len(ordered) < 4:
        return axis(ordered), None
    best, worst = ordered[0], ordered[-1]
    if axis(ordered).logarithmic:
        return axis(ordered), None
    mark = ordered[int((len(ordered) - 1) * usual)]
    limit = mark + (mark - best) / 2
    if mark == best or abs(worst - best) <= 2.5 * abs(limit - best):
        return axis(ordered), None
    inside = [value for value in ordered if (value >= limit if maximize else value <= limit)]
    return axis([*inside, limit]), limit


def _powers(low: float, high: float) -> tuple[list[float], list[str]]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    stride = max(1, math.ceil((last - first + 1) / 6))
    powers = [float(f"1e{exponent}") for exponent in range(first, last + 1, stride)]
    return powers, []


def _round(low: float, high: float, *, whole: bool) -> tuple[list[float], list[str]]:
    span = high - low
    if span <= 1e-12 * max(abs(low), abs(high)):
        return [low], []
    exponent = math.floor(math.log10(span / 4))
    step = next(
        size
        for size in (float(f"{digit}e{exponent}") for digit in (1, 2, 5, 10))
        if span / size <= 5
    )
    if whole:
        step = max(1.0, step)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    values = [float(f"{count * step:.12g}") for count in range(first, last + 1)]
    decimals = -exponent if step < 10 ** (exponent + 1) else -exponent - 1
    if 0 < decimals <= 6 and max(abs(low), abs(high)) < 1e4:
        return values, [f"{value:.{decimals}f}" for value in values]
    return values, []


def _apart(where: Axis, values: Sequence[float], labels: Sequence[str]) -> tuple[Tick, ...]:
    """Returns the ticks, without those that would stand upon another or say the same."""
    ticks: list[Tick] = []
    for value, label in zip(values, labels or [axis_number(v) for v in values], strict=True):
        if not ticks or (
            where.share(value) - where.share(ticks[-1].value) >= _NEAR and label != ticks[-1].label
        ):
            ticks.append(Tick(value, label))
    return tuple(ticks)
