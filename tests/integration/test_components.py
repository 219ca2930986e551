"""The components' bodies, called as KFP's executor does, with real artifacts and processes."""

import json
from pathlib import Path

import pytest
from kfp import dsl
from kfp_jax.components import train

pytestmark = pytest.mark.integration


class Task:
    """A task's folder and output artifacts, as kfp.local lays them out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = dsl.Model(name="model", uri=str(folder / "model"))
        self.metrics = dsl.Metrics(name="metrics", uri=str(folder / "metrics"))
        self.report = dsl.HTML(name="report", uri=str(folder / "report"))

    def train(self, program: str, **inputs: object) -> float:
        return float(
            train.python_func(
                model=self.model,
                metrics=self.metrics,
                report=self.report,
                program=program,
                task_config=dsl.TaskConfig(),
                **inputs,
            )
        )


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "programs"))
    return Task(tmp_path / "train")


def test_metrics_that_kfp_cannot_hold_are_left_out_and_named(
    task: Task, capsys: pytest.CaptureFixture[str]
) -> None:
    assert task.train("returns:not_finite") == 0.9
    assert task.metrics.metadata == {"accuracy": 0.9, "good": 2.0}
    log = capsys.readouterr().out
    assert "Metric bad is nan" in log
    assert "Metric worse is inf" in log


@pytest.mark.parametrize(
    ("program", "parts"),
    [("returns:nothing", ("'accuracy'", "none at all")), ("returns:other_name", ("val_accuracy",))],
)
def test_a_step_without_its_objective_is_red(
    task: Task, capsys: pytest.CaptureFixture[str], program: str, parts: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as ended:
        task.train(program)
    assert ended.value.code == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert all(part in last for part in parts)
    assert "missing-objective" in (task.folder / "result.json").read_text()
    assert Path(task.report.path).read_text().startswith("<!DOCTYPE html>")


def test_a_model_of_many_files_is_the_artifact_in_place(task: Task) -> None:
    assert task.train("returns:model") == 0.25
    files = [path for path in Path(task.model.path).rglob("*") if path.is_file()]
    assert len(files) == 300
    assert task.model.metadata["accuracy"] == 0.25


def test_whole_numbers_arrive_as_whole_numbers(
    task: Task, capsys: pytest.CaptureFixture[str]
) -> None:
    task.train("returns:echo", parameters={"batch": 32.0, "sizes": [1.0, 2.5], "lr": 1e-3})
    text = capsys.readouterr().out
    assert "{'batch': 32, 'sizes': [1, 2.5], 'lr': 0.001}" in text


def test_bad_input_ends_the_step_before_anything_is_created(
    task: Task, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        task.train("returns:echo", num_nodes=0)
    assert ended.value.code == 2
    assert "num_nodes is 0" in capsys.readouterr().err
    assert not task.folder.exists()


def test_front_ends_can_follow_a_step(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    events = task.folder.parent / "events.jsonl"
    monkeypatch.setenv("KFP_JAX_EVENTS", str(events))
    task.train("returns:echo")
    kinds = [json.loads(line) for line in events.read_text().splitlines()]
    assert {event["task"] for event in kinds} == {"train"}
    assert kinds[-1] == {
        "task": "train", "event": "status", "job": kinds[-1]["job"],
        "phase": "SUCCEEDED", "reason": "", "message": "", "restarts": 0,
    }  # fmt: skip
