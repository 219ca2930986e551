"""Files, folders and modules that one side names and the other side has."""

import importlib.util
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kfp_jax
import numpy as np
import pytest
from kfp_jax import job_folder
from kfp_jax.backends.local import LocalBackend
from kfp_jax.components import prepare_data, train
from kfp_jax.entry import training as entry
from kfp_jax.errors import SpecError
from kfp_jax.html.evaluation import read_evaluation
from kfp_jax.spec import TrainSpec
from kfp_jax_runtime import evaluation, model_folder, program
from kfp_jax_runtime.data import prepare, store
from kfp_jax_runtime.data.examples import Examples
from kfp_jax_runtime.data.store import Source

SOURCE = Source("bundled subset", "mnist", "bundled", 60, 4)


class Watched(dict[str, Any]):
    """A JSON object that notes the keys it was asked for and lacked."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__(content)
        self.asked: set[str] = set()
        self.lacked: set[str] = set()

    def _note(self, key: str) -> None:
        self.asked.add(key)
        if key not in self:
            self.lacked.add(key)

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._note(key)
        return super().get(key, default)


@pytest.fixture
def written(tmp_path: Path) -> Watched:
    """An evaluation with mistakes, written by the node and found by the launcher."""
    examples = Examples(np.zeros((4, 28, 28), np.uint8), np.array([0, 1, 2, 0], np.uint8))
    logits = np.eye(3, dtype=np.float32)[[0, 1, 1, 2]]
    scores = evaluation.evaluate(logits, examples)
    evaluation.write_evaluation(tmp_path, scores, split="test", classes="abc", source=SOURCE)
    text = (tmp_path / job_folder.EVALUATION).read_text()
    document: Watched = json.loads(text, object_hook=Watched)
    return document


def test_a_written_evaluation_has_all_that_the_report_asks_for(written: Watched) -> None:
    shown = read_evaluation(written)
    assert written.asked >= {"classes", "confusion", "examples", "accuracy", "loss", "worst"}
    assert written.lacked == set()
    for mistake in written["worst"]:
        assert mistake.asked >= {"label", "prediction", "confidence", "image"}
        assert mistake.lacked == set()
    assert shown.notes == ()
    assert (shown.dataset, shown.examples, shown.mistakes) == ("mnist test", 4, 2)
    assert (len(shown.classes), len(shown.pairs), len(shown.worst)) == (3, 2, 2)
    assert all(mistake.image for mistake in shown.worst)
    assert shown.matrix is not None
    assert dict(shown.source)["name"] == "bundled subset"


def test_a_written_evaluation_has_all_that_the_step_asks_for(written: Watched) -> None:
    asked = set(re.findall(r'\bevaluation\["(\w+)"\]', inspect.getsource(entry.evaluate)))
    assert asked
    assert asked <= written.keys()
    entry.dsl.ClassificationMetrics().log_confusion_matrix(written["classes"], written["confusion"])


def test_the_artifacts_of_steps_are_the_folders_that_programs_write() -> None:
    # A step's artifact NAME is the folder NAME in its job's output: see entry.task.task_folder.
    assert prepare.DATASET_DIR in prepare_data.component_spec.outputs
    assert model_folder.NAME in train.component_spec.outputs


def test_the_record_of_a_datasets_source_is_read_by_its_name() -> None:
    assert f'"{store.SOURCE_FILE}"' in inspect.getsource(entry) + inspect.getsource(job_folder)


def modules_named_by_the_launcher() -> Iterator[str]:
    for path in Path(kfp_jax.__path__[0]).rglob("*.py"):
        yield from re.findall(r'"(kfp_jax_runtime(?:\.\w+)+)"', path.read_text())


def test_each_module_of_the_node_that_the_launcher_names_is_there() -> None:
    named = set(modules_named_by_the_launcher())
    assert named >= {
        "kfp_jax_runtime.bootstrap",
        "kfp_jax_runtime.check",
        "kfp_jax_runtime.data.prepare",
        "kfp_jax_runtime.evaluate",
    }
    assert [module for module in named if importlib.util.find_spec(module) is None] == []


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("kfp_jax_runtime.data.prepare", {"dataset": "mnist", "source": "auto", "folder": ""}),
        ("kfp_jax_runtime.evaluate", {"model": "/nowhere", "split": "test"}),
    ],
)
def test_the_programs_of_the_steps_take_what_the_steps_give(
    name: str, parameters: dict[str, object]
) -> None:
    source = inspect.getsource(entry)
    assert f'program="{name}"' in source
    assert all(f'"{parameter}": ' in source for parameter in parameters)
    assert program.load(name, parameters).effective({}).items() >= parameters.items()


def test_the_local_backend_has_the_node_judge_a_program(tmp_path: Path) -> None:
    def spec(name: str) -> TrainSpec:
        return TrainSpec(name="c", program=name, output_uri=str(tmp_path / "out"))

    LocalBackend().validate(spec("kfp_jax_runtime.data.prepare"))
    with pytest.raises(SpecError, match="there is no module 'no_such_module_x'"):
        LocalBackend().validate(spec("no_such_module_x"))
