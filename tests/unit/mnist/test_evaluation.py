"""Scores from logits, and the file that reports are made from."""

import base64
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from kfp_jax_runtime.data.examples import Examples
from kfp_jax_runtime.data.png import png
from kfp_jax_runtime.data.store import Source
from kfp_jax_runtime.evaluation import evaluate, predict_all, write_evaluation
from PIL import Image

IMAGES = np.random.default_rng(0).integers(0, 256, (40, 28, 28)).astype(np.uint8)
LABELS = (np.arange(40) % 3).astype(np.uint8)
EXAMPLES = Examples(IMAGES, LABELS)
SOURCE = Source("bundled subset", "mnist", "bundled", 60, 40)


def logits_of(predictions: np.ndarray, certainty: np.ndarray) -> np.ndarray:
    logits = np.zeros((len(predictions), 3), np.float32)
    logits[np.arange(len(predictions)), predictions] = certainty
    return logits


def test_scores_are_counted_by_label_and_prediction() -> None:
    predictions = LABELS.astype(int)
    predictions[[0, 3]] = 2
    scores = evaluate(logits_of(predictions, np.full(40, 5.0)), EXAMPLES)
    assert scores.accuracy == 38 / 40
    assert scores.confusion == ((12, 0, 2), (0, 13, 0), (0, 0, 13))
    right, wrong = -math.log(math.exp(5) / (math.exp(5) + 2)), math.log(math.exp(5) + 2)
    assert scores.loss == pytest.approx((38 * right + 2 * wrong) / 40, rel=1e-5)


def test_the_most_confident_mistakes_come_first() -> None:
    predictions = (LABELS + 1) % 3
    scores = evaluate(logits_of(predictions, np.linspace(1, 4, 40)), EXAMPLES)
    assert [mistake.index for mistake in scores.worst] == list(range(39, 15, -1))
    first = scores.worst[0]
    assert (first.label, first.prediction) == (LABELS[39], predictions[39])
    assert first.confidence == pytest.approx(math.exp(4) / (math.exp(4) + 2), abs=1e-4)
    encoded = base64.b64decode(first.image.removeprefix("data:image/png;base64,"))
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(encoded))), IMAGES[39])


def test_the_file_is_strict_json_of_the_agreed_form(tmp_path: Path) -> None:
    scores = evaluate(logits_of(LABELS.astype(int), np.full(40, 5.0)), EXAMPLES)
    write_evaluation(tmp_path, scores, split="test", classes="abc", source=SOURCE)
    document = json.loads((tmp_path / "evaluation.json").read_text())
    assert list(document) == [
        "schema",
        "dataset",
        "split",
        "examples",
        "accuracy",
        "loss",
        "confusion",
        "worst",
        "classes",
        "source",
    ]
    assert document["schema"] == 1
    assert document["source"] == {
        "name": "bundled subset",
        "train_examples": 60,
        "test_examples": 40,
    }
    assert [path.name for path in tmp_path.iterdir()] == ["evaluation.json"]


@pytest.mark.parametrize("examples", [1, 7, 500, 501, 1234])
def test_one_process_predicts_every_image_once(examples: int) -> None:
    images = np.zeros((examples, 28, 28), np.uint8)
    images[:, 0, 0] = np.arange(examples) % 256
    batches = []

    def predict(batch: np.ndarray) -> np.ndarray:
        batches.append(len(batch))
        return batch[:, 0, 0].astype(np.float32)

    logits = predict_all(predict, images, process_index=0, process_count=1)
    np.testing.assert_array_equal(logits[:, 0], images[:, 0, 0])
    # One size, so that one program is compiled.
    assert len(set(batches)) == 1


def test_a_png_is_read_by_others() -> None:
    opened = Image.open(io.BytesIO(png(IMAGES[0])))
    assert (opened.format, opened.mode, opened.size) == ("PNG", "L", (28, 28))
    np.testing.assert_array_equal(np.asarray(opened), IMAGES[0])
