import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kfp_jax.reports import (
    MAX_LINE_BYTES,
    TAG,
    Kind,
    Malformed,
    Report,
    json_number,
    parse_line,
)


def line(**fields: object) -> str:
    return TAG + json.dumps({"v": 1, "kind": "metrics", "time": 1.5, "step": 3, **fields})


def test_metrics() -> None:
    report = parse_line(line(values={"loss": 0.5}))
    assert report == Report(Kind.METRICS, 1.5, 3, {"loss": 0.5})


def test_what_is_not_finite_survives() -> None:
    values = {"a": "NaN", "b": "Infinity", "c": "-Infinity"}
    report = parse_line(line(values=values))
    assert isinstance(report, Report)
    assert math.isnan(report.values["a"])
    assert (report.values["b"], report.values["c"]) == (math.inf, -math.inf)
    assert {name: json_number(value) for name, value in report.values.items()} == values


@pytest.mark.parametrize(
    "text",
    [
        "",
        "loss=nan",
        "val loss=2",
        "42",
        '{"kind":"Pod"}',
        "[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of ... is : 1",
        "Epoch 0 in 1809.25 sec",
        "@kfp-jaxx {}",
    ],
)
def test_foreign_lines_are_no_reports(text: str) -> None:
    assert parse_line(text) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (TAG, "not JSON"),
        (line()[:-1], "not JSON"),
        (TAG + '{"v":1,"kind":"met', "not JSON"),
        (TAG + "[" * 100_000, "nested too deeply"),
        (TAG + "[1]", "not a JSON object"),
        (line(v=2), "version 2"),
        (line(kind="gossip"), "gossip"),
        (line(step=-1), "step is -1"),
        (line(step=1.5), "step is 1.5"),
        (line(step=True), "step is True"),
        (line(step=None), "step is None"),
        (line(values=[1]), "values is not an object"),
        (line(values={"loss": "low"}), "loss is 'low'"),
        (line(values={"loss": None}), "loss is None"),
        (line(values={"loss": True}), "loss is True"),
        (line(values={"": 1}), "0 characters"),
        (line(values={"n" * 129: 1}), "129 characters"),
        (line(time="now"), "time is 'now'"),
        (line(values={"big": 10**400}), "too large"),
        (TAG + " " * (MAX_LINE_BYTES + 1), "longer than"),
    ],
)
def test_malformed_lines_are_named_by_number(text: str, problem: str) -> None:
    report = parse_line(text, 17)
    assert isinstance(report, Malformed)
    assert report.line == 17
    assert problem in report.problem


def test_text_of_another_writer_around_a_report() -> None:
    report = parse_line(" 50%|####" + line(values={"loss": 1}) + "warning: slow")
    assert isinstance(report, Report)
    assert report.values == {"loss": 1.0}


def test_two_reports_on_one_line_give_the_first() -> None:
    assert parse_line(line(step=1) + line(step=2)) == parse_line(line(step=1))


def test_a_line_of_megabytes_without_a_tag_is_foreign() -> None:
    assert parse_line("x" * 5_000_000) is None


@given(st.text())
def test_no_text_raises(text: str) -> None:
    parse_line(text)


@given(st.text())
def test_nothing_behind_the_tag_raises(text: str) -> None:
    assert parse_line(TAG + text) is not None


@given(
    st.integers(0, 10**12),
    st.dictionaries(st.text(min_size=1, max_size=20), st.floats(), max_size=5),
)
def test_what_was_written_is_read(step: int, values: dict[str, float]) -> None:
    written = {name: json_number(value) for name, value in values.items()}
    report = parse_line(line(step=step, values=written))
    assert isinstance(report, Report)
    assert report.step == step
    assert {name: json_number(value) for name, value in report.values.items()} == written


@given(st.integers(0, 200), st.text(alphabet='ab{}"', max_size=20))
def test_a_report_cut_anywhere_is_malformed_or_foreign(cut: int, noise: str) -> None:
    text = line(values={"loss": 0.25})
    got = parse_line(text[: min(cut, len(text) - 1)])
    assert not isinstance(got, Report)
    assert isinstance(parse_line(noise + text), Report)
