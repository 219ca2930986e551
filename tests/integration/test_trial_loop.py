"""Sweeps as a loop in a pipeline, through kfp.local with real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from kfp import dsl
from kfp_jax.components import halve, select_best, suggest, trial
from kfp_jax.sweep.table import read_trials
from kfp_jax.sweep.trial import Trial, TrialState

pytestmark = pytest.mark.integration

PROGRAMS = Path(__file__).parents[1] / "programs"
CLI = (sys.executable, "-c", "from kfp_jax.cli import main; main()")
KINDS = ["well", "better", "raises", "nan", "other"]


def environ(**more: str) -> dict[str, str]:
    path = os.pathsep.join((str(PROGRAMS), os.environ.get("PYTHONPATH", "")))
    return os.environ | {"PYTHONPATH": path} | more


class Done:
    """A pipeline that has ended."""

    def __init__(self, folder: Path, ended: "subprocess.CompletedProcess[str]") -> None:
        self.folder = folder
        self.log = ended.stdout
        self.succeeded = ended.returncode == 0

    @property
    def outputs(self) -> dict[str, Any]:
        assert self.succeeded, self.log
        outputs: dict[str, Any] = json.loads((self.folder / "outputs.json").read_text())
        return outputs

    @property
    def trials(self) -> list[Trial]:
        """The trials of the table, also when the pipeline failed."""
        (table,) = self.folder.glob("tasks/*/select-best/trials_table")
        return read_trials(table.read_text())

    @property
    def errors(self) -> list[str]:
        """The sentences that ended steps."""
        lines = (self.folder / "events.jsonl").read_text().splitlines()
        events = [json.loads(line) for line in lines]
        return [event["text"] for event in events if event["event"] == "error"]


def run(folder: Path, name: str, **arguments: Any) -> Done:
    command = [sys.executable, str(PROGRAMS / "loop_pipelines.py"), name, str(folder)]
    ended = subprocess.run(
        [*command, json.dumps(arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=150,
        check=False,
        env=environ(KFP_JAX_EVENTS=str(folder / "events.jsonl")),
    )
    return Done(folder, ended)


def choice(*values: Any) -> dict[str, Any]:
    return {"type": "choice", "values": list(values)}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Five trials of which one raises, one returns NaN and one names another objective."""
    folder = tmp_path_factory.mktemp("mixed")
    return run(folder, "loop", space={"how": choice(*KINDS)}, max_failed=3)


def test_the_best_of_the_rest_is_chosen(mixed: Done) -> None:
    assert mixed.outputs["parameters"] == {"how": "better"}
    assert json.loads(mixed.outputs["model_holds"]) == {"how": "better"}
    assert mixed.outputs["metrics"] == {
        "accuracy": pytest.approx(0.911),
        "trials_complete": 2,
        "trials_failed": 3,
    }


def test_failed_trials_are_listed_with_their_diagnoses(mixed: Done) -> None:
    trials = {trial.parameters["how"]: trial for trial in mixed.trials}
    assert {how: trial.reason for how, trial in trials.items()} == {
        "well": "",
        "better": "",
        "raises": "exception",
        "nan": "diverged",
        "other": "missing-objective",
    }
    page = Path(mixed.outputs["leaderboard"]).read_text()
    for sentence in ("no such luck", "it gave val_accuracy", "ended as nan"):
        assert sentence in page
        assert sentence in mixed.log
    assert not mixed.errors


def test_too_many_failed_trials_fail_the_run_with_one_sentence(tmp_path: Path) -> None:
    done = run(tmp_path, "loop", space={"how": choice(*KINDS)})
    assert not done.succeeded
    (error,) = done.errors
    assert error.startswith("The sweep failed: 3 trials failed and at most 2 may; 1 of 3 by")
    # What is known of the trials stays.
    assert sum(trial.state is TrialState.FAILED for trial in done.trials) == 3
    assert list(tmp_path.glob("tasks/*/select-best/leaderboard"))


def test_trials_that_refuse_their_input_say_so(tmp_path: Path) -> None:
    done = run(tmp_path, "loop", space={"how": choice("well", "bad")}, parameters={"how": "well"})
    (error,) = done.errors
    assert "2 of 2 by bad-input" in error
    assert "Parameter how comes from two of" in error


def test_a_space_with_conditions_gives_trials_with_unequal_parameters(tmp_path: Path) -> None:
    space = {
        "batch_size": choice(32, 64),
        "learning_rate": choice("0.001", 3, 1e-2),
        "momentum": {"type": "uniform", "low": 1, "high": 1, "when": {"batch_size": 64}},
    }
    fixed = {"epochs": 2.0}
    done = run(
        tmp_path, "loop", space=space, sampler="random", max_trials=4, seed=1, parameters=fixed
    )
    assert {len(trial.parameters) for trial in done.trials} == {2, 3}
    assert {trial.state for trial in done.trials} == {TrialState.COMPLETE}
    paths = tmp_path.glob("tasks/*/for-loop-1-iteration-*/trial/model/parameters.json")
    for seen in (json.loads(path.read_text()) for path in paths):
        assert [type(seen[name]) for name in ("batch_size", "epochs")] == [int, int]
        assert ("momentum" in seen) == (seen["batch_size"] == 64)
    # In the table even what KFP made of 1.0 is undone.
    conditional = [t.parameters for t in done.trials if "momentum" in t.parameters]
    assert {repr(parameters["momentum"]) for parameters in conditional} == {"1.0"}
    assert {repr(parameters["batch_size"]) for parameters in conditional} == {"64"}


def test_both_forms_of_a_sweep_give_the_same_leaderboard(tmp_path: Path) -> None:
    space = {
        "learning_rate": {"type": "loguniform", "low": 1e-4, "high": 1e-1},
        "batch_size": choice(32, 64, 128),
        "how": choice("well", "better", "raises"),
    }
    settings: dict[str, Any] = {"max_trials": 6, "sampler": "random", "seed": 3}
    loop = run(tmp_path / "loop", "loop", space=space, max_failed=5, **settings)
    options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    command = [*CLI, "sweep", "--program", "looped:train", "--output", str(tmp_path / "step")]
    command += ["--space", json.dumps(space), "--max-failed=5", "--backend=local", *options]
    step = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        env=environ(),
    )
    assert step.returncode == 0, step.stderr
    table = read_trials((tmp_path / "step" / "trials.jsonl").read_text())
    assert [same(trial) for trial in loop.trials] == [same(trial) for trial in table]
    assert any(trial.state is TrialState.FAILED for trial in table)
    best = json.loads((tmp_path / "step" / "sweep.json").read_text())["best"]
    assert loop.outputs["parameters"] == best["parameters"]


def same(trial: Trial) -> dict[str, Any]:
    """Returns a trial but for times, jobs and places."""
    left_out = ("seconds", "started", "job", "output_uri", "model_uri", "message")
    values = {key: value for key, value in trial.to_json().items() if key not in left_out}
    return values | {
        "curve": [[step, pytest.approx(value, rel=1e-4)] for step, value in trial.curve]
    }


def test_halving_trains_the_best_longer(tmp_path: Path) -> None:
    done = run(tmp_path, "rounds", space={"learning_rate": choice(0.1, 0.01, 0.001, 0.0001)})
    assert done.outputs["parameters"] == {"learning_rate": 0.01, "epochs": 3}
    assert json.loads(done.outputs["model_holds"]) == {"learning_rate": 0.01, "epochs": 3}
    states = [trial.state.value for trial in done.trials]
    assert states == ["COMPLETE", "COMPLETE", "PRUNED", "PRUNED"]
    assert [len(trial.curve) for trial in done.trials] == [6, 6, 2, 2]


def test_a_round_without_any_complete_trial_fails_with_the_commonest_diagnosis(
    tmp_path: Path,
) -> None:
    done = run(tmp_path, "rounds", space={"how": choice("raises")})
    (error,) = done.errors
    assert "the one trial was made; 1 of 1 by exception, such as trial 0" in error


def test_a_trial_that_fails_in_a_later_round_costs_only_itself(tmp_path: Path) -> None:
    space = {"learning_rate": choice(0.01, 0.001), "fails_from_epochs": choice(3, 9)}
    done = run(tmp_path, "rounds", space=space)
    assert done.outputs["parameters"]["fails_from_epochs"] == 9
    states = sorted(trial.state.value for trial in done.trials)
    assert states == ["COMPLETE", "FAILED", "PRUNED", "PRUNED"]


def refusal(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("inputs", "part"),
    [
        ({"space": {}}, "The search space is empty"),
        ({"space": {"n": choice()}}, "'n'"),
        ({"space": {"n": choice(1)}, "sampler": "best"}, "sampler is 'best'"),
        ({"space": {"n": choice(*range(101))}, "max_trials": 0}, "at most 100"),
        (
            {"space": {"x": {"type": "uniform", "low": 0, "high": 1}}, "max_trials": 2000},
            "2,000 trials",
        ),
    ],
)
def test_suggest_refuses_what_gives_no_loop(
    capsys: pytest.CaptureFixture[str], inputs: dict[str, Any], part: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        suggest.python_func(**inputs)
    assert ended.value.code == 2
    assert part in refusal(capsys)


def test_no_trials_at_all_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = dsl.Dataset(name="trials_table", uri=str(tmp_path / "trials_table"))
    with pytest.raises(SystemExit) as ended:
        halve.python_func(trials_table=table, results=[], keep=2)
    assert ended.value.code == 2
    assert "the loop made no trial" in refusal(capsys)


@pytest.mark.parametrize(
    ("inputs", "part"),
    [({"direction": "up"}, "direction is 'up'"), ({"space": {"n": 1}}, "'n'")],
)
def test_select_best_refuses_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], inputs: dict[str, Any], part: str
) -> None:
    artifacts: dict[str, dsl.Artifact] = {
        name: kind(name=name, uri=str(tmp_path / name))
        for name, kind in (
            ("model", dsl.Model),
            ("metrics", dsl.Metrics),
            ("leaderboard", dsl.HTML),
            ("trials_table", dsl.Dataset),
        )
    }
    results = [{"number": 0, "parameters": {"n": 1}, "state": "COMPLETE", "score": 1}]
    with pytest.raises(SystemExit) as ended:
        select_best.python_func(**artifacts, results=results, **inputs)
    assert ended.value.code == 2
    assert part in refusal(capsys)


def test_an_item_of_ones_own_making_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = dsl.Model(name="model", uri=str(tmp_path / "model"))
    metrics = dsl.Metrics(name="metrics", uri=str(tmp_path / "metrics"))
    with pytest.raises(SystemExit):
        trial.python_func(
            model=model,
            metrics=metrics,
            item={"learning_rate": 0.1},
            program="looped:train",
            task_config=dsl.TaskConfig(),
        )
    assert "give one that suggest or halve returned" in refusal(capsys)


def test_a_terminated_trial_is_no_failed_trial(tmp_path: Path) -> None:
    """Its step fails: a value would have the loop go on after somebody ended it."""
    events = tmp_path / "events.jsonl"
    code = (
        "import sys; from kfp import dsl; from kfp_jax.components import trial\n"
        "trial.python_func(model=dsl.Model(name='model', uri=sys.argv[1] + '/model'),\n"
        " metrics=dsl.Metrics(name='metrics', uri=sys.argv[1] + '/metrics'), backend='local',\n"
        " task_config=dsl.TaskConfig(),\n"
        " item={'number': 0, 'parameters': {'how': 'hangs'}}, program='looped:train')"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "trial")]
    with subprocess.Popen(command, env=environ(KFP_JAX_EVENTS=str(events))) as step:
        end = time.monotonic() + 60
        while not (events.exists() and '"step": 2' in events.read_text()):
            assert time.monotonic() < end
            time.sleep(0.1)
        step.send_signal(signal.SIGTERM)
        assert step.wait(timeout=60) == 130
    assert "was cancelled" in json.loads(events.read_text().splitlines()[-1])["text"]
