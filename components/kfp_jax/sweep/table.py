"""The trials of a sweep as text: JSON lines for programs, CSV for spreadsheets."""

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from kfp_jax.checks import json_object
from kfp_jax.errors import SpecError
from kfp_jax.sweep.trial import Trial, TrialState

_BEFORE = ("number", "state", "score")
_AFTER = ("seconds", "started", "reason", "message", "job", "model_uri")

# A spreadsheet takes a cell that begins so for a formula and runs it.
_FORMULA = ("=", "+", "-", "@", "\t", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001


def to_json_lines(trials: Iterable[Trial]) -> str:
    """Returns one JSON object a line, which `read_trials` reads."""
    return "".join(json.dumps(trial.to_json(), allow_nan=False) + "\n" for trial in trials)


def to_csv(trials: Sequence[Trial]) -> str:
    """Returns a table with a header, and a column for every parameter that any trial has.

    Values that are lists or objects are JSON. Text that a spreadsheet would run as a formula gets
    an apostrophe in front.
    """
    names = dict.fromkeys(name for trial in trials for name in trial.parameters)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*_BEFORE, *map(_cell, _headings(names)), *_AFTER])
    for trial in trials:
        cells = [
            *(getattr(trial, name) for name in _BEFORE),
            *(_parameter(trial, name) for name in names),
            *(getattr(trial, name) for name in _AFTER),
        ]
        writer.writerow(map(_cell, cells))
    return buffer.getvalue()


def _headings(names: Iterable[str]) -> Iterable[str]:
    """Yields the names; one that is also another column's is told apart."""
    taken = {*_BEFORE, *_AFTER}
    for name in names:
        heading = name
        while heading in taken:
            heading = f"parameters.{heading}"
        taken.add(heading)
        yield heading


def _parameter(trial: Trial, name: str) -> Any:
    # An empty cell is an entry that is not in use; null is a value, as in the JSON lines.
    value = trial.parameters.get(name, "")
    return "null" if value is None else value


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return json.dumps(value)
    # A lone surrogate cannot be written to any file; a lone carriage return would not be quoted.
    text = value.encode("utf-8", "replace").decode().replace("\r\n", "\n").replace("\r", "\n")
    return f"'{text}" if text.startswith(_FORMULA) else text


def read_trials(text: str) -> list[Trial]:
    """Returns the trials of an earlier sweep's table, as `to_json_lines` wrote them.

    Raises:
        SpecError: A line is no trial, or a trial number is there twice; it names the line.
    """
    trials: dict[int, Trial] = {}
    # Not splitlines: a text in the table may hold what Unicode takes for the end of a line.
    for index, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if not line.strip():
            continue
        try:
            trial = _trial(line)
            if trial.number in trials:
                raise SpecError(f"Trial {trial.number} is in the table twice.")  # noqa: TRY301
        except SpecError as error:
            raise SpecError(f"Line {index:,} of the trials table: {error}") from error
        trials[trial.number] = trial
    return list(trials.values())


def _trial(line: str) -> Trial:
    try:
        data = json.loads(line, parse_constant=_not_finite)
    except (ValueError, RecursionError) as error:
        raise SpecError(
            f"{line.strip()!r:.80} is not JSON; give the table of JSON lines, not the CSV."
        ) from error
    if not isinstance(data, dict):
        raise SpecError(f"{line.strip()!r:.80} is no trial; give one JSON object a line.")
    for name, (valid, form) in _FORMS.items():
        if name not in data:
            if name in ("number", "parameters"):
                raise SpecError(f"There is no {name!r}; a trial has a number and parameters.")
        elif not valid(data[name]):
            raise SpecError(f"{name!r} is {data[name]!r:.80}; it should be {form}.")
    json_object("'parameters'", data["parameters"])  # a number may be too large to be finite
    return Trial.from_json(data)


def _not_finite(word: str) -> NoReturn:
    raise ValueError(word)


def _number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _curve(value: Any) -> bool:
    if not isinstance(value, list) or not all(
        isinstance(point, list) and len(point) == 2 and all(map(_number, point)) for point in value
    ):
        return False
    steps = [step for step, _ in value]
    return all(step == int(step) for step in steps) and steps == sorted(set(steps))


def _text(value: Any) -> bool:
    return isinstance(value, str)


_TEXT = (_text, "text")
_SECONDS = (lambda value: _number(value) and value >= 0, "a number of seconds")
_FORMS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "number": (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
        "a whole number from 0",
    ),
    "parameters": (lambda value: isinstance(value, dict), "an object of names and values"),
    "state": (
        lambda value: isinstance(value, str) and value in set(TrialState),
        f"one of {', '.join(TrialState)}",
    ),
    "score": (lambda value: value is None or _number(value), "a finite number or null"),
    "curve": (_curve, "a list of [step, value], the steps rising and the values finite"),
    "started": _SECONDS,
    "seconds": _SECONDS,
    "reason": _TEXT,
    "message": _TEXT,
    "job": _TEXT,
    "output_uri": _TEXT,
    "model_uri": _TEXT,
}
