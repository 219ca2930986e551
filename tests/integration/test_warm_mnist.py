"""MNIST in warm workers: shares compiled code between trials and trains to the same bits."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.idx_files import IMAGES, LABELS, idx_bytes
from fakes.nodes import start_nodes
from jax import export
from kfp_jax.backends.warm import WarmBackend
from kfp_jax.launch import launch
from kfp_jax.spec import TrainSpec
from kfp_jax.status import Outcome, Phase
from kfp_jax_runtime.data.catalogue import MNIST
from kfp_jax_runtime.data.examples import read_folder
from kfp_jax_runtime.data.prepare import prepare
from kfp_jax_runtime.data.sources import BUNDLED_DIR, Request, World
from kfp_jax_runtime.export import load_model

pytestmark = pytest.mark.integration

SMALL = {"epochs": 1, "global_batch_size": 32, "channels": [24], "hidden": 32}
TRIALS: list[dict[str, Any]] = [
    {"learning_rate": 1e-3, "seed": 1},
    {"learning_rate": 3e-2, "dropout": 0.5, "seed": 2, "max_rotation_degrees": 9.0, "epochs": 2},
    {"learning_rate": 1e-2, "label_smoothing": 0.1, "warmup_fraction": 0.0, "weight_decay": 0.1},
]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    unchecked = replace(MNIST, md5={})
    for split, examples in read_folder(BUNDLED_DIR, unchecked).items():
        few = slice(640)
        (folder / IMAGES[split]).write_bytes(idx_bytes(examples.images[few]))
        (folder / LABELS[split]).write_bytes(idx_bytes(examples.labels[few]))
    world = World({}, lambda line: None, lambda dataset: "")
    prepare(Request(unchecked, folder=folder), folder / "dataset", world)
    return folder / "dataset"


@pytest.fixture(scope="module")
def backend() -> Iterator[WarmBackend]:
    """One worker on one core: bit equality is promised for equal cores."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    environ = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_LOG_COMPILES": "1"}
    with WarmBackend(1, environ=environ) as backend:
        yield backend
    os.sched_setaffinity(0, cores)


@pytest.fixture(scope="module")
def outcomes(
    backend: WarmBackend, dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[Outcome]:
    """The trials one after another in one worker."""
    folder = tmp_path_factory.mktemp("trials")
    found = []
    for number, trial in enumerate(TRIALS):
        spec = TrainSpec(
            name="trial",
            program="kfp_jax_runtime.mnist",
            parameters={**SMALL, **trial},
            dataset_uri=str(dataset),
            output_uri=str(folder / str(number)),
        )
        found.append(launch(spec, backend))
        assert found[-1].phase is Phase.SUCCEEDED, found[-1].message
    return found


def test_only_the_first_trial_compiles(outcomes: list[Outcome]) -> None:
    compiled = []
    for outcome in outcomes:
        (log,) = Path(outcome.output_uri, "logs").rglob("*.log")
        lines = log.read_text().splitlines()
        compiled.append([line for line in lines if "Compiling" in line or "tracing" in line])
    assert len(compiled[0]) > 3
    assert compiled[1:] == [[], []]


@pytest.mark.parametrize("number", range(len(TRIALS)))
def test_a_trial_gives_the_bits_of_a_process_of_its_own(
    outcomes: list[Outcome], dataset: Path, tmp_path: Path, number: int
) -> None:
    warm = outcomes[number]
    alone = start_nodes(
        "kfp_jax_runtime.mnist", tmp_path, {**SMALL, **TRIALS[number]}, dataset=dataset
    ).wait()
    folder = Path(warm.output_uri)
    result = without_time(alone.result())
    assert {name: warm.metrics[name] for name in result} == result
    assert json.loads((folder / "evaluation.json").read_text()) == json.loads(
        (tmp_path / "evaluation.json").read_text()
    )
    history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    losses = {r["step"]: r["values"]["loss"] for r in history if "loss" in r["values"]}
    assert losses == alone.metric("loss")
    assert described(folder) == described(tmp_path)
    assert exported(folder) == exported(tmp_path)
    assert logits(folder) == logits(tmp_path)


def without_time(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metrics.items() if name != "train_seconds"}


def described(folder: Path) -> object:
    return json.loads((folder / "model" / "model.json").read_text())


def exported(folder: Path) -> str:
    """Returns the exported function, without the lines of source that its bytes also name."""
    code = (folder / "model" / "predict.jax").read_bytes()
    text = export.deserialize(bytearray(code)).mlir_module()
    return re.sub(r"^#loc.*\n| loc\(.*\)", "", text, flags=re.MULTILINE)


def logits(folder: Path) -> bytes:
    inputs = np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28, 1)
    return np.asarray(load_model(folder / "model")(inputs)).tobytes()
