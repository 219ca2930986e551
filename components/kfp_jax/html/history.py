"""What a report shows of a job's history, gathered in one pass and in bounded memory.

A history may have millions of lines. Each metric becomes a curve of a few hundred buckets that
keep their lowest and highest value: a spike of one step is still seen when it is one in a million.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kfp_jax.html.text import as_float

EXACT_POINTS = 400
"""Up to this many values a curve shows each of them."""
BUCKETS = 200
"""Beyond that, it has at most this many buckets."""
_MAX_NAMES = 64
_MAX_MARKS = 64
# Beyond these the drawing library's own arithmetic overflows.
_LARGEST_VALUE = 1e100
_LARGEST_STEP = 1e15


@dataclass(frozen=True, slots=True)
class Point:
    """One reported value."""

    step: float
    value: float


@dataclass(slots=True)
class Bucket:
    """Neighbouring values of one metric, in the order of the reports."""

    first_step: float
    last_step: float
    total: float
    count: int
    low: float
    high: float
    after_gap: bool
    """Whether the line is broken before it (by a value that is not finite, or a step back)."""

    @property
    def step(self) -> float:
        """The middle of the steps."""
        return (self.first_step + self.last_step) / 2

    @property
    def mean(self) -> float:
        """The mean of the values."""
        return self.total / self.count


@dataclass(frozen=True)
class Curve:
    """One metric over the steps; `first` to `high` are None when no value was finite."""

    name: str
    buckets: tuple[Bucket, ...]
    first: Point | None
    last: Point | None
    low: Point | None
    high: Point | None
    count: int
    """How many values were reported."""
    not_finite: int
    """How many of them were NaN or infinite."""
    not_finite_steps: tuple[float, ...]
    """Where these were: the first, and a sample of the rest."""


@dataclass(frozen=True)
class History:
    """All that a report needs from a job's reports."""

    curves: tuple[Curve, ...] = ()
    more_names: bool = False
    """Whether there were more metric names than are followed."""
    epochs: tuple[float, ...] = ()
    """Steps at which a new epoch was first reported."""
    began: float | None = None
    """Unix seconds of the first report."""
    ended: float | None = None
    """Unix seconds of the last report."""


class _Marks:
    """At most `_MAX_MARKS` of a series of steps, evenly thinned; the first is always kept."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        self._seen = 0
        self._stride = 1

    def add(self, step: float) -> None:
        if self._seen % self._stride == 0:
            self.steps.append(step)
            if len(self.steps) > _MAX_MARKS:
                del self.steps[1::2]
                self._stride *= 2
        self._seen += 1


class _CurveBuilder:
    """Grows one curve; too many buckets are merged in pairs, and then each holds twice as much."""

    # A history may have many millions of values: plain attributes, no object for each value.
    __slots__ = (
        "_bad",
        "_bad_steps",
        "_buckets",
        "_count",
        "_first",
        "_gap",
        "_high",
        "_high_step",
        "_last_step",
        "_last_value",
        "_low",
        "_low_step",
        "_size",
        "name",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self._buckets: list[Bucket] = []
        self._size = 1
        self._gap = False
        self._first: Point | None = None
        self._last_step = -math.inf
        self._last_value = math.nan
        self._low, self._low_step = math.inf, 0.0
        self._high, self._high_step = -math.inf, 0.0
        self._count = 0
        self._bad = 0
        self._bad_steps = _Marks()

    def add(self, step: float, value: float) -> None:
        self._count += 1
        if not -_LARGEST_VALUE <= value <= _LARGEST_VALUE:
            if not math.isfinite(value):
                self._bad += 1
                self._bad_steps.add(step)
                self._gap = True
                return
            value = math.copysign(_LARGEST_VALUE, value)
        if step < self._last_step:  # the program counts its steps anew
            self._gap = True
        self._last_step, self._last_value = step, value
        if value < self._low:
            self._low, self._low_step = value, step
        if value > self._high:
            self._high, self._high_step = value, step
        bucket = self._buckets[-1] if self._buckets else None
        if bucket is None or bucket.count >= self._size:
            self._begin_bucket(step, value)
            return
        if self._gap:  # shown at the front of the bucket, as after a merge
            bucket.after_gap, self._gap = True, False
        bucket.last_step = step
        bucket.total += value
        bucket.count += 1
        if value < bucket.low:
            bucket.low = value
        elif value > bucket.high:
            bucket.high = value

    def _begin_bucket(self, step: float, value: float) -> None:
        if self._first is None:
            self._first = Point(step, value)
        self._buckets.append(Bucket(step, step, value, 1, value, value, self._gap))
        self._gap = False
        while len(self._buckets) > (EXACT_POINTS if self._size == 1 else BUCKETS):
            pairs = zip(self._buckets[::2], self._buckets[1::2], strict=False)
            odd = self._buckets[-1:] if len(self._buckets) % 2 else []
            self._buckets = [_merged(a, b) for a, b in pairs] + odd
            self._size *= 2

    def curve(self) -> Curve:
        some = self._first is not None
        return Curve(
            name=self.name,
            buckets=tuple(self._buckets),
            first=self._first,
            last=Point(self._last_step, self._last_value) if some else None,
            low=Point(self._low_step, self._low) if some else None,
            high=Point(self._high_step, self._high) if some else None,
            count=self._count,
            not_finite=self._bad,
            not_finite_steps=tuple(self._bad_steps.steps),
        )


def _merged(a: Bucket, b: Bucket) -> Bucket:
    # A gap between the two moves to their front: it stays visible, and buckets stay full.
    return Bucket(
        first_step=a.first_step,
        last_step=b.last_step,
        total=a.total + b.total,
        count=a.count + b.count,
        low=min(a.low, b.low),
        high=max(a.high, b.high),
        after_gap=a.after_gap or b.after_gap,
    )


class _Reader:
    """Takes reports one by one."""

    def __init__(self) -> None:
        self._curves: dict[str, _CurveBuilder] = {}
        self._more_names = False
        self._epochs = _Marks()
        self._epoch = -math.inf
        self._began: float | None = None
        self._ended: float | None = None

    def read(self, report: Mapping[str, Any]) -> None:
        if report["kind"] != "metrics":
            return
        time = report["time"]
        if math.isfinite(time):
            self._began = time if self._began is None else self._began
            self._ended = time
        step = as_float(report["step"])
        if step is None or abs(step) > _LARGEST_STEP:
            return
        for name, reported in report["values"].items():
            value = reported if type(reported) is float else as_float(reported)
            if value is None:
                continue
            if name == "epoch":
                if math.isfinite(value) and math.floor(value) > self._epoch:
                    self._epoch = math.floor(value)
                    self._epochs.add(step)
                continue
            builder = self._curves.get(name)
            if builder is None:
                if len(self._curves) >= _MAX_NAMES:
                    self._more_names = True
                    continue
                builder = self._curves[name] = _CurveBuilder(name)
            builder.add(step, value)

    def history(self) -> History:
        return History(
            curves=tuple(builder.curve() for builder in self._curves.values()),
            more_names=self._more_names,
            epochs=tuple(self._epochs.steps),
            began=self._began,
            ended=self._ended,
        )


def read_history(reports: Iterable[Mapping[str, Any]]) -> History:
    """Returns what a report shows of `reports`, which are read once; unknown ones are skipped."""
    reader = _Reader()
    for report in reports:
        reader.read(report)
    return reader.history()
