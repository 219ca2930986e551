"""The double of KFP's driver: what each task gets, and which of them run."""

import math
from functools import partial
from pathlib import Path
from typing import Any, Optional

import pytest
from fakes.kfp.answers import ROOT, RUN, Answers, compiled, drive
from fakes.kfp.conditions import holds
from fakes.kfp.ir import DriverError
from fakes.kfp.scope import State
from kfp import dsl

component = partial(dsl.component, base_image="python:3.11", install_kfp_package=False)


@component
def add(a: int, b: int = 2) -> int:
    return a + b


@component
def numbers(count: int) -> list[int]:
    return list(range(count))


@component
def say(what: str) -> str:
    return what


@component
def total(values: list[int]) -> int:
    return sum(values)


@component
def write(model: dsl.Output[dsl.Model]) -> None:
    pass


@component
def read(model: dsl.Input[dsl.Model]) -> str:
    return model.path


def test_tasks_get_parameters_constants_and_outputs_in_order(tmp_path: Path) -> None:
    @dsl.pipeline(name="chain")
    def chain(start: int = 1) -> int:
        late = add(a=start, b=5)
        return add(a=late.output, b=late.output).output

    answers = Answers({"add": lambda i: i["a"] + i["b"], "add-2": lambda i: i["a"] * i["b"]})
    ended = drive(compiled(chain, tmp_path), answers, start=3)
    assert answers.inputs("add") == [{"a": 3, "b": 5}]
    assert answers.inputs("add-2") == [{"a": 8, "b": 8}]
    assert (ended.state, ended.parameters) == (State.SUCCEEDED, {"Output": 64})


def test_defaults_of_a_component_are_the_launchers_and_those_of_a_nested_pipeline_are_not(
    tmp_path: Path,
) -> None:
    @dsl.pipeline(name="inner")
    def inner(a: int = 7, word: Optional[str] = None) -> None:  # noqa: UP045  # KFP reads it
        add(a=a)
        say(what=word)

    @dsl.pipeline(name="outer")
    def outer() -> None:
        inner()

    answers = Answers({"add": lambda _: 1})
    ended = drive(compiled(outer, tmp_path), answers)
    assert answers.inputs("add") == [{"a": 7}]
    # Null for an input that is not optional.
    assert ended.state is State.FAILED
    assert "null: what" in ended.why


def test_a_loop_gives_each_iteration_its_item_and_collects_in_their_order(tmp_path: Path) -> None:
    @dsl.pipeline(name="loop")
    def loop(count: int) -> None:
        with dsl.ParallelFor(numbers(count=count).output, parallelism=2) as item:
            one = add(a=item)
        total(values=dsl.Collected(one.output))

    answers = Answers({"numbers": lambda i: list(range(i["count"])), "add": lambda i: i["a"] * 10})
    ended = drive(compiled(loop, tmp_path), answers, count=4)
    assert ended.state is State.SUCCEEDED
    assert answers.inputs("total") == [{"values": [0, 10, 20, 30]}]


def test_collected_of_nested_loops_is_flat(tmp_path: Path) -> None:
    @dsl.pipeline(name="nested")
    def nested() -> None:
        with dsl.ParallelFor([1, 2]) as x, dsl.ParallelFor([10, 20]) as y:
            one = add(a=x, b=y)
        total(values=dsl.Collected(one.output))

    answers = Answers({"add": lambda i: i["a"] + i["b"]})
    assert drive(compiled(nested, tmp_path), answers).state is State.SUCCEEDED
    assert answers.inputs("total") == [{"values": [11, 21, 12, 22]}]


def test_an_empty_loop_fails_whoever_collects_it(tmp_path: Path) -> None:
    @dsl.pipeline(name="empty")
    def empty() -> None:
        with dsl.ParallelFor(numbers(count=0).output) as item:
            one = add(a=item)
        total(values=dsl.Collected(one.output))

    answers = Answers({"numbers": lambda _: []})
    ended = drive(compiled(empty, tmp_path), answers)
    assert [task.name for task in answers.tasks] == ["numbers"]
    assert ended.state is State.FAILED
    assert ended.why.startswith("driver of total: ")


def test_items_of_an_untyped_list_are_text_and_no_number(tmp_path: Path) -> None:
    @dsl.pipeline(name="untyped")
    def untyped(items: list) -> None:
        with dsl.ParallelFor(items) as item:
            say(what=item)
            add(a=item)

    answers = Answers({"say": lambda i: i["what"]})
    ended = drive(compiled(untyped, tmp_path), answers, items=[1, {"a": 2.0}])
    assert [i["what"] for i in answers.inputs("say")] == ["1", '{"a":2}']
    assert "'a' type mismatch: expect NUMBER_INTEGER, got string" in ended.why


def test_fields_of_items_are_taken_out_of_them(tmp_path: Path) -> None:
    @dsl.pipeline(name="fields")
    def fields() -> None:
        with dsl.ParallelFor([{"a": 1, "b": 2}, {"a": 3, "b": 4}]) as item:
            add(a=item.a, b=item.b)

    answers = Answers({"add": lambda _: 1})
    assert drive(compiled(fields, tmp_path), answers).state is State.SUCCEEDED
    assert sorted(i["b"] for i in answers.inputs("add")) == [2, 4]


def test_a_failed_iteration_fails_the_loop_after_the_others_have_run(tmp_path: Path) -> None:
    @dsl.pipeline(name="failing")
    def failing() -> None:
        with dsl.ParallelFor([1, 2, 3, 4], parallelism=1) as item:
            one = add(a=item)
        total(values=dsl.Collected(one.output))

    def answer(inputs: dict[str, Any]) -> int:
        if inputs["a"] == 2:
            raise RuntimeError("no twos")
        return 1

    answers = Answers({"add": answer})
    ended = drive(compiled(failing, tmp_path), answers)
    assert len(answers.inputs("add")) == 4
    assert answers.inputs("total") == []
    assert (ended.state, ended.why) == (State.FAILED, "add: no twos")


@pytest.mark.parametrize(("score", "ran"), [(0.5, "say-2"), (0.99, "say"), (1, "say")])
def test_a_condition_on_an_output_chooses_a_branch(tmp_path: Path, score: float, ran: str) -> None:
    @component
    def score_it() -> float:
        return 0.5

    @dsl.pipeline(name="gate")
    def gate(least: float = 0.98) -> None:
        found = score_it()
        with dsl.If(found.output >= least):
            say(what="good")
        with dsl.Else():
            say(what="bad")

    answers = Answers({"score-it": lambda _: score, "say": lambda _: "", "say-2": lambda _: ""})
    ended = drive(compiled(gate, tmp_path), answers)
    assert ended.state is State.SUCCEEDED
    assert [task.name for task in answers.tasks] == ["score-it", ran]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("inputs.parameter_values['n'] == 'x'", "no such overload: number and string"),
        ("inputs.parameter_values['n'] != -2 && !(inputs.parameter_values['b'] == true)", False),
        ("int(inputs.parameter_values['n']) == 3 || inputs.parameter_values['w'] == '!'", True),
        ("inputs.parameter_values['w'] == '&& !true'", True),
        ("inputs.parameter_values['gone'] == 1", "no such key: gone"),
        ("size(inputs.parameter_values['w']) > 1", "leaves out size"),
    ],
)
def test_conditions_are_read_as_cel_reads_them(condition: str, expected: Any) -> None:
    parameters = {"n": 3, "b": True, "w": "&& !true"}
    if isinstance(expected, bool):
        assert holds(condition, parameters) is expected
    else:
        with pytest.raises(DriverError, match=expected):
            holds(condition, parameters)


@pytest.mark.parametrize("fails", [True, False])
def test_the_exit_task_runs_whatever_became_of_the_others(tmp_path: Path, fails: bool) -> None:
    @component
    def clean(status: dsl.PipelineTaskFinalStatus) -> None:
        pass

    @dsl.pipeline(name="cleaned")
    def cleaned() -> None:
        with dsl.ExitHandler(clean()):
            say(what="x")

    def answer(_: dict[str, Any]) -> str:
        if fails:
            raise RuntimeError("broken")
        return ""

    answers = Answers({"say": answer})
    ended = drive(compiled(cleaned, tmp_path), answers)
    assert ended.state is (State.FAILED if fails else State.SUCCEEDED)
    (status,) = answers.inputs("clean")
    assert status["status"]["state"] == ended.state.value


def test_artifacts_have_a_place_of_their_own_in_each_execution(tmp_path: Path) -> None:
    @dsl.pipeline(name="artifacts")
    def artifacts() -> None:
        with dsl.ParallelFor([1, 2], parallelism=1) as _:
            made = write()
            read(model=made.outputs["model"])

    answers = Answers({"read": lambda _: ""})
    ended = drive(compiled(artifacts, tmp_path), answers)
    assert ended.state is State.SUCCEEDED
    read_ones = [task.given for task in answers.tasks if task.name == "read"]
    place = f"{ROOT}/artifacts/{RUN.id}/write"
    uris = [given["inputs"]["artifacts"]["model"]["artifacts"][0]["uri"] for given in read_ones]
    assert uris == [f"{place}/uuid-1/model", f"{place}/uuid-3/model"]
    assert "executor-logs" in read_ones[0]["outputs"]["artifacts"]
    assert (
        read_ones[0]["outputs"]["parameters"]["Output"]["outputFile"] == "/tmp/kfp/outputs/Output"
    )


def test_placeholders_count_only_where_they_are_all_of_a_constant(tmp_path: Path) -> None:
    @dsl.pipeline(name="placed")
    def placed() -> None:
        say(what=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
        say(what=f"run {dsl.PIPELINE_JOB_ID_PLACEHOLDER}")
        say(what=dsl.PIPELINE_JOB_NAME_PLACEHOLDER)

    answers = Answers({f"say{n}": lambda _: "" for n in ("", "-2", "-3")})
    drive(compiled(placed, tmp_path), answers)
    said = [answers.inputs(f"say{n}")[0]["what"] for n in ("", "-2", "-3")]
    assert said == [RUN.id, f"run {dsl.PIPELINE_JOB_ID_PLACEHOLDER}", ""]


def test_a_nan_fails_the_task_after_its_work(tmp_path: Path) -> None:
    @dsl.pipeline(name="nan")
    def nan() -> None:
        add(a=1)

    ended = drive(compiled(nan, tmp_path), Answers({"add": lambda _: math.nan}))
    assert (ended.state, ended.why) == (State.FAILED, "driver of add: nan is no JSON number")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"start": "1"}, "type mismatch"),
        ({"stat": 1}, "no parameter stat"),
        ({}, "needs parameter"),
    ],
)
def test_arguments_are_held_to_the_inputs(
    tmp_path: Path, arguments: dict[str, Any], why: str
) -> None:
    @dsl.pipeline(name="strict")
    def strict(start: int) -> None:
        add(a=start)

    with pytest.raises(DriverError, match=why):
        drive(compiled(strict, tmp_path), Answers({}), **arguments)
