"""What must hold of a sweep when something goes wrong, with real processes on this machine."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from kfp_jax.sweep.table import read_trials
from kfp_jax.sweep.trial import Trial, TrialState

pytestmark = pytest.mark.integration

PROGRAMS = Path(__file__).parents[1] / "programs"
ENVIRON = {**os.environ, "PYTHONPATH": str(PROGRAMS), "PYTHONUNBUFFERED": "1"}
CLI = (sys.executable, "-c", "from kfp_jax.cli import main; main()", "sweep")
X = {"x": {"type": "uniform", "low": 0, "high": 1}}
KILLS = 20


def start(folder: Path, *more: str, program: str, space: Any = None) -> "subprocess.Popen[str]":
    given = ("--program", program, "--space", json.dumps(space or X), "--output", str(folder))
    return subprocess.Popen(
        [*CLI, *given, *more],
        env=ENVIRON,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def run(folder: Path, *more: str, program: str, space: Any = None) -> tuple[int, str]:
    process = start(folder, *more, program=program, space=space)
    out, err = process.communicate(timeout=120)
    assert processes_of(folder) == []
    return process.returncode, out + err


def table(folder: Path) -> list[Trial]:
    return read_trials((folder / "trials.jsonl").read_text())


def processes_of(folder: Path) -> list[int]:
    """Returns the processes that work for jobs in this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            environ = (entry / "environ").read_bytes() if entry.name.isdecimal() else b""
        except OSError:
            continue
        if str(folder).encode() in environ:
            found.append(int(entry.name))
    return found


@pytest.mark.timeout(300)
def test_a_sweep_killed_twenty_times_loses_no_trial_and_makes_none_twice(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    seed = random.SystemRandom().randrange(10**6)
    print("seed", seed)  # shown when this fails
    moments = random.Random(seed)
    asked = ("--sampler", "random", "--max-trials", "40", "--parallel", "3", "--resume")
    for _ in range(KILLS):
        process = start(folder, *asked, program="trials:once")
        time.sleep(moments.uniform(0.2, 2.5))
        process.kill()
        process.communicate()
    code, said = run(folder, *asked, program="trials:once")
    assert code == 0, said
    trials = table(folder)
    assert [trial.number for trial in trials] == list(range(40))
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    notes = (folder / "notes").read_text().split("\n")
    # One that had ended may be made again only if the kill came before its end was written.
    ended = [text for text in notes if text.startswith("end")]
    assert len(set(ended)) == 40
    assert len(ended) - 40 <= KILLS


def test_ctrl_c_keeps_what_ended_and_says_how_to_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    asked = ("--sampler", "random", "--max-trials", "30", "--parallel", "2")
    process = start(folder, *asked, program="trials:once")
    notes = folder / "notes"
    end = time.monotonic() + 60
    while not notes.exists() or notes.read_text().count("end") < 4:
        assert time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "ended and" in err.splitlines()[-1]
    assert processes_of(folder) == []
    kept = [trial for trial in table(folder) if trial.state is TrialState.COMPLETE]
    assert 2 <= len(kept) < 30  # two may have been at their very end
    assert (folder / "leaderboard.html").is_file()
    refused, said = run(folder, *asked, program="trials:once")
    assert refused == 2
    assert "--resume" in said
    code, said = run(folder, *asked, "--resume", program="trials:once")
    assert code == 0, said
    trials = table(folder)
    assert len(trials) == 30
    assert [trial for trial in trials if trial.number in {item.number for item in kept}] == kept


def test_each_way_to_fail_costs_one_trial_and_is_named(tmp_path: Path) -> None:
    ways = {
        "raises": "exception",
        "hangs": "stalled",
        "nan": "diverged",
        "nothing": "missing-objective",
        "other-name": "missing-objective",
        "killed": "killed",
        "": "",
    }
    space = {
        name: {"type": "choice", "values": values}
        for name, values in {"how": list(ways), "x": [0.5]}.items()
    }
    asked = ("--sampler", "grid", "--parallel", "2", "--max-failed", "6", "--stall-seconds", "3")
    code, said = run(tmp_path, *asked, program="trials:train", space=space)
    assert code == 0, said
    trials = {trial.parameters["how"]: trial for trial in table(tmp_path)}
    assert {how: trial.reason for how, trial in trials.items()} == ways
    assert trials[""].state is TrialState.COMPLETE
    assert "no such luck" in trials["raises"].message
    page = (tmp_path / "leaderboard.html").read_text()
    assert all(reason in page for reason in ways.values())
    assert "1 complete, 6 failed" in said


def test_when_all_fail_the_sweep_fails_with_what_they_share(tmp_path: Path) -> None:
    space = {**X, "how": {"type": "choice", "values": ["raises"]}}
    code, said = run(tmp_path, "--max-trials", "6", program="trials:train", space=space)
    assert code == 1
    last = said.splitlines()[-1]
    assert last.startswith("The sweep failed: 4 trials failed and at most 3 may; 4 of 4 by")
    assert "no such luck" in last


def test_a_trial_that_falls_behind_is_killed(tmp_path: Path) -> None:
    # The last of the grid is the worst: it would sleep for a minute.
    space = {"x": {"type": "choice", "values": [0.9, 0.8, 0.7, 0.6, 0.5, 0.1]}}
    asked = ("--sampler", "grid", "--parallel", "1", "--pruner", "median")
    began = time.monotonic()
    code, said = run(tmp_path, *asked, program="trials:slow_if_bad", space=space)
    assert code == 0, said
    assert time.monotonic() - began < 30
    states = [trial.state for trial in table(tmp_path)]
    assert states == [*[TrialState.COMPLETE] * 5, TrialState.PRUNED]


def test_bad_input_is_refused_before_anything_starts(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    for entry, said in (
        ({"type": "loguniform", "low": 0, "high": 1}, "low"),
        ({"type": "uniform", "low": 1, "high": 0}, "low"),
        ({"type": "choice", "values": []}, "values"),
    ):
        asked = ("--max-trials", "2")
        code, text = run(folder, *asked, program="trials:train", space={"x": entry})
        assert (code, len(text.splitlines())) == (2, 1), text
        assert "x" in text
        assert said in text
    code, text = run(folder, "--max-trials", "2", program="trials:absent")
    assert code == 2
    assert "absent" in text
    assert not list(folder.glob("trials/*"))
