"""Scores of a classifier of images: predictions by all processes, and evaluation.json."""

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from numpy.typing import NDArray

from kfp_jax_runtime.data.examples import Examples
from kfp_jax_runtime.data.png import png
from kfp_jax_runtime.data.store import Source

SCHEMA = 1
EVALUATION_FILE = "evaluation.json"
WORST_SHOWN = 24
_LARGEST_BATCH = 500


@dataclass(frozen=True)
class Mistake:
    """A wrongly classified example."""

    index: int
    label: int
    prediction: int
    confidence: float
    """The probability that the model gave to its wrong answer."""
    image: str
    """As a data: URI."""


@dataclass(frozen=True)
class Evaluation:
    """How well a model does on one split."""

    examples: int
    accuracy: float
    loss: float
    """Mean cross-entropy, in nats."""
    confusion: tuple[tuple[int, ...], ...]
    """Row = label, column = prediction."""
    worst: tuple[Mistake, ...]
    """The most confident mistakes first."""


def predict_all(
    predict: Callable[[NDArray[np.uint8]], Any],
    images: NDArray[np.uint8],
    process_index: int,
    process_count: int,
) -> NDArray[np.float32]:
    """Returns the logits of all images, in every process; each computes its share of them.

    All processes call it together, with the same images.

    Args:
        predict: maps (batch, 28, 28, 1) images to (batch, classes) logits.
        images: (examples, 28, 28).
        process_index: which process this is.
        process_count: how many there are.
    """
    share = math.ceil(len(images) / process_count)
    batch = min(share, _LARGEST_BATCH)
    batches = math.ceil(share / batch)
    # Shares and batches are of equal size, or the gather would not fit and the last batch would
    # be compiled anew: what is beyond the end repeats the last image, and is cut off again.
    first = process_index * batches * batch
    mine = []
    for start in range(first, first + batches * batch, batch):
        rows = np.minimum(np.arange(start, start + batch), len(images) - 1)
        mine.append(np.asarray(predict(images[rows][..., None])))
    logits = np.concatenate(mine)
    if process_count > 1:
        logits = np.asarray(multihost_utils.process_allgather(logits, tiled=True))
    return logits[: len(images)]


def evaluate(logits: NDArray[np.float32], examples: Examples) -> Evaluation:
    """Returns the scores of logits of shape (examples, classes)."""
    labels = examples.labels.astype(np.int64)
    log_probabilities = np.asarray(jax.nn.log_softmax(logits), np.float64)
    predictions = log_probabilities.argmax(axis=1)
    confusion = np.zeros((logits.shape[1], logits.shape[1]), np.int64)
    np.add.at(confusion, (labels, predictions), 1)
    right = predictions == labels
    return Evaluation(
        examples=len(labels),
        accuracy=float(right.mean()),
        loss=float(-log_probabilities[np.arange(len(labels)), labels].mean()),
        confusion=tuple(tuple(row) for row in confusion.tolist()),
        worst=_worst(examples, predictions, np.exp(log_probabilities.max(axis=1))),
    )


def write_evaluation(
    directory: Path,
    evaluation: Evaluation,
    *,
    split: str,
    classes: Sequence[str],
    source: Source,
) -> None:
    """Writes evaluation.json; to be called in one process."""
    document: Mapping[str, object] = {
        "schema": SCHEMA,
        "dataset": source.dataset,
        "split": split,
        **asdict(evaluation),
        "classes": list(classes),
        "source": {
            "name": source.name,
            "train_examples": source.train_examples,
            "test_examples": source.test_examples,
        },
    }
    partial = directory / f".{EVALUATION_FILE}.partial"
    partial.write_text(json.dumps(document) + "\n")
    partial.replace(directory / EVALUATION_FILE)


def _worst(
    examples: Examples, predictions: NDArray[np.int64], confidences: NDArray[np.float64]
) -> tuple[Mistake, ...]:
    wrong = np.flatnonzero(predictions != examples.labels)
    order = wrong[np.argsort(-confidences[wrong], kind="stable")][:WORST_SHOWN]
    return tuple(
        Mistake(
            index=int(index),
            label=int(examples.labels[index]),
            prediction=int(predictions[index]),
            confidence=round(float(confidences[index]), 4),
            image=_data_uri(examples.images[index]),
        )
        for index in order
    )


def _data_uri(image: NDArray[np.uint8]) -> str:
    return "data:image/png;base64," + base64.b64encode(png(image)).decode()
