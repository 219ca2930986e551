"""The one-step sweep as a pipeline, through the command line and kfp.local."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kfp_jax.sweep.table import read_trials
from kfp_jax.sweep.trial import TrialState

pytestmark = pytest.mark.integration

CLI = (sys.executable, "-c", "from kfp_jax.cli import main; main()", "pipeline", "sweep")
PROGRAMS = Path(__file__).parents[1] / "programs"
SPACE = {
    "batch_size": {"type": "choice", "values": [32, 64]},
    "how": {"type": "choice", "values": ["raises", "well", "better"]},
}


def run(folder: Path, **arguments: Any) -> "subprocess.CompletedProcess[str]":
    given = {"program": "looped:train", "sampler": "grid", "max_trials": 0, **arguments}
    argv = [f"-a{name}={_text(value)}" for name, value in given.items()]
    return subprocess.run(
        [*CLI, "--output", str(folder), "-p", "epochs=2", *argv],
        env={**os.environ, "PYTHONPATH": str(PROGRAMS)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def test_a_sweep_in_one_step_hands_on_the_best(tmp_path: Path) -> None:
    ended = run(tmp_path, space=SPACE)
    assert ended.returncode == 0, ended.stderr
    trials = {trial.number: trial for trial in read_trials((tmp_path / "trials.jsonl").read_text())}
    assert len(trials) == 6
    failed = [trial for trial in trials.values() if trial.state is TrialState.FAILED]
    assert {trial.parameters["how"] for trial in failed} == {"raises"}
    assert (tmp_path / "leaderboard.html").read_text().count("no such luck") >= 1
    outputs = json.loads((tmp_path / "outputs.json").read_text())
    assert outputs["parameters"]["how"] == "better"
    # What the best trial's program was given: whole numbers as such, the shared ones too.
    seen = json.loads((Path(outputs["model"]) / "parameters.json").read_text())
    assert json.dumps(seen["batch_size"]) in ("32", "64")
    assert json.dumps(seen["epochs"]) == "2"
    (metrics,) = tmp_path.glob("tasks/*/sweep/executor_output.json")
    written = json.loads(metrics.read_text())["artifacts"]["metrics"]["artifacts"][0]["metadata"]
    assert written["trials_complete"] == 4
    assert written["trials_failed"] == 2
    assert "Trial" in ended.stderr


def test_a_sweep_of_failures_is_red_and_says_why(tmp_path: Path) -> None:
    space = {"how": {"type": "choice", "values": ["raises"]}, **{"batch_size": SPACE["batch_size"]}}
    ended = run(tmp_path, space=space)
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("The sweep failed:")
    assert "no such luck" in last


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"sampler": "best"}, "sampler is 'best'"),
        ({"direction": "up"}, "direction is 'up'"),
        ({"max_trials": -1}, "max_trials is -1"),
    ],
)
def test_bad_input_ends_the_step_before_a_trial(
    tmp_path: Path, arguments: dict[str, Any], said: str
) -> None:
    ended = run(tmp_path, space=SPACE, **arguments)
    assert ended.returncode == 2, ended.stderr
    assert said in ended.stderr.splitlines()[-1]
    assert not list(tmp_path.glob("tasks/*/sweep/trials/*"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-a", 'space={"x": {"type": "choice", "values": [1, null]}}'], "-a space holds null in"),
        (["-a", 'space={"x": {"type": "choice", "values": [1]}}', "-p", "y=null"], "-p holds null"),
    ],
    ids=["space", "parameter"],
)
def test_null_is_refused_before_kfp_local_trips_over_it(
    tmp_path: Path, options: list[str], said: str
) -> None:
    ended = subprocess.run(
        [*CLI, "--output", str(tmp_path), "-aprogram=looped:train", *options],
        env={**os.environ, "PYTHONPATH": f"{PROGRAMS}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
