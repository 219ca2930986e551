"""Report lines as the launcher will read them."""

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from kfp_jax_runtime import report
from kfp_jax_runtime.report import Reporter, number


class Sink:
    """Takes lines where a process writes to stdout."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def reports(self) -> list[dict[str, Any]]:
        return [json.loads(line.removeprefix(b"@kfp-jax ")) for line in self.lines]


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def reporter(sink: Sink, tmp_path: Path) -> Reporter:
    log = tmp_path / "termination-log"
    log.touch()
    return Reporter(0, 2, termination_log=log, write=sink.lines.append, clock=lambda: 12.0)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.5, 0.5),
        (3, 3),
        (True, 1),
        (np.float64(0.25), 0.25),
        (np.int64(3), 3),
        (np.array(2.5), 2.5),
        (np.bool_(True), 1),
        (jnp.float32(0.5), 0.5),
        (jnp.bfloat16(0.5), 0.5),
        (jnp.int32(7), 7),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_scalar_of_any_library_becomes_a_plain_number(value: object, expected: float) -> None:
    result = number("loss", value)
    assert result == expected
    assert type(result) in (int, float)
    assert isinstance(result, int) == isinstance(expected, int)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (np.ones(2), r"metric 'acc' is an array of shape \(2,\)"),
        (jnp.ones((1,)), r"metric 'acc' is an array of shape \(1,\)"),
        ("0.5", "metric 'acc' is the text '0.5'"),
        (None, "metric 'acc' is a NoneType"),
        (1j, "metric 'acc' is a complex"),
        ([1.0], "metric 'acc' is a list"),
    ],
)
def test_what_is_not_one_number_is_refused_by_name(
    reporter: Reporter, sink: Sink, value: object, says: str
) -> None:
    with pytest.raises(TypeError, match=says):
        reporter.metrics(3, {"loss": 1.0, "acc": value})
    assert sink.lines == []


def test_metrics_are_one_tagged_line(reporter: Reporter, sink: Sink) -> None:
    reporter.metrics(3, {"loss": 0.5, "n": 2})
    assert sink.lines == [
        b'@kfp-jax {"v":1,"kind":"metrics","time":12.0,"step":3,"values":{"loss":0.5,"n":2}}\n'
    ]


def test_values_that_json_lacks_survive_as_text(reporter: Reporter, sink: Sink) -> None:
    reporter.metrics(1, {"a": float("nan"), "b": np.inf, "c": jnp.float32(-np.inf)})
    assert sink.reports()[0]["values"] == {"a": "NaN", "b": "Infinity", "c": "-Infinity"}


@pytest.mark.parametrize("name", ["", "x" * 129])
def test_a_name_of_the_wrong_length_is_refused(reporter: Reporter, name: str) -> None:
    with pytest.raises(ValueError, match="must have 1 to 128"):
        reporter.metrics(1, {name: 1.0})


def test_a_line_longer_than_the_launcher_reads_is_refused(reporter: Reporter, sink: Sink) -> None:
    with pytest.raises(ValueError, match=r"report of kind 'metrics' has .* bytes"):
        reporter.metrics(1, {f"{i:0128}": 1.0 for i in range(2000)})
    assert sink.lines == []


def test_the_other_kinds(reporter: Reporter, sink: Sink) -> None:
    reporter.waiting()
    reporter.joined({"lr": 0.1})
    reporter.progress(3, 10, "step")
    reporter.restored(30, {"lr": 0.2})
    reporter.result({"accuracy": 0.5}, "model", {"jax": "1"})
    reporter.result({}, None, {})
    bare = [{k: v for k, v in r.items() if k not in ("v", "time")} for r in sink.reports()]
    assert bare == [
        {"kind": "waiting", "process": 0, "processes": 2},
        {"kind": "joined", "process": 0, "processes": 2, "parameters": {"lr": 0.1}},
        {"kind": "progress", "done": 3, "total": 10, "unit": "step"},
        {"kind": "restored", "step": 30, "saved_with": {"lr": 0.2}},
        {"kind": "result", "values": {"accuracy": 0.5}, "model": "model", "versions": {"jax": "1"}},
        {"kind": "result", "values": {}, "versions": {}},
    ]


def test_an_error_has_one_sentence_and_the_tail_of_its_traceback(
    reporter: Reporter, sink: Sink
) -> None:
    reporter.error("exception", "ValueError:\nbad\n" + "x" * 5000, "é" * 20_000 + "END", step=7)
    (error,) = sink.reports()
    assert (error["process"], error["reason"], error["step"]) == (0, "exception", 7)
    assert error["message"].startswith("ValueError: bad x")
    assert len(error["message"]) == 2000
    assert error["traceback"].endswith("éEND")
    assert len(error["traceback"].encode()) <= 16 * 1024


def test_the_termination_log_keeps_the_first_error_and_the_last_result(
    reporter: Reporter, tmp_path: Path
) -> None:
    log = tmp_path / "termination-log"
    reporter.result({"a": 1}, None, {})
    reporter.result({"a": 2}, None, {})
    assert json.loads(log.read_text())["values"] == {"a": 2}
    reporter.error("exception", "first")
    reporter.error("exit", "second")
    assert json.loads(log.read_text())["message"] == "first"


def test_of_several_processes_the_first_to_fail_has_the_termination_log(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    zero, one = (
        Reporter(process, 2, log, Sink().lines.append, clock=lambda: 12.0) for process in (0, 1)
    )
    one.error("exception", "the cause, " + "long " * 300, "a traceback\n" * 1000)
    zero.error("exception", "its victim")
    zero.result({"accuracy": 1.0}, None, {})
    assert json.loads(log.read_text())["message"].startswith("the cause")


def test_an_earlier_attempts_error_is_replaced(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    for time, message in ((12.0, "the first attempt's"), (13.0, "short")):
        reporter = Reporter(0, 1, log, Sink().lines.append, clock=lambda time=time: time)
        reporter.error("exception", message)
        assert json.loads(log.read_text())["message"] == message
    Reporter(0, 1, log, Sink().lines.append, clock=lambda: 14.0).result({"a": 1}, None, {})
    assert json.loads(log.read_text())["kind"] == "result"


@pytest.mark.parametrize("left", [b"", b"not JSON", b"[1]", b'{"kind": "error", "time": null}'])
def test_what_else_a_termination_log_holds_is_replaced(
    reporter: Reporter, tmp_path: Path, left: bytes
) -> None:
    (tmp_path / "termination-log").write_bytes(left)
    reporter.error("exception", "message")
    assert json.loads((tmp_path / "termination-log").read_text())["message"] == "message"


@pytest.mark.parametrize(
    "fields",
    [
        {"message": "short", "traceback": "line é\n" * 3000},
        {"message": "\x00" * 2000, "traceback": "\x00" * 16_000},
        {"values": {f"metric-{i}": 0.1 for i in range(3000)}, "versions": {"jax": "1"}},
        {"values": {f"{i:0128}": 0.1 for i in range(3000)}},
    ],
)
def test_a_termination_message_fits_and_is_still_json(fields: dict[str, Any]) -> None:
    message = report.termination_message({"v": 1, "kind": "error", **fields})
    assert len(message) <= 4096
    assert json.loads(message)["v"] == 1


def test_a_termination_log_is_used_only_where_it_can_be(tmp_path: Path) -> None:
    log = tmp_path / "log"
    environ = {"KFP_JAX_TERMINATION_LOG": str(log)}
    assert report.termination_log(environ) is None
    log.touch()
    assert report.termination_log(environ) == log


def test_a_lost_termination_log_does_not_lose_the_report(
    sink: Sink, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Reporter(0, 1, tmp_path, sink.lines.append).error("exit", "message")
    assert sink.reports()[0]["message"] == "message"
    assert f"cannot write {tmp_path}" in capsys.readouterr().err


def test_a_long_line_is_written_whole_after_what_was_printed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    print("before")
    report.write_stdout(b"x" * 60_000 + b"\n")
    assert capfd.readouterr().out == "before\n" + "x" * 60_000 + "\n"


def test_versions_name_what_is_installed() -> None:
    assert set(report.installed_versions()) >= {"python", "jax", "jaxlib"}
