"""What a page shows of an evaluation: per-class results, confusion matrix, worst mistakes.

The file comes from a user's program, so each part stands alone: what is missing or malformed is
left out and said in a note, and the rest is shown.
"""

import heapq
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kfp_jax.html.text import as_count, as_float, as_share, clip, percent

MOST_CLASS_ROWS = 200
SORTED_FROM = 30
"""Beyond this many classes, the table is sorted with the worst first."""
MOST_MATRIX_CLASSES = 20
MOST_PAIRS = 8
MOST_PICTURES = 24
_PICTURES_BYTES = 40_000
_LARGEST_PICTURE = 12_000
_SHADES = 8
_PICTURE = re.compile(r"data:image/(?:png|jpeg|webp);base64,[A-Za-z0-9+/]+={0,2}")
_BAR_FLOORS = (0.95, 0.9, 0.8, 0.5)


@dataclass(frozen=True)
class ClassResult:
    """One class; a figure is None where it would be a division by zero."""

    name: str
    precision: float | None
    recall: float | None
    f1: float | None
    support: int


@dataclass(frozen=True)
class Cell:
    """One count of the confusion matrix."""

    count: int
    shade: int
    """0 (no mistake) to 8 (the most frequent mistake)."""
    diagonal: bool
    title: str


@dataclass(frozen=True)
class Matrix:
    """The confusion matrix, or the part of it with the most mistakes."""

    names: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    classes: int
    """How many classes there are in all."""


@dataclass(frozen=True)
class Pair:
    """One kind of mistake."""

    label: str
    prediction: str
    count: int
    share: float
    """Of all examples with this label."""


@dataclass(frozen=True)
class Mistake:
    """One example, `image` as a data URI or empty."""

    label: str
    prediction: str
    confidence: str
    image: str
    description: str


@dataclass(frozen=True)
class Evaluation:
    """The shown parts; empty or None where there is nothing to show."""

    dataset: str
    examples: int | None
    accuracy: float | None
    loss: float | None
    mistakes: int | None
    classes: tuple[ClassResult, ...] = ()
    class_count: int = 0
    bar_floor: float = 0.0
    matrix: Matrix | None = None
    pairs: tuple[Pair, ...] = ()
    worst: tuple[Mistake, ...] = ()
    source: tuple[tuple[str, object], ...] = ()
    notes: tuple[str, ...] = ()


def read_evaluation(evaluation: Mapping[str, Any]) -> Evaluation:
    """Returns what to show of an `evaluation.json`."""
    names = _names(evaluation.get("classes"))
    counts, notes = _counts(evaluation.get("confusion"))
    if counts and len(names) < len(counts):
        names += [str(i) for i in range(len(names), len(counts))]
    results = _class_results(names, counts) if counts else ()
    source = evaluation.get("source")
    examples = as_count(evaluation.get("examples"))
    accuracy = as_share(evaluation.get("accuracy"))
    if counts:
        mistakes: int | None = sum(map(sum, counts)) - sum(row[i] for i, row in enumerate(counts))
    elif examples is not None and accuracy is not None:
        mistakes = round(examples * (1 - accuracy))
    else:
        mistakes = None
    worst, more_notes = _worst(evaluation.get("worst"), names)
    words = [evaluation.get("dataset"), evaluation.get("split")]
    return Evaluation(
        dataset=" ".join(clip(word, 60) for word in words if word),
        examples=examples,
        accuracy=accuracy,
        loss=as_float(evaluation.get("loss")),
        mistakes=mistakes,
        classes=_shown(results),
        class_count=len(results),
        bar_floor=_bar_floor(results),
        matrix=_matrix(names, counts) if counts else None,
        pairs=_pairs(names, counts),
        worst=worst,
        source=tuple(source.items())[:20] if isinstance(source, Mapping) else (),
        notes=tuple(notes + more_notes),
    )


def _names(classes: object) -> list[str]:
    if not isinstance(classes, Sequence) or isinstance(classes, str):
        return []
    return [clip(name, 40) for name in classes]


def _counts(confusion: object) -> tuple[list[list[int]], list[str]]:
    """Returns a square matrix of counts, or an empty one and why."""
    if confusion is None or confusion == []:
        return [], []
    if not isinstance(confusion, Sequence) or isinstance(confusion, str):
        return [], ["The confusion matrix is not a list of rows, so it is not shown."]
    rows = []
    for i, row in enumerate(confusion):
        width = len(row) if isinstance(row, Sequence) and not isinstance(row, str) else 0
        if width != len(confusion):
            return [], [
                f"The confusion matrix has {len(confusion):,} rows but {width:,} columns "
                f"in row {i:,}, so it is not shown."
            ]
        counts = [as_count(value) for value in row]
        if None in counts:
            return [], [f"Row {i:,} of the confusion matrix holds a value that is not a count."]
        rows.append([count for count in counts if count is not None])
    return rows, []


def _class_results(names: list[str], counts: list[list[int]]) -> tuple[ClassResult, ...]:
    predicted = [sum(column) for column in zip(*counts, strict=True)]
    results = []
    for i, row in enumerate(counts):
        hits, support = row[i], sum(row)
        either = support + predicted[i]
        results.append(
            ClassResult(
                name=names[i],
                precision=hits / predicted[i] if predicted[i] else None,
                recall=hits / support if support else None,
                f1=2 * hits / either if either else None,
                support=support,
            )
        )
    return tuple(results)


def _shown(results: tuple[ClassResult, ...]) -> tuple[ClassResult, ...]:
    if len(results) <= SORTED_FROM:
        return results
    worst_first = sorted(results, key=lambda result: 2.0 if result.f1 is None else result.f1)
    return tuple(worst_first[:MOST_CLASS_ROWS])


def _bar_floor(results: tuple[ClassResult, ...]) -> float:
    """Where bars begin, so that classes of a good model can be told apart."""
    values = [v for r in results for v in (r.precision, r.recall, r.f1) if v is not None]
    lowest = min(values, default=0.0)
    return next((floor for floor in _BAR_FLOORS if lowest > floor), 0.0)


def _matrix(names: list[str], counts: list[list[int]]) -> Matrix:
    chosen = list(range(len(counts)))
    if len(chosen) > MOST_MATRIX_CLASSES:
        errors = [sum(row) - row[i] for i, row in enumerate(counts)]
        for i, column in enumerate(zip(*counts, strict=True)):
            errors[i] += sum(column) - column[i]
        chosen.sort(key=lambda i: -errors[i])
        chosen = sorted(chosen[:MOST_MATRIX_CLASSES])
    most = max((counts[i][j] for i in chosen for j in chosen if i != j), default=0)
    short = [clip(name, 24) for name in names]
    return Matrix(
        names=tuple(short[i] for i in chosen),
        rows=tuple(
            (short[i], tuple(_cell(short, counts, i, j, most) for j in chosen)) for i in chosen
        ),
        classes=len(counts),
    )


def _cell(names: list[str], counts: list[list[int]], i: int, j: int, most: int) -> Cell:
    count = counts[i][j]
    if i == j:
        return Cell(count, 0, diagonal=True, title=f"{count:,} of {sum(counts[i]):,} right")
    if not count:
        return Cell(0, 0, diagonal=False, title="")
    # The root keeps rare mistakes visible beside a frequent one.
    shade = max(1, math.ceil(_SHADES * math.sqrt(count / most)))
    title = f"{count:,} × {names[i]} taken for {names[j]}"  # noqa: RUF001 (a times sign is meant)
    return Cell(count, shade, diagonal=False, title=title)


def _pairs(names: list[str], counts: list[list[int]]) -> tuple[Pair, ...]:
    mistakes = (
        (-count, i, j)
        for i, row in enumerate(counts)
        for j, count in enumerate(row)
        if count and i != j
    )
    return tuple(
        Pair(names[i], names[j], -count, -count / sum(counts[i]))
        for count, i, j in heapq.nsmallest(MOST_PAIRS, mistakes)
    )


def _worst(worst: object, names: list[str]) -> tuple[tuple[Mistake, ...], list[str]]:
    """Returns the mistakes to show and a note when pictures are missing."""
    if not isinstance(worst, Sequence) or isinstance(worst, str):
        return (), []
    room, without = _PICTURES_BYTES, 0
    mistakes = []
    for entry in worst[:MOST_PICTURES]:
        if not isinstance(entry, Mapping):
            continue
        image = entry.get("image")
        if isinstance(image, str) and _fits(image, room):
            room -= len(image)
        else:
            without += image is not None
            image = ""
        mistakes.append(_mistake(entry, image, names))
    notes = []
    if without:
        notes.append(
            f"{without} of the pictures are not shown: they are too large for this page "
            "or are not PNG, JPEG or WebP data."
        )
    return tuple(mistakes), notes


def _fits(image: str, room: int) -> bool:
    return len(image) <= min(room, _LARGEST_PICTURE) and _PICTURE.fullmatch(image) is not None


def _mistake(entry: Mapping[str, Any], image: str, names: list[str]) -> Mistake:
    label = _class_name(entry.get("label"), names)
    prediction = _class_name(entry.get("prediction"), names)
    confidence = as_share(entry.get("confidence"))
    sure = percent(confidence) if confidence is not None else ""
    index = as_count(entry.get("index"))
    which = f"Example {index}" if index is not None else "An example"
    return Mistake(
        label=label,
        prediction=prediction,
        confidence=sure,
        image=image,
        description=f"{which}: {label} taken for {prediction}",
    )


def _class_name(value: object, names: list[str]) -> str:
    index = as_count(value)
    return names[index] if index is not None and index < len(names) else clip(value, 40)
