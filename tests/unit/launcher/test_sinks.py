"""What a person reads of a running job, and what another process replays."""

import io
import threading
from pathlib import Path
from typing import cast

import pytest
from kfp_jax.backends.base import LogLine
from kfp_jax.reports import Kind, Report
from kfp_jax.sinks import EventFileSink, NullSink, PlainSink, TaskError, replay
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


class Raising(NullSink):
    def note(self, text: str) -> None:
        raise ValueError(text)


def test_trouble_of_the_sink_is_not_taken_for_a_line_that_is_no_event() -> None:
    with pytest.raises(ValueError, match="no place"):
        replay('{"task": "a", "event": "note", "text": "no place"}', lambda _: Raising())


def wait_for_timers() -> None:
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join()


def test_a_line_is_seen_soon_also_when_none_follows() -> None:
    seen = io.BytesIO()
    sink = PlainSink(io.TextIOWrapper(io.BufferedWriter(cast(io.RawIOBase, seen)), "utf-8"))
    for text in ("one\n", "one\n[0] two\n"):
        sink.log(LogLine(0, 1, text.split()[-1]))
        wait_for_timers()
        assert seen.getvalue() == f"[0] {text}".encode()


def test_a_stream_may_be_closed_before_its_last_line_was_flushed() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    PlainSink(stream).log(LogLine(0, 1, "bye"))
    stream.close()
    wait_for_timers()


@pytest.mark.parametrize(
    ("encoding", "written"),
    [
        ("ascii", rb"\xe9 \u20ac \x81 \ud800"),
        ("latin-1", b"\xe9 \\u20ac \x81 \\ud800"),
        ("cp1252", b"\xe9 \x80 \\x81 \\ud800"),
        ("utf-8", "\xe9 \u20ac \x81 \\ud800".encode()),
    ],
)
def test_what_a_stream_cannot_hold_is_written_escaped(encoding: str, written: bytes) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    PlainSink(stream).log(LogLine(0, 1, "\xe9 \u20ac \x81 \ud800"))
    stream.seek(0)  # flushes
    assert stream.buffer.read() == b"[0] " + written + b"\n"


@pytest.mark.parametrize(
    "line",
    ["", "null", "{}", '{"task": "a", "event": "report"}', '{"task": "a", "event": "?"}', "[1"],
)
def test_a_line_that_is_no_event_is_passed_over(line: str) -> None:
    assert replay(line, lambda _: PlainSink(io.StringIO())) is None


def test_what_holds_a_job_up_is_written_beside_its_phase() -> None:
    stream = io.StringIO()
    sink = PlainSink(stream)
    sink.status("j", JobStatus(Phase.QUEUED, "Suspended", "queue q has not admitted it"))
    sink.status("j", JobStatus(Phase.STARTING, restarts=1))
    assert stream.getvalue().splitlines() == [
        "j: QUEUED: queue q has not admitted it",
        "j: STARTING (restart 1)",
    ]


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_stream_that_takes_no_more_does_not_end_the_job() -> None:
    sink = PlainSink(Full())
    assert sink.failure is None
    sink.log(LogLine(0, 1, "text"))
    sink.status("mnist", JobStatus(Phase.RUNNING))
    sink.note("a sentence")
    assert sink.failure
    assert sink.failure.errno == 28
