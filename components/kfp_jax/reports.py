"""The report line: how a training process talks to the launcher.

One line on stdout: the tag, then one JSON object. Other text may stand before the tag (a progress
bar without its newline) or after the object; it is ignored. A tagged line that cannot be read is a
`Malformed`, named by its line number, and no exception: a job does not die of its own report.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

TAG = "@kfp-jax "
VERSION = 1
MAX_LINE_BYTES = 256 * 1024
MAX_NAME = 128

_decoder = json.JSONDecoder()
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Kind(StrEnum):
    """What a report tells."""

    METRICS = "metrics"  # named numbers at a step
    PROGRESS = "progress"  # done of total
    WAITING = "waiting"  # this process is ready and looks for the others
    JOINED = "joined"  # it has found them
    RESTORED = "restored"  # training goes on from the checkpoint of this step
    RESULT = "result"  # the final metrics
    ERROR = "error"  # this process is about to fail


@dataclass(frozen=True)
class Report:
    """One report.

    Attributes:
        kind: What it tells.
        time: Seconds since the epoch, by the clock of the process.
        step: Optimiser step, or None where none applies.
        values: Named numbers; may hold NaN and infinities.
        fields: All other keys of the object, as they came.
    """

    kind: Kind
    time: float
    step: int | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Malformed:
    """A tagged line that is no report: its number in the stream and what is wrong with it."""

    line: int
    problem: str


def parse_line(text: str, number: int = 0) -> Report | Malformed | None:
    """Returns the report in one line of a process' output, or None for a foreign line.

    Args:
        text: The line without its newline.
        number: Its number in the stream, for messages.
    """
    at = text.find(TAG)
    if at < 0:
        return None
    if len(text) > MAX_LINE_BYTES + at:
        return Malformed(number, f"longer than {MAX_LINE_BYTES} bytes")
    try:
        # raw_decode: another writer may have put something behind the object.
        data, _ = _decoder.raw_decode(text, at + len(TAG))
    except ValueError as error:
        return Malformed(number, f"not JSON: {error}")
    except RecursionError:
        return Malformed(number, "nested too deeply")
    try:
        return _report(data)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        return Malformed(number, str(error) or type(error).__name__)


def _report(data: Any) -> Report:
    if not isinstance(data, dict):
        raise TypeError("not a JSON object")
    if data.get("v") != VERSION:
        raise ValueError(f"version {data.get('v')!r}, but this launcher reads {VERSION}")
    kind = Kind(data["kind"])
    values = data.get("values", {})
    if not isinstance(values, dict):
        raise TypeError("values is not an object")
    known = {"v", "kind", "time", "step", "values"}
    return Report(
        kind=kind,
        time=_number("time", data["time"]),
        step=_step(data.get("step"), needed=kind in (Kind.METRICS, Kind.RESTORED)),
        values={_name(name): _number(name, value) for name, value in values.items()},
        fields={key: value for key, value in data.items() if key not in known},
    )


def _step(value: Any, *, needed: bool) -> int | None:
    if value is None and not needed:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"step is {value!r}, not a whole number >= 0")
    return value


def _name(name: str) -> str:
    if not 0 < len(name) <= MAX_NAME:
        raise ValueError(f"metric name of {len(name)} characters; 1 to {MAX_NAME} are allowed")
    return name


def _number(name: str, value: Any) -> float:
    if isinstance(value, str) and value in _NON_FINITE:
        return _NON_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r:.60}, not a number")
    return float(value)


def json_number(value: float) -> float | str:
    """Returns a number as strict JSON can hold it: NaN and the infinities as strings."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
