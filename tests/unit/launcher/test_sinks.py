"""What a person reads of a running job, and what another process replays."""

import io
from pathlib import Path

import pytest
from kfp_jax.backends.base import LogLine
from kfp_jax.reports import Kind, Report
from kfp_jax.sinks import EventFileSink, PlainSink, TaskError, replay
from kfp_jax.status import JobStatus, Phase


def lines_of(*reports: Report) -> list[str]:
    stream = io.StringIO()
    sink = PlainSink(stream, prefix="train: ")
    for report in reports:
        sink.report(0, report)
    return stream.getvalue().splitlines()


def progress(time: float, done: int) -> Report:
    return Report(Kind.PROGRESS, 1000 + time, fields={"done": done, "total": 100, "unit": "step"})


def test_progress_comes_every_few_seconds_with_the_time_left() -> None:
    reports = [progress(time, done=10 * time) for time in range(8)]
    assert lines_of(*reports) == [
        "train: step 10 of 100 (10%), 9 s left",
        "train: step 60 of 100 (60%), 4 s left",
    ]


def test_the_time_left_is_estimated_anew_when_training_goes_back_to_a_checkpoint() -> None:
    reports = [progress(0, 0), progress(10, 50), progress(20, 40), progress(40, 60)]
    assert lines_of(*reports)[-1] == "train: step 60 of 100 (60%), 40 s left"


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (
            Report(Kind.METRICS, 0, 5, {"loss": 0.123456, "epoch": 2.0}),
            "step 5: loss=0.1235  epoch=2",
        ),
        (Report(Kind.RESULT, 0, None, {"accuracy": 0.5}), "result: accuracy=0.5"),
        (Report(Kind.RESTORED, 0, 7), "going on from the checkpoint of step 7"),
        (
            Report(Kind.RESTORED, 0, 7, fields={"saved_with": {"lr": 0.1, "seed": 3}}),
            "going on from the checkpoint of step 7, saved with lr=0.1, seed=3",
        ),
        (
            Report(Kind.RESTORED, 0, 7, fields={"saved_with": "not a mapping"}),
            "going on from the checkpoint of step 7",
        ),
    ],
    ids=["metrics", "result", "restored", "restored-with-others", "restored-foreign"],
)
def test_a_report_is_shown_as_one_line(report: Report, line: str) -> None:
    assert lines_of(report) == [f"train: {line}"]


def test_replayed_events_show_what_the_job_showed(tmp_path: Path) -> None:
    direct, replayed = io.StringIO(), io.StringIO()
    events = EventFileSink(tmp_path / "events", "train")
    for sink in (events, PlainSink(direct)):
        sink.status("mnist", JobStatus(Phase.RUNNING, restarts=1))
        sink.report(0, Report(Kind.METRICS, 1.5, 5, {"loss": float("nan")}))
        sink.log(LogLine(0, 1, "in the logs only"))
        sink.note("a sentence")
    events.error("it ended", 124)
    named: list[str] = []

    def sink_of(task: str) -> PlainSink:
        named.append(task)
        return PlainSink(replayed)

    ends = [replay(line, sink_of) for line in (tmp_path / "events").read_text().splitlines()]
    assert ends == [None, None, None, TaskError("it ended", 124)]
    assert set(named) == {"train"}
    assert replayed.getvalue() == direct.getvalue().replace("[0] in the logs only\n", "")


@pytest.mark.parametrize("line", ["", "null", "{}", '{"task": "a", "event": "report"}', "[1"])
def test_a_line_that_is_no_event_is_passed_over(line: str) -> None:
    assert replay(line, lambda _: PlainSink(io.StringIO())) is None
