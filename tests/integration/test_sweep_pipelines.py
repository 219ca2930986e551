"""The pipelines that search, as their user runs them: the command line, kfp.local, MNIST."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from kfp_jax.sweep.table import read_trials
from playwright.sync_api import sync_playwright

pytestmark = pytest.mark.integration

CLI = (sys.executable, "-c", "from kfp_jax.cli import main; main()")
SMALL = ("-p", "epochs=1", "-p", "channels=[8]", "-p", "hidden=16", "-a", "source=bundled")
CHROMIUM = Path("/usr/bin/chromium")


def run(name: str, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [*CLI, "pipeline", name, "--output", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep of two trials."""
    folder = tmp_path_factory.mktemp("mnist-sweep")
    # Of an earlier run, and nothing of this one.
    (folder / "leaderboard.html").write_text("old")
    ended = run("mnist-sweep", folder, *SMALL, "-a", "max_trials=2", "-a", "seed=1", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == json.loads((folder / "outputs.json").read_text())
    for line in ("trial-0: Trial 0: accuracy", "trial-1: Trial 1: accuracy", "select-best: Best: "):
        assert line in ended.stderr
    return folder


def outputs(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "outputs.json").read_text())
    return found


def test_the_best_trial_is_evaluated_where_it_wrote_its_model(done: Path) -> None:
    found = outputs(done)
    first, second = sorted(
        read_trials((done / "trials.jsonl").read_text()), key=lambda trial: trial.score or 0
    )
    assert found["accuracy"] == pytest.approx(second.score, abs=1e-3)
    assert found["parameters"] == {
        "epochs": 1,
        "channels": [8],
        "hidden": 16,
        **second.parameters,
    }
    assert found["model"] == second.model_uri != first.model_uri
    assert (Path(found["model"]) / "model.json").is_file()


def test_its_leaderboard_opens_in_a_browser(done: Path) -> None:
    if not CHROMIUM.exists():
        reason = f"there is no browser at {CHROMIUM}; install Debian's package chromium"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    page_file = done / "leaderboard.html"
    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(page_file.as_uri())
        text = page.inner_text("body")
        assert page.locator("svg").count() >= 1
        browser.close()
    assert complaints == []
    for part in ("learning_rate", "dropout", "2 complete", "all 2 trials were made"):
        assert part in text.replace("All", "all")


def test_a_failed_sweep_leaves_its_leaderboard_and_says_what_the_trials_have_in_common(
    done: Path, tmp_path: Path
) -> None:
    (prepared,) = done.glob("tasks/*/prepare-data/dataset")
    space = tmp_path / "space.json"
    space.write_text('{"learning_rate": {"type": "choice", "values": [0.1, 0.01]}}')
    ended = run(
        "mnist_sweep", tmp_path, "-a", "source=prepared", "-a", f"folder={prepared}",
        "-a", f"space={space}", "-a", "max_trials=2", "-p", "learning_rate=0.01",
    )  # fmt: skip
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(
        "The sweep failed: 2 trials failed and at most 1 may; 2 of 2 by bad-input"
    )
    assert "Parameter learning_rate comes from two of" in last
    assert "learning_rate" in (tmp_path / "leaderboard.html").read_text()
    assert len((tmp_path / "trials.jsonl").read_text().splitlines()) == 2
    assert not (tmp_path / "outputs.json").exists()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("-a", 'space={"dropout": 1}'), ("dropout",)),
        (("-a", "space={}"), ("empty",)),
        (("-a", "space=/no/such.json"), ("/no/such.json", "cannot be read")),
        (("-p", "epoch=1"), ("epoch", "epochs")),
        (("-a", "max_trials=many"), ("max_trials", "many", "whole number")),
        (("-a", "max_trial=2"), ("max_trial", "max_trials")),
        (("-n", "0"), ("num_nodes is 0",)),
    ],
)
def test_bad_input_is_refused_before_data_are_prepared(
    tmp_path: Path, arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    ended = run("mnist-sweep", tmp_path, "-a", "source=bundled", *arguments)
    last = ended.stderr.splitlines()[-1]
    assert ended.returncode == 2, ended.stderr
    assert all(part in last for part in parts), last
    assert "prepare-data" not in ended.stderr


def test_what_the_loop_cannot_carry_is_refused_before_the_first_trial(
    done: Path, tmp_path: Path
) -> None:
    (prepared,) = done.glob("tasks/*/prepare-data/dataset")
    ended = run(
        "mnist-sweep", tmp_path, "-a", "source=prepared", "-a", f"folder={prepared}",
        "-a", "max_trials=2000",
    )  # fmt: skip
    assert ended.returncode == 2
    assert "2,000 trials were asked for, but a loop takes at most 100" in ended.stderr
    assert "trial-0" not in ended.stderr


def test_an_interrupted_sweep_starts_no_other_trial(done: Path, tmp_path: Path) -> None:
    """kfp.local goes on with the loop, whatever happens to its tasks."""
    (prepared,) = done.glob("tasks/*/prepare-data/dataset")
    command = [*CLI, "pipeline", "mnist-sweep", "--output", str(tmp_path), "-p", "epochs=500"]
    command += ["-a", "source=prepared", "-a", f"folder={prepared}", "-a", "max_trials=6"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as cli:
        end = time.monotonic() + 90
        while len(list(tmp_path.glob("tasks/*/*/trial/history.jsonl"))) < 2:
            assert time.monotonic() < end
            time.sleep(0.1)
        cli.send_signal(signal.SIGINT)
        _, err = cli.communicate(timeout=90)
    assert cli.returncode == 130
    assert b"cancelled" in err.splitlines()[-1]
    assert len(list(tmp_path.glob("tasks/*/*/trial/history.jsonl"))) == 2
