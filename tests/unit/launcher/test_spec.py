import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kfp_jax.checks import whole
from kfp_jax.errors import SpecError
from kfp_jax.spec import RESERVED_ENV, Limits, TrainSpec, parameters_json

GOOD = {"name": "mnist", "program": "pkg.train:main", "output_uri": "out"}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 300}, "of 300 characters"),
        ({"name": "a\nb"}, "name"),
        ({"program": ""}, "give exactly one"),
        ({"command": ("true",)}, "give exactly one"),
        ({"program": "not a module"}, "module:function"),
        ({"program": "pkg:"}, "module:function"),
        ({"program": "pkg.train:main()"}, "module:function"),
        ({"program": "", "command": ("a\0b",)}, "NUL"),
        ({"output_uri": ""}, "output_uri"),
        ({"num_nodes": 0}, "num_nodes is 0"),
        ({"num_nodes": -1}, "num_nodes is -1"),
        ({"num_nodes": 10**6}, "num_nodes is 1000000"),
        ({"num_nodes": 2.5}, "num_nodes is 2.5"),
        ({"num_nodes": True}, "num_nodes is True"),
        ({"num_nodes": "two"}, "num_nodes is 'two'"),
        ({"max_restarts": -1}, "max_restarts is -1"),
        ({"parameters": {"text": "x" * 200_000}}, "at most 65,536"),
        ({"parameters": {"lr": float("nan")}}, "lr is nan"),
        ({"parameters": {"a": {1, 2}}}, "cannot be written as JSON"),
        ({"parameters": [1]}, "JSON object"),
        ({"parameters": {1: 2}}, "is not a string"),
        ({"env": {"JAX_PROCESS_ID": "0"}}, "JAX_PROCESS_ID"),
        ({"env": {"KFP_JAX_JOB": "x"}}, "KFP_JAX_JOB"),
        ({"env": {"BAD NAME": "x"}}, "BAD NAME"),
        ({"env": {"N": None}}, "None"),
        ({"env": {"N": "a\0b"}}, "without NUL"),
        ({"program": "", "command": ("train", ["--lr"])}, "--lr"),
    ],
)
def test_bad_input_is_refused_by_name(change: dict[str, object], named: str) -> None:
    with pytest.raises(SpecError) as caught:
        TrainSpec(**{**GOOD, **change})  # type: ignore[arg-type]
    sentence = str(caught.value)
    assert named in sentence
    assert "\n" not in sentence
    assert len(sentence) < 400


def test_arguments_and_variables_become_text() -> None:
    spec = TrainSpec(
        name="t",
        output_uri="out",
        command=("--epochs", 3, "--steps", 2592000, "--lr", 1e-05, "--amp", True),  # type: ignore[arg-type]
        env={"N": 14},  # type: ignore[dict-item]
    )
    assert spec.command == (
        "--epochs", "3", "--steps", "2592000", "--lr", "1e-05", "--amp", "true",
    )  # fmt: skip
    assert spec.env == {"N": "14"}


def test_every_reserved_name_is_listed_when_one_is_set() -> None:
    with pytest.raises(SpecError) as caught:
        TrainSpec(**GOOD, env={"JAX_NUM_PROCESSES": "3"})
    assert all(name in str(caught.value) for name in RESERVED_ENV)


@pytest.mark.parametrize(("given_", "meant"), [(2, 2), (2.0, 2), ("2", 2), (" 3 ", 3)])
def test_whole_numbers_in_the_forms_kfp_sends(given_: object, meant: int) -> None:
    assert TrainSpec(**GOOD, num_nodes=given_).num_nodes == meant  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-1, True, "5", float("nan")])
def test_limits_are_seconds(value: object) -> None:
    with pytest.raises(SpecError, match="Limit stall"):
        Limits(stall=value)  # type: ignore[arg-type]


def test_json_both_ways() -> None:
    spec = TrainSpec(
        **GOOD, parameters={"lr": 0.1}, num_nodes=2, env={"A": "b"}, limits=Limits(stall=5.0)
    )
    again = TrainSpec.from_json(json.loads(json.dumps(spec.to_json())))
    assert again == spec
    assert again.hash() == spec.hash()


def test_unknown_keys_are_named_with_the_valid_ones() -> None:
    with pytest.raises(SpecError, match=r"'nodes'.*num_nodes"):
        TrainSpec.from_json({**GOOD, "nodes": 2})


def test_a_changed_parameter_changes_the_hash() -> None:
    one, two = (TrainSpec(**GOOD, parameters={"seed": seed}) for seed in (1, 2))
    assert one.hash() != two.hash()


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=10), JSON_VALUES, max_size=5))
def test_any_json_object_survives(parameters: dict[str, object]) -> None:
    assert json.loads(parameters_json(parameters)) == parameters


@given(st.integers(-100, 100), st.integers(-100, 100), st.integers(-100, 100))
def test_whole_keeps_what_lies_between(value: int, low: int, high: int) -> None:
    if low <= value <= high:
        assert whole("n", value, low, high) == value
    else:
        with pytest.raises(SpecError, match="n is"):
            whole("n", value, low, high)
