"""Sweeps on the real cluster: trials as jobs, and launchers of them that are killed."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from e2e.jobs import BACKENDS, left_in
from e2e.mnist import PODS, SMALL
from e2e.places import ROOT, Place, until
from e2e.test_kfp_task import POD, a_workflow, ended, in_pods, jobs, task_pod
from kfp_jax.kube.resources import CONFIG_MAPS
from kfp_jax.kube.resources import PODS as ALL_PODS
from kfp_jax.sweep.table import read_trials
from kfp_jax.sweep.trial import Trial, TrialState

pytestmark = pytest.mark.usefixtures("nothing_is_left")

CLI = (sys.executable, "-c", "from kfp_jax.cli import main; main()", "sweep")
# Says when it starts, sleeps, and scores; a shell, so that pods start in a blink.
SCRIPT = """
echo start >> "$KFP_JAX_OUTPUT_URI/ran"; sleep 0.5; echo end >> "$KFP_JAX_OUTPUT_URI/ran"
echo '@kfp-jax {"v": 1, "kind": "result", "time": 0, "values": {"accuracy": 0.5}}'
"""
X = {"x": {"type": "uniform", "low": 0, "high": 1}}
KILLS = 5


def command(place: Place, backend: str, folder: Path, *more: str, space: Any = None) -> list[str]:
    where = ("--backend", backend, "--namespace", place.namespace, "--output", str(folder))
    return [
        *CLI,
        *where,
        *("--pods", json.dumps(asdict(PODS)), "--space", json.dumps(space or X)),
        *more,
    ]


def run(argv: list[str], seconds: float = 240) -> tuple[int, str]:
    done = subprocess.run(
        argv, env=os.environ, capture_output=True, text=True, timeout=seconds, check=False
    )
    return done.returncode, done.stdout + done.stderr


def table(folder: Path) -> list[Trial]:
    return read_trials((folder / "trials.jsonl").read_text())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sweep_of_mnist_trains_in_pods(place: Place, dataset: Path, backend: str) -> None:
    folder = place.folder / "sweep"
    space = {"learning_rate": {"type": "loguniform", "low": 1e-3, "high": 1e-1}}
    shared = [f"-p{name}={json.dumps(value)}" for name, value in SMALL.items()]
    asked = ("--max-trials", "3", "--parallel", "2", "--dataset", str(dataset), *shared)
    argv = command(
        place, backend, folder, "--program", "kfp_jax_runtime.mnist", *asked, space=space
    )
    code, said = run(argv)
    assert code == 0, f"{said}\n{place.story()}"
    trials = table(folder)
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 3
    best = max(trials, key=lambda trial: trial.score or 0)
    assert (best.score or 0) > 0.5
    assert (Path(best.model_uri) / "model.json").is_file()
    assert "<svg" in (folder / "leaderboard.html").read_text()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sweep_whose_launcher_is_killed_makes_no_trial_twice(place: Place, backend: str) -> None:
    folder = place.folder / "sweep"
    asked = ("--sampler", "random", "--max-trials", "12", "--parallel", "4", "--resume")
    argv = command(place, backend, folder, *asked, "--", "sh", "-c", SCRIPT)
    seed = random.SystemRandom().randrange(10**6)
    print("seed", seed)  # shown when this fails
    moments = random.Random(seed)
    for _ in range(KILLS):
        launcher = subprocess.Popen(
            argv, env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(moments.uniform(1.0, 6.0))
        launcher.kill()
        launcher.wait()
    code, said = run(argv)
    assert code == 0, f"{said}\n{place.story()}"
    trials = table(folder)
    assert [trial.number for trial in trials] == list(range(12))
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    for trial in trials:
        assert Path(trial.output_uri, "ran").read_text() == "start\nend\n", trial


def killed(argv: list[str], place: Place, pods: int) -> None:
    """Runs a sweep until so many of its pods run, and kills it."""
    launcher = subprocess.Popen(
        argv, env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    running = f"{pods} pods run"
    until(
        running, lambda: len([p for p in place.pods() if p["status"]["phase"] == "Running"]) >= pods
    )
    launcher.kill()
    launcher.wait()


@pytest.mark.parametrize("backend", BACKENDS)
def test_trials_that_run_are_followed_first_and_are_not_changed(place: Place, backend: str) -> None:
    folder = place.folder / "sweep"
    script = SCRIPT.replace("sleep 0.5", "sleep 15")
    asked = ("--sampler", "random", "--max-trials", "4", "--resume")
    rest = ("--", "sh", "-c", script)
    killed(command(place, backend, folder, *asked, "--parallel", "3", *rest), place, 3)
    code, said = run(command(place, backend, folder, *asked, "--deadline-seconds", "99", *rest))
    assert (code, said.count("\n")) == (2, 1), said
    assert "limits.deadline changed" in said
    code, said = run(command(place, backend, folder, *asked, "--parallel", "1", *rest))
    assert code == 0, f"{said}\n{place.story()}"
    trials = table(folder)
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 4
    for trial in trials:
        assert Path(trial.output_uri, "ran").read_text() == "start\nend\n", trial
    first = trials[:3]
    assert max(t.started for t in first) < min(t.started + t.seconds for t in first)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_killed_sweep_has_left_is_no_result_of_the_next(place: Place, backend: str) -> None:
    folder = place.folder / "sweep"
    script = SCRIPT.replace("sleep 0.5", "sleep 5")
    asked = ("--sampler", "random", "--max-trials", "2", "--parallel", "2")
    argv = command(place, backend, folder, *asked, "--", "sh", "-c", script)
    killed(argv, place, 2)
    rans = [folder / "trials" / number / "ran" for number in ("0000", "0001")]
    until("both have ended", lambda: all("end" in ran.read_text() for ran in rans))
    until("no pod runs", lambda: all(p["status"]["phase"] == "Succeeded" for p in place.pods()))
    shutil.rmtree(folder)
    code, said = run(argv)
    assert code == 0, f"{said}\n{place.story()}"
    assert [ran.read_text() for ran in rans] == ["start\nend\n"] * 2


def test_a_cancelled_sweep_leaves_no_job(place: Place) -> None:
    folder = place.folder / "sweep"
    asked = ("--sampler", "random", "--max-trials", "12", "--parallel", "4")
    argv = command(place, "trainer", folder, *asked, "--", "sh", "-c", "sleep 100")
    launcher = subprocess.Popen(argv, env=os.environ, stderr=subprocess.PIPE, text=True)
    until("four trials are there", lambda: len(place.pods()) >= 4)
    launcher.terminate()
    _, said = launcher.communicate(timeout=90)
    assert launcher.returncode == 130, said
    until("nothing is left", lambda: not left_in(place), seconds=20)


def test_the_sweep_step_goes_on_in_a_new_pod(place: Place, dataset: Path) -> None:
    values = {
        "program": "kfp_jax_runtime.mnist",
        "space": {"learning_rate": {"type": "choice", "values": [0.003, 0.01, 0.03, 0.1]}},
        "parameters": SMALL,
        "max_trials": 4,
        "parallel": 1,
        "dataset_uri": in_pods(dataset),
    }
    workflow = a_workflow(place)
    pipeline = ROOT / "pipelines" / "compiled" / "sweep.yaml"
    pod = task_pod(place, "sweep", values, workflow, pipeline=pipeline)
    place.create(ALL_PODS, pod)

    def complete() -> list[str]:
        maps = place.client.list(CONFIG_MAPS, place.namespace, labels="kfp-jax/study").items
        return [row for item in maps for row in item["data"].values() if "COMPLETE" in row]

    until("a trial is complete", lambda: complete() or ended(place), seconds=150)
    assert not ended(place), place.log(POD, "main")
    # Not with a grace of 0: the object would go before its process, which holds the folder.
    place.client.delete(ALL_PODS, place.namespace, POD, grace=1)
    until("the pod is gone", lambda: place.is_gone(ALL_PODS, POD))
    kept = complete()
    place.create(ALL_PODS, pod)
    phase = until("the task ends", lambda: ended(place), seconds=200)
    log = place.log(POD, "main")
    assert phase == "Succeeded", f"{log}\n{place.story()}"
    written = json.loads((place.folder / "outputs" / "output_metadata.json").read_text())
    assert written["parameterValues"]["Output"]["epochs"] == 1
    metrics = written["artifacts"]["metrics"]["artifacts"][0]["metadata"]
    assert metrics["trials_complete"] == 4
    assert set(kept) <= set(complete())
    assert jobs(place) == []
    place.client.delete(ALL_PODS, place.namespace, POD, grace=0)
