"""The retraining pipeline through kfp.local: the first promotes, a worse one does not."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

CLI = (sys.executable, "-c", "from kfp_jax.cli import main; main()")
SMALL = ("--nodes", "1", "-p", "channels=[8]", "-p", "hidden=16", "-a", "min_accuracy=0.2")

# The last step alone, in a run of its own.
CONTEST = """
import sys
from kfp import dsl, local
from kfp_jax.components import promote_if_better

@dsl.pipeline
def contest(model: str, data: str, production: str) -> bool:
    candidate = dsl.importer(artifact_uri=model, artifact_class=dsl.Model)
    return promote_if_better(
        model=candidate.output, score=0.9, dataset_uri=data, production=production,
        run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER, backend="local",
    ).outputs["Output"]

folder, *arguments = sys.argv[1:]
local.init(local.SubprocessRunner(use_venv=False), pipeline_root=folder)
print(contest(**dict(zip(("model", "data", "production"), arguments))).output)
"""


def start(folder: Path, production: Path, *arguments: str) -> "subprocess.Popen[str]":
    command = [*CLI, "pipeline", "mnist-retrain", "--output", str(folder), *SMALL]
    command += ["-a", f"production={production}", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(folder: Path, production: Path, *arguments: str) -> dict[str, Any]:
    process = start(folder, production, *arguments)
    out, err = process.communicate(timeout=170)
    assert process.returncode == 0, err
    outputs: dict[str, Any] = json.loads((folder / "outputs.json").read_text())
    assert ("promoted       yes" in out) is outputs["promoted"], out
    return outputs


def current(production: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((production / "current.json").read_text())
    return found


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a good model was put into production."""
    folder = tmp_path_factory.mktemp("retrain")
    outputs = run(folder / "one", folder / "production", "-p", "epochs=2", "-a", "source=bundled")
    assert outputs["promoted"] is True
    return folder


def test_the_first_model_is_promoted_with_its_lineage(first: Path) -> None:
    outputs = json.loads((first / "one" / "outputs.json").read_text())
    now = current(first / "production")
    assert (now["version"], now["replaced"]) == (1, None)
    assert now["score"] == pytest.approx(outputs["accuracy"])
    assert now["run"]
    assert "{{" not in now["run"]
    assert (first / "production" / now["model"] / "model.json").is_file()
    assert json.loads(Path(outputs["lineage"]).read_text())["in_production"] == now


def test_a_worse_one_is_not(first: Path) -> None:
    before = (first / "production" / "current.json").read_bytes()
    outputs = run(
        first / "two", first / "production", "-p", "epochs=1", "-p", "learning_rate=1e-4",
        "-a", "source=bundled",
    )  # fmt: skip
    assert outputs["promoted"] is False
    assert (first / "production" / "current.json").read_bytes() == before
    assert json.loads(Path(outputs["lineage"]).read_text())["promoted"] is False


def test_on_other_examples_the_model_in_production_is_scored_anew(
    first: Path, tmp_path: Path
) -> None:
    now = current(first / "production")
    copy = tmp_path / "production"
    subprocess.run(["cp", "-r", str(first / "production"), str(copy)], check=True)
    # It is said to be perfect, of examples that nobody has any more.
    (copy / "current.json").write_text(json.dumps({**now, "score": 1.0, "data": "gone"}))
    outputs = run(tmp_path / "three", copy, "-p", "epochs=1", "-a", "source=bundled")
    lineage = json.loads(Path(outputs["lineage"]).read_text())
    assert f"does not beat {now['score']:.4g}" in lineage["why"]


def test_of_two_equal_ones_at_once_one_is(first: Path, tmp_path: Path) -> None:
    (data,) = first.glob("one/tasks/*/prepare-data/dataset")
    model = json.loads((first / "one" / "outputs.json").read_text())["model"]
    production = tmp_path / "production"
    both = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                CONTEST,
                str(tmp_path / name),
                model,
                str(data),
                str(production),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in ("one", "two")
    ]
    logs = [process.communicate(timeout=100)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], logs
    assert sorted(log.splitlines()[-1] for log in logs) == ["False", "True"]
    assert current(production)["version"] == 1


def test_without_a_place_for_production_nothing_is_trained(tmp_path: Path) -> None:
    command = [*CLI, "pipeline", "mnist-retrain", "--output", str(tmp_path / "out"), *SMALL]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2, ended.stderr
    assert "needs argument 'production'" in ended.stderr
    assert not list(tmp_path.glob("out/tasks/*"))
