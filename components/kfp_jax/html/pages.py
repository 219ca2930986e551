"""What all pages share: the templates, and the values that they show."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from kfp_jax.html import evaluation as evaluations
from kfp_jax.html.text import clip, escaped_bytes, number, percent

_MOST_ROWS = 60
_TABLE_BYTES = 8_000
_ROW_BYTES = 60


@dataclass(frozen=True)
class Fact:
    """One figure of the headline."""

    name: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class Phase:
    """How the job stands, and the tone (good, bad, warn, calm) to say it in."""

    word: str
    tone: str
    diagnosis: str
    """One sentence when the job did not succeed, else empty."""
    reason: str


@dataclass(frozen=True)
class Table:
    """Rows of a name and a value."""

    title: str
    rows: tuple[tuple[str, str], ...]
    left_out: int = 0


@cache
def environment() -> Environment:
    """Returns the templates, with what they all use."""
    made = Environment(
        loader=PackageLoader("kfp_jax.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(number=number, percent=percent)
    made.globals.update(
        most_class_rows=evaluations.MOST_CLASS_ROWS, sorted_from=evaluations.SORTED_FROM
    )
    return made


def mapping(value: object) -> Mapping[str, Any]:
    """Returns a mapping as it is, anything else as an empty one."""
    return value if isinstance(value, Mapping) else {}


def as_table(title: str, values: object, form: Any = None) -> Table:
    """Returns a mapping as a table of bounded size."""
    given = mapping(values)
    rows: list[tuple[str, str]] = []
    room = _TABLE_BYTES
    for name, value in given.items():
        row = (clip(name, 100), clip(value if form is None else form(value), 400))
        room -= sum(escaped_bytes(text) for text in row) + _ROW_BYTES
        if room < 0 or len(rows) == _MOST_ROWS:
            break
        rows.append(row)
    return Table(title, tuple(rows), len(given) - len(rows))
