"""What must hold when something goes wrong, with real JAX processes on the local backend."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from kfp_jax.backends.base import LogLine
from kfp_jax.backends.local import LocalBackend
from kfp_jax.launch import launch
from kfp_jax.sinks import NullSink
from kfp_jax.spec import Limits, TrainSpec
from kfp_jax.status import Outcome, Phase

pytestmark = pytest.mark.integration

PROGRAMS = Path(__file__).parents[1] / "programs"
ENVIRON = {**os.environ, "PYTHONPATH": str(PROGRAMS), "PYTHONUNBUFFERED": "1"}
CLI = (sys.executable, "-c", "from kfp_jax.cli import main; main()")


class Watcher(NullSink):
    """Notes when the last line came: a failing process writes its traceback last."""

    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        self.last = 0.0

    def log(self, line: LogLine) -> None:
        self.lines.append(line)
        self.last = time.monotonic()


def spec(folder: Path, *, nodes: int = 2, limits: Limits | None = None, **drill: Any) -> TrainSpec:
    restarts = drill.pop("max_restarts", 0)
    return TrainSpec(
        name="drill",
        program="drill:train",
        output_uri=str(folder),
        parameters=drill,
        num_nodes=nodes,
        max_restarts=restarts,
        limits=limits or Limits(start=60, stall=60),
    )


def run(job: TrainSpec, sink: NullSink | None = None) -> Outcome:
    outcome = launch(job, LocalBackend(environ=ENVIRON), sink=sink)
    assert processes_of(Path(job.output_uri)) == []
    assert json.loads((Path(job.output_uri) / "result.json").read_text()) == json.loads(
        json.dumps(outcome.to_json())
    )
    return outcome


def processes_of(folder: Path) -> list[int]:
    """Returns the processes of a job, found by the output folder in their environment."""
    mark = f"KFP_JAX_OUTPUT_URI={folder}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                alive = mark in (entry / "environ").read_bytes()
            except OSError:
                continue
            found += [int(entry.name)] if alive else []
    return found


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def steps(folder: Path) -> list[int]:
    path = folder / "history.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["step"] for line in lines]


def test_an_exception_ends_the_job_with_its_traceback(tmp_path: Path) -> None:
    watcher = Watcher()
    outcome = run(spec(tmp_path, how="raise"), watcher)
    assert time.monotonic() - watcher.last < 5
    assert (outcome.phase, outcome.reason, outcome.failed_process) == (
        Phase.FAILED,
        "exception",
        1,
    )
    assert "process 1 raised ValueError: no such luck" in outcome.message
    assert outcome.last_lines[-1] == "ValueError: no such luck"
    assert any("Traceback" in line for line in outcome.last_lines)


def test_an_exit_code_is_kept(tmp_path: Path) -> None:
    outcome = run(spec(tmp_path, how="exit"))
    assert (outcome.phase, outcome.reason, outcome.failed_process) == (Phase.FAILED, "exit", 1)
    assert re.search(
        r"process 1 ended after step \d+: the program called sys.exit\(3\)", outcome.message
    )


def test_a_killed_coordinator_is_named_and_not_its_victim(tmp_path: Path) -> None:
    outcome = run(spec(tmp_path, how="kill", process=0))
    assert (outcome.reason, outcome.failed_process) == ("killed", 0)
    assert "SIGKILL" in outcome.message


def test_a_suspended_process_is_found_by_the_stall_limit(tmp_path: Path) -> None:
    outcome = run(spec(tmp_path, how="suspend", limits=Limits(start=120, stall=15)))
    assert (outcome.reason, outcome.failed_process) == ("stalled", 1)
    assert "process 1 is suspended" in outcome.message


def test_a_process_that_never_joins_is_named(tmp_path: Path) -> None:
    job = TrainSpec(
        name="drill",
        program="never_joins",
        output_uri=str(tmp_path),
        num_nodes=2,
        limits=Limits(start=20),
    )
    outcome = run(job)
    assert (outcome.reason, outcome.failed_process) == ("start-timeout", 1)
    assert "process 1 never joined" in outcome.message


def test_a_diverged_loss_names_the_step(tmp_path: Path) -> None:
    outcome = run(spec(tmp_path, how="diverge", at_step=7, max_restarts=3))
    assert (outcome.phase, outcome.reason, outcome.attempts) == (Phase.FAILED, "diverged", 1)
    assert "step 7" in outcome.message
    last = json.loads((tmp_path / "history.jsonl").read_text().splitlines()[-1])
    assert (last["step"], last["values"]) == (7, {"loss": "NaN"})


def test_a_restart_ends_with_the_numbers_of_an_uninterrupted_run(tmp_path: Path) -> None:
    whole = run(spec(tmp_path / "whole", steps=30))
    broken = run(spec(tmp_path / "broken", steps=30, how="kill", at_step=16, max_restarts=1))
    assert (broken.phase, broken.attempts) == (Phase.SUCCEEDED, 2)
    assert broken.metrics["first"] == 10
    assert broken.metrics["x"] == whole.metrics["x"]
    assert steps(tmp_path / "broken") == list(range(1, 31))
    logs = tmp_path / "broken" / "logs"
    assert sorted(entry.name for entry in logs.iterdir()) == ["attempt-1", "attempt-2"]


def test_two_jobs_at_once_do_not_meet(tmp_path: Path) -> None:
    outcomes: dict[int, Outcome] = {}

    def one(seed: int) -> None:
        outcomes[seed] = launch(
            spec(tmp_path / str(seed), seed=seed), LocalBackend(environ=ENVIRON)
        )

    threads = [threading.Thread(target=one, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(outcome.phase is Phase.SUCCEEDED for outcome in outcomes.values())
    assert outcomes[1].metrics["x"] != outcomes[2].metrics["x"]
    alone = run(spec(tmp_path / "alone", seed=1))
    assert outcomes[1].metrics["x"] == alone.metrics["x"]


def start_cli(folder: Path, **drill: object) -> "subprocess.Popen[str]":
    parameters = [part for name, value in drill.items() for part in ("-p", f"{name}={value}")]
    command = [*CLI, "run", "--program", "drill:train", "--nodes", "2", "--output", str(folder)]
    return subprocess.Popen(
        [*command, *parameters],
        env=ENVIRON,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_cancelled_job_saves_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with start_cli(tmp_path, steps=10_000, step_seconds=0.02) as cli:
        wait_for(lambda: len(steps(tmp_path)) > 12)
        cli.send_signal(number)
        _, err = cli.communicate(timeout=60)
    assert cli.returncode == 130
    assert err.splitlines()[-1].startswith("Job drill-")
    assert "was cancelled after step" in err.splitlines()[-1]
    assert processes_of(tmp_path) == []
    saved = max(int(item.name) for item in (tmp_path / "checkpoints").iterdir())
    assert saved >= 12
    assert saved % 10 != 0 or saved == steps(tmp_path)[-1]


def test_a_killed_launcher_leaves_no_process_and_the_next_run_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    with start_cli(folder, steps=40, step_seconds=0.1) as cli:
        wait_for(lambda: len(steps(folder)) > 22)
        cli.kill()
        cli.communicate()
    wait_for(lambda: processes_of(folder) == [], seconds=5)
    resumed = run(spec(folder, steps=40))
    whole = run(spec(tmp_path / "whole", steps=40))
    assert resumed.metrics["first"] >= 20
    assert resumed.metrics["x"] == whole.metrics["x"]
    assert steps(folder) == list(range(1, 41))


def test_a_script_of_jaxjob_v1_runs_unchanged(tmp_path: Path) -> None:
    job = TrainSpec(
        name="v1",
        command=(sys.executable, str(PROGRAMS / "v1_script.py")),
        output_uri=str(tmp_path),
        num_nodes=2,
    )
    watcher = Watcher()
    assert run(job, watcher).phase is Phase.SUCCEEDED
    assert "sum of 2 processes: 1.0" in [line.text for line in watcher.lines]


def test_a_launch_beside_running_jax(tmp_path: Path) -> None:
    import jax.numpy as jnp

    assert float(jnp.ones(3).sum()) == 3  # its threads make a fork unsafe; warnings are errors
    assert run(spec(tmp_path, nodes=1, steps=2)).phase is Phase.SUCCEEDED


def refused(arguments: list[str], environ: Mapping[str, str] = ENVIRON) -> str:
    """Runs the command line, and returns the one sentence with which it refused."""
    done = subprocess.run(
        [*CLI, *arguments], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--program", "no_such_module"], ["no_such_module"]),
        (["--program", "drill:no_such_function"], ["no_such_function", "train"]),
        (["--program", "drill:train", "-p", "stepz=3"], ["stepz", "steps"]),
        (["--program", "drill:train", "-p", "steps=many"], ["steps", "many"]),
        (["--program", "drill:train", "-p", "steps=2.5"], ["steps", "2.5"]),
        (["--program", "drill:train", "-p", "how=explode"], ["how", "explode", "raise"]),
        (["--program", "drill:train", "-p", "steps"], ["steps", "name=value"]),
        (["--program", "drill:train", "--nodes", "0"], ["num_nodes is 0"]),
        (["--program", "drill:train", "--nodes", "-1"], ["num_nodes is -1"]),
        (["--program", "drill:train", "--nodes", "1000000"], ["num_nodes is 1000000"]),
        (["--program", "drill:train", "--nodes", "5000"], ["5,000", "cores"]),
        (["--program", "drill:train", "--dataset", "/no/such/folder"], ["/no/such/folder"]),
        (["--program", "drill:train", "--name", "x" * 300], ["300 characters"]),
        (["--program", "drill:train", "-p", "how=" + "x" * 100_000], ["at most 65,536"]),
        (["--program", "drill:train", "--backend", "moon"], ["moon", "local"]),
        (["--program", "drill:train", "--stall-seconds", "-1"], ["stall", "-1"]),
        (["--", "no-such-command"], ["no-such-command"]),
        ([], ["--program"]),
    ],
)
def test_bad_input_is_one_sentence_and_starts_nothing(
    tmp_path: Path, arguments: list[str], parts: list[str]
) -> None:
    folder = tmp_path / "out"
    sentence = refused(["run", "--output", str(folder), *arguments])
    assert all(part in sentence for part in parts), sentence
    assert not folder.exists()


def in_small_disk(
    folder: Path, options: str, arguments: list[str]
) -> "subprocess.CompletedProcess[str]":
    """Runs the command line with a disk of its own mounted at `folder`; needs root."""
    folder.mkdir()
    mount = f'mount -t tmpfs -o {options} none {folder} && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", mount, "sh", *CLI, *arguments]
    return subprocess.run(
        command, env=ENVIRON, capture_output=True, text=True, timeout=90, check=False
    )


@pytest.fixture
def needs_root() -> None:
    if os.geteuid() != 0:
        if os.environ.get("CI"):
            pytest.fail("this test mounts a disk and must run as root in CI")
        pytest.skip("this test mounts a disk, which needs root")


@pytest.mark.usefixtures("needs_root")
@pytest.mark.parametrize(
    ("options", "part"),
    [("ro", "Read-only file system"), ("size=4m", "space left")],
)
def test_an_output_folder_that_cannot_be_written(tmp_path: Path, options: str, part: str) -> None:
    folder = tmp_path / "disk"
    done = in_small_disk(folder, options, ["run", "--program", "drill:train", "-o", str(folder)])
    assert done.returncode == 2, done.stderr
    assert part in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.usefixtures("needs_root")
def test_a_disk_that_fills_up_while_training(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    job = ["run", "--program", "drill:train", "-o", str(folder), "-p", "how=fill"]
    done = in_small_disk(folder, "size=24m", job)
    assert done.returncode in (1, 74), done.stderr
    assert "space" in done.stderr.splitlines()[-1]
