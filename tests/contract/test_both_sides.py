"""The launcher and the training node write down the same contract, each on its side."""

import math
from pathlib import Path

import kfp_jax.reports
import kfp_jax_runtime.report
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kfp_jax import diagnosis, status
from kfp_jax.backends.base import JobRef
from kfp_jax.backends.local import LocalBackend
from kfp_jax.reports import Kind, Report, parse_line
from kfp_jax.spec import TrainSpec
from kfp_jax_runtime import bootstrap, exits, node
from kfp_jax_runtime.errors import BadInput, Diverged, Stopped
from kfp_jax_runtime.report import Reporter


class Written:
    """A reporter whose lines are kept."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.reporter = Reporter(1, 2, write=self.lines.append, clock=lambda: 7.25)

    def read(self) -> Report:
        (line,) = self.lines
        report = parse_line(line.decode().removesuffix("\n"))
        assert isinstance(report, Report), report
        return report


@pytest.fixture
def written() -> Written:
    return Written()


def test_the_tag_version_and_limits_are_the_same() -> None:
    assert kfp_jax.reports.TAG.encode() == kfp_jax_runtime.report.TAG
    assert kfp_jax.reports.VERSION == kfp_jax_runtime.report.VERSION
    assert kfp_jax.reports.MAX_LINE_BYTES == kfp_jax_runtime.report.MAX_LINE_BYTES
    assert kfp_jax.reports.MAX_NAME == kfp_jax_runtime.report.MAX_NAME_CHARACTERS


def test_exit_codes_are_the_same() -> None:
    assert status.EXIT_BAD_INPUT == exits.BAD_INPUT
    assert status.EXIT_DIVERGED == exits.DIVERGED
    assert status.EXIT_STOPPED == exits.STOPPED


@given(
    st.integers(0, 2**53),
    st.dictionaries(
        st.text(min_size=1, max_size=128), st.floats() | st.integers(-9, 9), max_size=4
    ),
)
def test_metrics_are_read_as_written(step: int, values: dict[str, float]) -> None:
    written = Written()
    written.reporter.metrics(step, values)
    report = written.read()
    assert (report.kind, report.step, report.time) == (Kind.METRICS, step, 7.25)
    assert report.values.keys() == values.keys()
    for name, value in values.items():
        assert report.values[name] == value or (
            math.isnan(value) and math.isnan(report.values[name])
        )


def test_numpy_scalars_are_read(written: Written) -> None:
    written.reporter.metrics(3, {"a": np.float32(0.5), "b": np.int64(3)})
    assert written.read() == Report(Kind.METRICS, 7.25, 3, {"a": 0.5, "b": 3.0})


def test_progress(written: Written) -> None:
    written.reporter.progress(3, 10, "step")
    assert written.read().fields == {"done": 3, "total": 10, "unit": "step"}


def test_waiting(written: Written) -> None:
    written.reporter.waiting()
    report = written.read()
    assert (report.kind, report.fields) == (Kind.WAITING, {"process": 1, "processes": 2})


def test_process_0_joins_with_the_parameters() -> None:
    for process, parameters in ((0, {"lr": 0.1}), (1, {})):
        lines: list[bytes] = []
        Reporter(process, 2, write=lines.append, clock=lambda: 7.25).joined({"lr": 0.1})
        report = parse_line(lines[0].decode())
        assert isinstance(report, Report)
        assert report.kind is Kind.JOINED
        fields = {"process": process, "processes": 2, "parameters": parameters}
        assert report.fields == fields


def test_restored(written: Written) -> None:
    written.reporter.restored(30, {})
    assert (written.read().kind, written.read().step) == (Kind.RESTORED, 30)


def test_result(written: Written) -> None:
    written.reporter.result({"accuracy": 0.5}, "model", {"jax": "1"})
    assert written.read() == Report(
        Kind.RESULT, 7.25, None, {"accuracy": 0.5}, {"model": "model", "versions": {"jax": "1"}}
    )


@given(st.text(), st.text(), st.none() | st.integers(0, 10**6))
def test_errors(message: str, traceback: str, step: int | None) -> None:
    written = Written()
    written.reporter.error("exception", message, traceback, step)
    report = written.read()
    assert (report.kind, report.step, report.fields["process"]) == (Kind.ERROR, step, 1)
    assert "\n" not in report.fields["message"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BadInput("no such field"), "bad-input"),
        (Diverged(7, math.nan), "diverged"),
        (Stopped(7), "preempted"),
        (ValueError("no such luck"), "exception"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_an_end_as_the_node_tells_it_gets_its_reason(
    written: Written, error: Exception, reason: str
) -> None:
    end = exits.ending(error)
    written.reporter.error(end.reason, end.message, end.traceback, end.step)
    report = written.read()
    failed = status.ProcessStatus(1, alive=False, exit_code=end.code, failed_at=1.0)
    found = diagnosis.diagnose(diagnosis.Facts("j", [failed], errors={1: report}))
    assert found.reason == reason
    # Of a job "stopped" is no reason: who asked for it decides whether it was preempted.
    assert report.fields["reason"] in (reason, "stopped")
    assert found.root == 1
    if not isinstance(error, Stopped):
        assert end.message in found.sentence


def test_reasons_of_processes_are_spelled_like_those_of_jobs() -> None:
    ends = (BadInput(), Diverged(1, math.inf), Stopped(1), ValueError(), SystemExit(3))
    reasons = {exits.ending(error).reason for error in ends}
    assert reasons - {"stopped"} <= {rule.reason for rule in diagnosis.RULES}


def test_a_node_understands_the_environment_of_the_local_backend(tmp_path: Path) -> None:
    spec = TrainSpec(
        name="c",
        program="m",
        output_uri=str(tmp_path / "out"),
        dataset_uri=str(tmp_path),
        shared_uri=str(tmp_path / "all"),
        parameters={"a": [1, "b"]},
        num_nodes=2,
    )
    rendered = LocalBackend().render(spec, JobRef("local", "c-12345678-1"))
    here = node.from_environment(rendered[1]["env"])
    assert here == node.Node(
        process_index=1,
        process_count=2,
        coordinator="127.0.0.1:0",
        bind_address="127.0.0.1:0",
        job="c-12345678-1",
        attempt=1,
        parameters={"a": [1, "b"]},
        output_dir=tmp_path / "out",
        checkpoint_uri=str(tmp_path / "out" / "checkpoints"),
        dataset_dir=tmp_path,
        shared_dir=tmp_path / "all",
    )
    assert rendered[1]["argv"][1:3] == ["-m", bootstrap.__name__]
