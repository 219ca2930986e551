"""The trials of a sweep as JSON lines and as CSV."""

import csv
import io
import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest
from fakes.sweeps import mnist_trials
from kfp_jax.errors import SpecError
from kfp_jax.sweep.table import read_trials, to_csv, to_json_lines
from kfp_jax.sweep.trial import Trial, TrialState

FULL = Trial(
    3,
    {"learning_rate": 0.001, "widths": [8, 16], "optimizer": "adam", "nested": {"a": None}},
    TrialState.FAILED,
    0.5,
    ((1, 0.25), (2, 0.5)),
    started=1.5,
    seconds=4.0,
    reason="out-of-memory",
    message="Job t-3 failed: its memory ran out.",
    job="t-3",
    output_uri="/output/3",
    model_uri="/output/3/model",
)


def rows(*trials: Trial) -> list[list[str]]:
    return list(csv.reader(io.StringIO(to_csv(trials))))


def cells(trial: Trial) -> dict[str, str]:
    header, row = rows(trial)
    return dict(zip(header, row, strict=True))


@pytest.mark.parametrize(
    "trials",
    [
        [],
        [FULL],
        mnist_trials(40),
        mnist_trials(5, jobs=False),
        [replace(FULL, message="two\nlines, \u2028 separators \u0085 and \x1c, \ud800")],
        [Trial(0, {}), Trial(10**12, {"x": -0.0, "y": 10**40, "é": "é"})],
    ],
    ids=["none", "full", "many", "loop", "odd-text", "odd-numbers"],
)
def test_json_lines_are_read_back_as_they_were(trials: list[Trial]) -> None:
    text = to_json_lines(trials)
    assert text.isascii()
    assert text.count("\n") == len(trials)
    assert read_trials(text) == trials


def test_blank_lines_a_byte_order_mark_and_carriage_returns_are_no_trouble() -> None:
    text = "\ufeff\n" + to_json_lines([FULL]).replace("\n", "\r\n") + "  \n"
    assert read_trials(text) == [FULL]


def test_what_a_person_types_needs_no_more_than_number_and_parameters() -> None:
    typed = '{"number": 0, "parameters": {"x": 1}, "state": "COMPLETE", "score": 1}'
    assert read_trials(typed) == [Trial(0, {"x": 1}, TrialState.COMPLETE, 1)]


GOOD = '{"number": 0, "parameters": {}}'


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("number,state,score", "is not JSON; give the table of JSON lines, not the CSV"),
        ('{"number": 1, "parameters": {"x"', "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "'[]' is no trial; give one JSON object a line"),
        ("{}", "There is no 'number'; a trial has a number and parameters"),
        ('{"number": 1}', "There is no 'parameters'"),
        (GOOD, "Trial 0 is in the table twice"),
        ('{"number": 1, "parameters": {}, "loss": 1}', "Unknown key 'loss' in the trial"),
        ('{"number": 1, "parameters": {"x": NaN}}', "is not JSON"),
        ('{"number": 1, "parameters": {"x": 1e999}}', "'parameters' cannot be written as JSON"),
        ({"number": "1"}, "'number' is '1'; it should be a whole number from 0"),
        ({"number": -1}, "'number' is -1"),
        ({"number": True}, "'number' is True"),
        ({"parameters": []}, "'parameters' is []; it should be an object of names and values"),
        ({"state": "DONE"}, "'state' is 'DONE'; it should be one of RUNNING, COMPLETE, PRUNED"),
        ({"state": []}, "'state' is []"),
        ({"score": "0.5"}, "'score' is '0.5'; it should be a finite number or null"),
        ({"score": 10**400}, "'score' is 1000"),
        ({"curve": {}}, "'curve' is {}; it should be a list of [step, value]"),
        ({"curve": [[1]]}, "'curve' is [[1]]"),
        ({"curve": [[2, 0.1], [1, 0.1]]}, "the steps rising"),
        ({"curve": [[1.5, 0.1]]}, "'curve' is [[1.5, 0.1]]"),
        ({"seconds": -1}, "'seconds' is -1; it should be a number of seconds"),
        ({"started": None}, "'started' is None"),
        ({"job": 5}, "'job' is 5; it should be text"),
    ],
)
def test_what_is_no_trial_is_refused_by_its_line(line: str | dict[str, Any], wrong: str) -> None:
    text = line if isinstance(line, str) else json.dumps({"number": 1, "parameters": {}} | line)
    with pytest.raises(SpecError, match=re.escape(wrong)) as caught:
        read_trials(f"{GOOD}\n\n{text}\n")
    assert str(caught.value).startswith("Line 3 of the trials table: ")
    assert len(str(caught.value)) < 300


def test_a_value_that_json_cannot_hold_is_never_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        to_json_lines([replace(FULL, score=math.nan)])


def test_a_row_of_the_csv_holds_what_a_spreadsheet_needs() -> None:
    assert cells(FULL) == {
        "number": "3",
        "state": "FAILED",
        "score": "0.5",
        "learning_rate": "0.001",
        "widths": "[8, 16]",
        "optimizer": "adam",
        "nested": '{"a": null}',
        "seconds": "4.0",
        "started": "1.5",
        "reason": "out-of-memory",
        "message": "Job t-3 failed: its memory ran out.",
        "job": "t-3",
        "model_uri": "/output/3/model",
    }


def test_the_csv_has_a_column_for_each_parameter_in_the_order_of_their_first_appearance() -> None:
    header, first, second = rows(Trial(0, {"b": 1, "a": True}), Trial(1, {"c": "x", "a": None}))
    assert header[:6] == ["number", "state", "score", "b", "a", "c"]
    assert first[:6] == ["0", "RUNNING", "", "1", "true", ""]
    assert second[:6] == ["1", "RUNNING", "", "", "null", "x"]


def test_a_parameter_named_as_another_column_has_one_of_its_own() -> None:
    header, row = rows(Trial(0, {"score": 5, "parameters.score": 6}, TrialState.COMPLETE, 0.5))
    assert len(set(header)) == len(header)
    assert dict(zip(header, row, strict=True))["parameters.score"] == "5"


@pytest.mark.parametrize("start", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\n=1", "＝1"])  # noqa: RUF001
def test_text_that_a_spreadsheet_would_run_is_made_harmless(start: str) -> None:
    hostile = Trial(0, {start: start}, message=start, reason=start, job=start, model_uri=start)
    header, row = rows(hostile)
    assert [cell for cell in [*header, *row] if start in cell] == [f"'{start}"] * 6


def test_negative_numbers_stay_numbers() -> None:
    trial = Trial(0, {"x": -1.5}, TrialState.COMPLETE, -0.25)
    assert cells(trial)["x"] == "-1.5"
    assert cells(trial)["score"] == "-0.25"


def test_odd_text_survives_the_csv() -> None:
    text = 'a "quote", a comma,\na line \u2028'
    assert cells(replace(FULL, message=text))["message"] == text
    assert cells(replace(FULL, message="\ra\r\nb"))["message"] == "'\na\nb"
    to_csv([replace(FULL, message="\ud800")]).encode()


def test_null_is_a_value_and_an_entry_that_is_not_in_use_an_empty_cell() -> None:
    trials = [Trial(0, {"a": None, "b": 1}), Trial(1, {"a": 2})]
    rows = list(csv.DictReader(io.StringIO(to_csv(trials))))
    assert [(row["a"], row["b"]) for row in rows] == [("null", "1"), ("2", "")]
