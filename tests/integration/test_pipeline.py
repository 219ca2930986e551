"""The MNIST pipeline as its user runs it: the command line, kfp.local, real JAX processes."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

CLI = (sys.executable, "-c", "from kfp_jax.cli import main; main()")
SMALL = ("-p", "epochs=1", "-p", "channels=[8]", "-p", "hidden=16", "-a", "source=bundled")


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [*CLI, "pipeline", "mnist", "--output", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a pipeline that ran with two processes and passed its gate."""
    folder = tmp_path_factory.mktemp("pipeline")
    ended = run(folder, "--nodes", "2", *SMALL, "-a", "min_accuracy=0.5", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == json.loads((folder / "result.json").read_text())
    for task in ("prepare-data", "train", "evaluate"):
        assert f"{task}: {task}-" in ended.stderr
    assert re.search(r"^train: step \d+: .*accuracy=", ended.stderr, re.MULTILINE)
    assert "\n  promoted " not in ended.stdout  # only JSON
    return folder


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_the_result_is_that_of_two_processes(done: Path) -> None:
    result = read(done / "result.json")
    assert (result["phase"], result["num_processes"], result["backend"]) == (
        "SUCCEEDED",
        2,
        "local",
    )
    assert result["metrics"]["accuracy"] > 0.5
    assert result["parameters"].items() >= {"channels": [8], "epochs": 1, "hidden": 16}.items()
    assert "learning_rate" in result["parameters"]


def test_evaluate_scores_the_exported_model_as_training_did(done: Path) -> None:
    outputs, result = read(done / "outputs.json"), read(done / "result.json")
    assert outputs["accuracy"] == pytest.approx(result["metrics"]["accuracy"], abs=1e-3)
    assert (Path(outputs["model"]) / "model.json").is_file()


def test_history_and_report_are_there(done: Path) -> None:
    steps = [json.loads(line)["step"] for line in (done / "history.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)
    page = (done / "report.html").read_text()
    assert "<svg" in page
    assert len(page.encode()) <= 300_000
    assert Path(read(done / "outputs.json")["report"]).read_text() == page


def task_output(done: Path, task: str) -> Any:
    (path,) = done.glob(f"tasks/*/{task}/executor_output.json")
    return read(path)


def test_the_tasks_hand_kfp_what_its_pages_show(done: Path) -> None:
    trained, scored = task_output(done, "train"), task_output(done, "evaluate")
    metrics = trained["artifacts"]["metrics"]["artifacts"][0]["metadata"]
    assert metrics["accuracy"] == trained["parameterValues"]["Output"]
    classes = scored["artifacts"]["classes"]["artifacts"][0]["metadata"]["confusionMatrix"]
    assert len(classes["rows"]) == 10
    assert (
        task_output(done, "promote")["artifacts"]["promoted"]["artifacts"][0]["uri"]
        == (read(done / "outputs.json")["model"])
    )


def test_the_gate_keeps_a_poor_model_back(done: Path, tmp_path: Path) -> None:
    (prepared,) = done.glob("tasks/*/prepare-data/dataset")
    # Of an earlier pipeline in this folder, which did promote its model.
    (tmp_path / "tasks" / "mnist-earlier" / "promote").mkdir(parents=True)
    small = [part for part in SMALL if part not in ("-a", "source=bundled")]
    ended = run(
        tmp_path, *small, "--nodes", "1", "-a", "min_accuracy=1",
        "-a", "source=prepared", "-a", f"folder={prepared}",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "no, it scored less" in ended.stdout
    assert [path.parent.name for path in tmp_path.glob("tasks/*/promote")] == ["mnist-earlier"]


def test_a_pipeline_that_fails_leaves_the_report_of_its_training_and_no_old_result(
    tmp_path: Path,
) -> None:
    (tmp_path / "outputs.json").write_text("{}")
    ended = run(tmp_path, *SMALL, "-p", "learning_rate=1e30", "--json")
    assert ended.returncode == 1, ended.stderr
    result = read(tmp_path / "result.json")
    assert json.loads(ended.stdout) == result
    assert (result["reason"], ended.stderr.splitlines()[-1]) == ("diverged", result["message"])
    # At the very step, though reports come every fifty.
    assert int(re.search(r"at step (\d+)", result["message"])[1]) < 10
    assert "diverged" in (tmp_path / "report.html").read_text()
    assert not (tmp_path / "outputs.json").exists()


def test_what_the_training_would_refuse_is_refused_before_data_are_prepared(tmp_path: Path) -> None:
    assert run(tmp_path / "out", "-p", "epoch=1").returncode == 2
    assert not (tmp_path / "out").exists()


def test_an_unknown_pipeline_is_refused_before_its_folder_is_made(tmp_path: Path) -> None:
    command = [*CLI, "pipeline", "minst", "--output", str(tmp_path / "out")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "'minst' is not one of ours; give one of mnist, mnist-halving" in ended.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("-a", "min_acuracy=0.9"), ("min_acuracy", "min_accuracy")),
        (("-p", "epoch=1", "-a", "source=bundled"), ("epoch", "epochs")),
        (("-p", "epochs=0", "-a", "source=bundled"), ("epochs", "at least 1")),
        (("-a", "source=bundled", "-a", "source=npm"), ("source", "given twice")),
        (("--nodes", "0"), ("num_nodes is 0",)),
        (("-a", "max_restarts=-1"), ("max_restarts", "-1")),
        (("-a", "min_accuracy=abc"), ("min_accuracy", "abc", "give a number")),
        (("-a", "num_nodes=1"), ("num_nodes", "--nodes")),
        (("-a", 'parameters={"epochs": 9}'), ("parameters", "-p")),
        (("-p", f"x={'a' * 100_000}"), ("100,009", "65,536")),
        (("-a", "source=moon"), ("moon", "bundled")),
        (("-a", "source=folder", "-a", "folder=/no/such"), ("/no/such",)),
    ],
)
def test_bad_input_ends_with_one_sentence(
    tmp_path: Path, arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    ended = run(tmp_path, *arguments)
    last = ended.stderr.splitlines()[-1]
    assert ended.returncode == 2, ended.stderr
    assert all(part in last for part in parts), ended.stderr
    assert "Traceback" not in ended.stderr


def running(folder: Path) -> list[int]:
    """Returns all processes that have the folder in their command line or environment."""
    mark = str(folder).encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            found += [int(entry.name)] if mark in text else []
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_pipeline_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    command = [*CLI, "pipeline", "mnist", "--output", str(tmp_path), "--nodes", "2"]
    command += ["-a", "source=bundled", "-p", "epochs=500"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as cli:
        end = time.monotonic() + 60
        while not list(tmp_path.glob("tasks/*/train/history.jsonl")):
            assert time.monotonic() < end
            time.sleep(0.1)
        cli.send_signal(number)
        _, err = cli.communicate(timeout=60)
    assert cli.returncode == (130 if number == signal.SIGINT else -number)
    if number == signal.SIGINT:
        assert b"cancelled" in err.splitlines()[-1]
    end = time.monotonic() + 5
    while running(tmp_path):
        assert time.monotonic() < end, running(tmp_path)
        time.sleep(0.05)
