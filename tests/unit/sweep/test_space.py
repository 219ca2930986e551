import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kfp_jax.errors import SpecError
from kfp_jax.sweep import Space, choice, integer, loginteger, loguniform, uniform

TYPED = {
    "learning_rate": {"type": "loguniform", "low": 1e-4, "high": 1e-1},
    "batch": {"type": "int", "low": 32, "high": 128, "step": 32},
    "dropout": {"type": "uniform", "low": 0, "high": 0.5, "step": 0.1},
    "width": {"type": "logint", "low": 1, "high": 1024},
    "optimizer": {"type": "choice", "values": ["adam", "sgd"]},
    "momentum": {"type": "uniform", "low": 0, "high": 0.99, "when": {"optimizer": "sgd"}},
}


def grid(**entries: Any) -> list[dict[str, Any]]:
    return list(Space.from_json(entries).grid())


def values_of(**entry: Any) -> list[Any]:
    return [point["x"] for point in grid(x=entry)]


def test_the_helpers_give_what_a_person_would_type() -> None:
    assert {
        "learning_rate": loguniform(1e-4, 1e-1),
        "batch": integer(32, 128, 32),
        "dropout": uniform(0, 0.5, 0.1),
        "width": loginteger(1, 1024),
        "optimizer": choice("adam", "sgd"),
        "momentum": uniform(0, 0.99, when={"optimizer": "sgd"}),
    } == TYPED


def test_a_space_survives_json() -> None:
    space = Space.from_json(TYPED)
    assert Space.from_json(json.loads(json.dumps(space.to_json()))) == space


def test_the_space_in_the_guide_is_one() -> None:
    guide = Path(__file__).parents[3] / "docs" / "search-space.md"
    text = guide.read_text().split("```json\n")[1].split("```")[0]
    assert set(Space.from_json(json.loads(text)).conditions) == {"momentum"}


def test_reading_a_space_loads_none_of_the_heavy_libraries() -> None:
    code = "import kfp_jax.sweep, sys; print([m for m in sys.modules if m in %r])"
    heavy = ("optuna", "numpy", "scipy", "cmaes")
    command = [sys.executable, "-c", code % (heavy,)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("entry", "values"),
    [
        pytest.param({"type": "uniform", "low": 0, "high": 0.3, "step": 0.1}, [0, 0.1, 0.2, 0.3]),
        pytest.param(
            {"type": "uniform", "low": 0, "high": "0.3", "step": "1e-1"}, [0, 0.1, 0.2, 0.3]
        ),
        pytest.param({"type": "int", "low": 1, "high": 50, "step": 10}, [1, 11, 21, 31, 41]),
        pytest.param({"type": "int", "low": 1.0, "high": "3"}, [1, 2, 3]),
        pytest.param({"type": "int", "low": -2, "high": 2, "step": 2.0}, [-2, 0, 2]),
        pytest.param({"type": "logint", "low": 1, "high": 4}, [1, 2, 3, 4]),
        pytest.param({"type": "uniform", "low": 0.5, "high": 0.5}, [0.5]),
        pytest.param({"type": "loguniform", "low": 1, "high": 1}, [1.0]),
        pytest.param({"type": "choice", "values": [None, True, 1, "1", [1], {"a": 1}]}, None),
    ],
    ids=str,
)
def test_a_range_has_exactly_its_values(entry: dict[str, Any], values: list[Any] | None) -> None:
    found = values_of(**entry)
    values = entry["values"] if values is None else values
    assert found == values
    kind = {"uniform": float, "loguniform": float, "int": int, "logint": int}.get(entry["type"])
    assert kind is None or all(type(value) is kind for value in found)
    assert [type(value) for value in found] == [type(value) for value in values] or kind


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({}, ["empty", "at least one"]),
        ({"a": {"type": "gauss", "low": 0}}, ["'a'", "gauss", "uniform", "logint", "choice"]),
        ({"a": 3}, ["'a'", "3", "uniform"]),
        ({"a": {"type": ["uniform"]}}, ["'a'", "uniform"]),
        ({"a": {"type": "uniform", "low": 0, "high": 1, "size": 3}}, ["'size'", "'a'", "step"]),
        ({"a": {"type": "uniform", "low": 0}}, ["'a'", "'high'"]),
        ({"a": {"type": "loguniform", "low": 0, "high": 1}}, ["'a'", "low is 0", "log"]),
        ({"a": {"type": "loguniform", "low": -1, "high": 1}}, ["'a'", "low is -1", "log"]),
        ({"a": {"type": "logint", "low": 0, "high": 8}}, ["'a'", "low is 0", "log"]),
        ({"a": {"type": "loguniform", "low": 1, "high": 2, "step": 1}}, ["'step'", "'a'"]),
        ({"a": {"type": "uniform", "low": 2, "high": 1}}, ["'a'", "low is 2", "low <= high"]),
        ({"a": {"type": "uniform", "low": 0, "high": 1, "step": 0}}, ["'a'", "step is 0"]),
        ({"a": {"type": "int", "low": 0, "high": 9, "step": -1}}, ["'a'", "step is -1"]),
        ({"a": {"type": "uniform", "low": 0, "high": float("nan")}}, ["'a'", "high is nan"]),
        ({"a": {"type": "uniform", "low": "-inf", "high": 1}}, ["'a'", "low is '-inf'"]),
        ({"a": {"type": "uniform", "low": True, "high": 2}}, ["'a'", "low is True"]),
        ({"a": {"type": "int", "low": 0, "high": 10**400}}, ["'a'", "high"]),
        ({"a": {"type": "int", "low": 0.5, "high": 2}}, ["'a'", "low is 0.5", "whole"]),
        ({"a": {"type": "uniform", "low": None, "high": 2}}, ["'a'", "low is None"]),
        ({"a": {"type": "uniform", "low": 0, "high": 1e300, "step": 1e-300}}, ["'a'", "step"]),
        ({"a": {"type": "choice", "values": []}}, ["'a'", "[]"]),
        ({"a": {"type": "choice", "values": "adam"}}, ["'a'", "'adam'", "list"]),
        ({"a": {"type": "choice", "values": [1, 2, 1.0]}}, ["'a'", "0 and 2", "once"]),
        ({"a": {"type": "choice", "values": [float("inf")]}}, ["'a'", "inf"]),
        ({"a": {"type": "choice", "values": [{1}]}}, ["'a'", "{1}"]),
        ({"": {"type": "int", "low": 0, "high": 1}}, ["''", "name"]),
        ({1: {"type": "int", "low": 0, "high": 1}}, ["names"]),
        ([1], ["search space", "[1]"]),
        ({"a": {"type": "choice", "values": ["x" * 70_000]}}, ["70,", "65,536"]),
        ({str(n): choice(1) for n in range(201)}, ["201", "200"]),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_bad_space_is_refused_by_the_entrys_name(entries: Any, words: list[str]) -> None:
    with pytest.raises(SpecError) as error:
        Space.from_json(entries)
    assert [word for word in words if word not in str(error.value)] == []
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ({"optimiser": "sgd"}, ["'b'", "'optimiser'", "no entry", "a, c, x"]),
        ({"b": 1}, ["'b'", "from b to b"]),
        ({"c": 2}, ["'b'", "from b to c to b"]),
        ({"a": "rmsprop"}, ["'b'", "'rmsprop'", '"sgd"']),
        ({"a": ["sgd", "rmsprop"]}, ["'b'", "rmsprop"]),
        ({"a": []}, ["'b'", "[]"]),
        ({"a": "sgd", "x": 1}, ["'b'", "one entry"]),
        ({}, ["'b'", "one entry"]),
        ("sgd", ["'b'", "'sgd'"]),
        ({"x": 0.5}, ["'b'", "'x'", "continuous"]),
    ],
    ids=str,
)
def test_a_condition_that_cannot_hold_is_refused(when: Any, words: list[str]) -> None:
    entries = {
        "a": choice("adam", "sgd"),
        "x": uniform(0, 1),
        "b": {"type": "int", "low": 0, "high": 1, "when": when},
        "c": choice(1, 2, when={"b": 1}),
    }
    with pytest.raises(SpecError) as error:
        Space.from_json(entries)
    assert [word for word in words if word not in str(error.value)] == []


def test_a_nested_condition_adds_points_only_where_it_holds() -> None:
    points = grid(
        optimizer=choice("adam", "sgd", "rmsprop"),
        momentum=uniform(0, 0.9, 0.9, when={"optimizer": ["sgd", "rmsprop"]}),
        nesterov=choice(False, True, when={"momentum": 0.9}),
        layers=integer(1, 2),
    )
    assert points[:2] == [
        {"optimizer": "adam", "layers": 1},
        {"optimizer": "sgd", "momentum": 0.0, "layers": 1},
    ]
    assert len(points) == (1 + 3 + 3) * 2
    assert {"optimizer": "sgd", "momentum": 0.9, "nesterov": True, "layers": 1} in points
    assert {"optimizer": "sgd", "momentum": 0.0, "layers": 1} in points


def test_the_order_of_the_entries_means_nothing_as_kfp_sorts_them() -> None:
    arrived = json.loads(json.dumps(TYPED, sort_keys=True))
    assert list(arrived) != list(TYPED)
    assert Space.from_json(arrived).text == Space.from_json(TYPED).text
    assert list(Space.from_json(TYPED).entries)[3:5] == ["optimizer", "momentum"]


def test_a_condition_can_name_a_value_that_is_a_list() -> None:
    points = grid(shape=choice([1, 2], [3]), depth=integer(1, 2, when={"shape": [1, 2]}))
    assert points == [
        {"shape": [1, 2], "depth": 1},
        {"shape": [1, 2], "depth": 2},
        {"shape": [3]},
    ]


def test_a_condition_on_a_value_survives_json_where_a_list_of_it_is_a_value_too() -> None:
    for wanted, points in ((1, 3), ([1], 3), ([1, 1], 3), ([[1], 1], 4), ([[1, 2]], 3)):
        entries = {"a": choice(1, [1]), "b": integer(1, 2, when={"a": wanted})}
        if wanted == [[1, 2]]:
            entries["a"] = choice(1, [1, 2])
        space = Space.from_json(entries)
        assert space.points() == points
        assert Space.from_json(json.loads(space.text)) == space


def test_one_and_true_are_different_values() -> None:
    points = grid(flag=choice(True, 1), extra=integer(1, 2, when={"flag": 1}))
    assert [len(point) for point in points] == [1, 2, 2]
    space = Space.from_json({"flag": choice(True, 1)})
    assert space.read({"flag": 1.0}) == {"flag": 1}
    assert space.read({"flag": 1.0})["flag"] is not True


def test_what_kfp_did_to_numbers_is_undone() -> None:
    space = Space.from_json(TYPED)
    back = space.read(
        {
            "learning_rate": "1e-3",
            "batch": 64.0,
            "dropout": 0,
            "width": "8",
            "optimizer": "sgd",
            "momentum": 0,
        }
    )
    assert json.dumps(back) == (
        '{"batch": 64, "dropout": 0.0, "learning_rate": 0.001, "optimizer": "sgd", '
        '"momentum": 0.0, "width": 8}'
    )


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"batch": 33}, "'batch'"),
        ({"batch": 160}, "'batch'"),
        ({"batch": True}, "'batch'"),
        ({"batch": None}, "'batch'"),
        ({"width": 2.5}, "'width'"),
        ({"dropout": 0.15}, "'dropout'"),
        ({"learning_rate": 1.0}, "'learning_rate'"),
        ({"optimizer": "lamb"}, "'optimizer'"),
        ({"optimizer": {1, 2}}, "'optimizer'"),
        ({"optimizer": "adam"}, "'momentum'"),
        ({"depth": 3}, "'depth'"),
    ],
    ids=str,
)
def test_parameters_outside_the_space_are_refused_by_name(changed: Any, word: str) -> None:
    good = {
        "learning_rate": 1e-3,
        "batch": 64,
        "dropout": 0.1,
        "width": 8,
        "optimizer": "sgd",
        "momentum": 0.5,
    }
    space = Space.from_json(TYPED)
    assert space.contains(good)
    assert not space.contains(good | changed)
    with pytest.raises(SpecError, match=word):
        space.read(good | changed)
    with pytest.raises(SpecError, match="'batch' is missing"):
        space.read({key: value for key, value in good.items() if key != "batch"})


def test_a_large_grid_costs_nothing_until_it_is_asked() -> None:
    space = Space.from_json({name: integer(1, 10**9) for name in "abcdef"})
    assert space.points() == 10**54
    assert list(itertools.islice(space.grid(), 2))[1] == {
        "a": 1,
        "b": 1,
        "c": 1,
        "d": 1,
        "e": 1,
        "f": 2,
    }
    assert space.point(10**54 - 1)["a"] == 10**9


def test_a_continuous_space_has_no_grid() -> None:
    space = Space.from_json(TYPED)
    assert space.points() is None
    with pytest.raises(SpecError, match=r"'learning_rate'.*step"):
        space.grid()


def finite_entries() -> st.SearchStrategy[dict[str, Any]]:
    small = st.integers(-5, 5)
    return st.one_of(
        st.builds(
            lambda low, n, step: integer(low, low + n, step),
            small,
            st.integers(0, 6),
            st.integers(1, 3),
        ),
        st.builds(
            lambda low, n, step: uniform(low / 10, (low + n) / 10, step / 10),
            small,
            st.integers(0, 6),
            st.integers(1, 3),
        ),
        st.builds(lambda low, n: loginteger(low, low + n), st.integers(1, 5), st.integers(0, 4)),
        st.lists(
            st.one_of(st.integers(0, 3), st.just([1]), st.text(max_size=2), st.booleans()),
            min_size=1,
            max_size=4,
            unique_by=json.dumps,
        ).map(lambda values: choice(*values)),
    )


@st.composite
def finite_spaces(draw: st.DrawFn) -> Space:
    entries: dict[str, Any] = {}
    conditional = draw(st.lists(st.booleans(), min_size=1, max_size=4))
    for position, depends in enumerate(conditional):
        entry = draw(finite_entries())
        if entries and depends:
            parent = draw(st.sampled_from(sorted(entries)))
            alone = {key: value for key, value in entries[parent].items() if key != "when"}
            values = values_of(**alone)
            wanted = draw(st.lists(st.sampled_from(values), min_size=1, unique_by=json.dumps))
            entry = {**entry, "when": {parent: wanted}}
        entries[str(position)] = entry
    return Space.from_json(entries)


@settings(max_examples=40)
@given(finite_spaces())
def test_the_grid_is_every_point_once_and_each_has_its_number(space: Space) -> None:
    assert Space.from_json(json.loads(space.text)) == space
    points = list(space.grid())
    assert len(points) == space.points()
    assert len({json.dumps(point) for point in points}) == len(points)
    for number, point in enumerate(points):
        assert space.contains(point)
        assert space.index(point) == number
        assert space.point(number) == point


@settings(max_examples=40)
@given(finite_spaces(), st.data())
def test_every_place_is_a_point(space: Space, data: st.DataObject) -> None:
    places = {name: data.draw(st.floats(0, 1)) for name in space.entries}
    assert space.contains(space.at(places))


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(0, 1),
)
def test_a_place_in_any_range_is_within_it(one: float, other: float, place: float) -> None:
    low, high = sorted((one, other))
    space = Space.from_json({"x": uniform(low, high)})
    value = space.at({"x": place})["x"]
    assert low <= value <= high
    assert low == high or 0 <= space.entries["x"].place(value) <= 1


def test_a_log_range_gives_each_order_of_magnitude_its_share() -> None:
    space = Space.from_json({"x": loguniform(1e-4, 1e-1), "n": loginteger(1, 1000)})
    points = [space.at({"x": place / 300, "n": place / 300}) for place in range(301)]
    assert sum(point["x"] < 0.999e-3 for point in points) == 100
    assert 80 < sum(point["n"] <= 10 for point in points) < 160
    assert {point["n"] for point in points} >= {1, 2, 3, 1000}
