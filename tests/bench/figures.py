"""What every bench gives: figures beside their goals, and the table made of them."""

import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

TAG = "@kfp-jax "


@dataclass(frozen=True)
class Figure:
    """One measured number.

    Attributes:
        name: What it is of.
        measured: The number; of several samples the median.
        unit: Its unit.
        goal: What it should be, or None for a figure that others are compared with.
        at_least: Whether more is better.
        p95: What 95 of 100 samples stay below, or None.
    """

    name: str
    measured: float
    unit: str
    goal: float | None = None
    at_least: bool = False
    p95: float | None = None

    @classmethod
    def of(
        cls, name: str, samples: Sequence[float], unit: str, goal: float | None = None
    ) -> "Figure":
        """Returns the median and the 95th percentile of samples of which less is better."""
        p95 = statistics.quantiles(samples, n=20, method="inclusive")[-1]
        return cls(name, statistics.median(samples), unit, goal, p95=p95)

    @property
    def ok(self) -> bool | None:
        if self.goal is None:
            return None
        return self.measured >= self.goal if self.at_least else self.measured <= self.goal

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"ok": self.ok}


def table(figures: Iterable[Mapping[str, Any]]) -> str:
    """Returns one row for each figure."""
    lines = [f"{'figure':<58} {'measured':>10} {'p95':>9} {'goal':>12}  {'unit':<8} ok?"]
    for row in figures:
        sign = ">=" if row["at_least"] else "<="
        goal = "" if row["goal"] is None else f"{sign} {_number(row['goal'])}"
        verdict = {None: "", True: "yes", False: "MISSED"}[row["ok"]]
        p95 = "" if row["p95"] is None else _number(row["p95"])
        lines.append(
            f"{row['name']:<58} {_number(row['measured']):>10} {p95:>9} {goal:>12}"
            f"  {row['unit']:<8} {verdict}".rstrip()
        )
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """Returns what the figures were taken on, and how busy it was."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "load_average": list(os.getloadavg()),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"
