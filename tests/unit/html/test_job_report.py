"""The report of a job, from the files that a launch writes."""

import json
from html import unescape
from pathlib import Path
from typing import Any

from fakes.clock import ManualClock
from fakes.scripted_backend import Event, ScriptedBackend
from kfp_jax.backends.base import LogLine
from kfp_jax.job_folder import write_report
from kfp_jax.launch import launch
from kfp_jax.spec import TrainSpec
from kfp_jax.status import JobStatus, Phase, ProcessStatus

RUNNING = JobStatus(Phase.RUNNING, processes=(ProcessStatus(0), ProcessStatus(1)))
TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/mnt/work/train.py", line 5, in main',
    '    raise ValueError("bad batch")',
    "ValueError: bad batch",
)


def say(kind: str, process: int = 0, attempt: int = 1, **fields: Any) -> LogLine:
    text = "@kfp-jax " + json.dumps({"v": 1, "kind": kind, "time": 1.8e9, **fields})
    return LogLine(process, attempt, text)


def losses(attempt: int, values: dict[int, float | str]) -> tuple[LogLine, ...]:
    return tuple(
        say("metrics", attempt=attempt, step=step, values={"loss": value})
        for step, value in values.items()
    )


def report(folder: Path, *events: Event) -> str:
    clock = ManualClock()
    spec = TrainSpec(name="test", program="pkg.train", output_uri=str(folder), num_nodes=2)
    launch(spec, ScriptedBackend(clock, events), clock=clock)
    return unescape(write_report(folder).read_text(encoding="utf-8"))


def test_a_success_shows_curves_result_and_model(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    page = report(
        tmp_path,
        Event(1, RUNNING, losses(1, {1: 1.0, 2: "NaN", 3: 0.25})),
        Event(1, JobStatus(Phase.SUCCEEDED), (say("result", values={"acc": 0.9}, model="model"),)),
    )
    assert "loss by step. begins at 1, last 0.25, the lowest, not finite at step 2." in page
    assert f"load_model('{tmp_path}/model')" in page
    assert "2027-01-15 08:00:00 UTC" in page
    assert "wrote last" not in page


def test_a_failure_shows_the_traceback_of_the_culprit_also_when_it_went_on(tmp_path: Path) -> None:
    noise = tuple(LogLine(1, 1, f"E1201 coordination: {'stopping ' * 200}") for _ in range(50))
    processes = (
        ProcessStatus(0, alive=False, exit_code=-6, failed_at=2.0),
        ProcessStatus(1, alive=False, exit_code=1, failed_at=1.0),
    )
    page = report(
        tmp_path,
        Event(1, RUNNING, losses(1, {1: 1.0})),
        Event(
            1,
            JobStatus(Phase.FAILED, processes=processes),
            (
                *(LogLine(1, 1, text) for text in TRACEBACK),
                say("error", 1, message="ValueError: bad batch", traceback="\n".join(TRACEBACK)),
                *noise,
                LogLine(0, 1, "Fatal Python error: Aborted"),
            ),
        ),
    )
    assert "process 1 raised ValueError: bad batch after step 1" in page
    assert "What process 1 wrote last" in page
    assert "\n".join(TRACEBACK) in page
    assert "Fatal Python error" not in page


def test_what_an_attempt_reported_past_its_checkpoint_is_not_shown(tmp_path: Path) -> None:
    restarted = JobStatus(Phase.RUNNING, restarts=1, processes=RUNNING.processes)
    page = report(
        tmp_path,
        Event(1, RUNNING, losses(1, {10: 3.0, 20: 2.0, 25: 0.125})),
        Event(1, restarted, (say("restored", attempt=2, step=20), *losses(2, {25: 1.0, 30: 0.5}))),
        Event(1, JobStatus(Phase.SUCCEEDED, restarts=1)),
    )
    assert "loss by step. begins at 3, last 0.5, the lowest." in page
    assert "<dt>Attempts</dt><dd>2" in page
