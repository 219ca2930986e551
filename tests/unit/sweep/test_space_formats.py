from typing import Any, ClassVar

import pytest
from kfp_jax.errors import SpecError
from kfp_jax.sweep import (
    Space,
    choice,
    from_katib,
    from_ray,
    integer,
    loginteger,
    loguniform,
    uniform,
)


def katib(name: str, kind: str, **feasible: Any) -> dict[str, Any]:
    return {"name": name, "parameterType": kind, "feasibleSpace": feasible}


def test_katibs_forms_are_read() -> None:
    parameters = [
        katib("lr", "double", min="0.01", max="0.05"),
        katib("wd", "double", min="1e-5", max="1e-2", distribution="logUniform"),
        katib("dropout", "double", min="0", max="0.3", step="0.1", distribution="uniform"),
        katib("layers", "int", min="1", max="50", step="10"),
        katib("width", "int", min="8", max="512", distribution="logUniform"),
        katib("batch", "discrete", list=["32", "64", "0.5"]),
        katib("optimizer", "categorical", list=["sgd", "adam", "1"]),
    ]
    expected = Space.from_json(
        {
            "lr": uniform(0.01, 0.05),
            "wd": loguniform(1e-5, 1e-2),
            "dropout": uniform(0, 0.3, 0.1),
            "layers": integer(1, 50, 10),
            "width": loginteger(8, 512),
            "batch": choice(32, 64, 0.5),
            "optimizer": choice("sgd", "adam", "1"),
        }
    ).to_json()
    assert from_katib(parameters) == expected
    experiment = {"kind": "Experiment", "spec": {"parameters": parameters, "maxTrialCount": 12}}
    assert from_katib(experiment) == expected


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([katib("lr", "double", min="0", max="1", distribution="normal")], ["'lr'", "normal"]),
        (
            [katib("lr", "double", min="1", max="9", step="1", distribution="logUniform")],
            ["'lr'", "with a step"],
        ),
        ([katib("lr", "unknown", min="1", max="9")], ["'lr'", "unknown", "categorical"]),
        ([katib("lr", "double", min="1")], ["'lr'", "max"]),
        ([katib("lr", "double", min="a", max="9")], ["'lr'", "low is 'a'"]),
        ([katib("b", "discrete", list=["x"])], ["'b'", "'x'", "categorical"]),
        ([katib("b", "categorical", min="1")], ["'b'", "list"]),
        ([{"name": "b", "parameterType": "int"}], ["'b'", "feasibleSpace"]),
        ([katib("b", "int", min=1, max=2)] * 2, ["'b'", "twice"]),
        ([{"parameterType": "int"}], ["parameter 0", "name"]),
        ([], ["[]", "spec.parameters"]),
        ({"spec": {}}, ["None", "spec.parameters"]),
        ("double", ["'double'"]),
    ],
    ids=str,
)
def test_what_katib_has_and_we_have_not_is_refused_by_name(data: Any, words: list[str]) -> None:
    with pytest.raises(SpecError) as error:
        from_katib(data)
    assert [word for word in words if word not in str(error.value)] == []


class _Sampler:
    """A sampler of Ray Tune: nested in its domain, with a name by which it is known."""


class _Uniform(_Sampler):
    pass


class _LogUniform(_Sampler):
    pass


class _Normal(_Sampler):
    pass


class Quantized(_Sampler):
    def __init__(self, sampler: _Sampler, q: float) -> None:
        self.sampler, self.q = sampler, q

    def get_sampler(self) -> _Sampler:
        return self.sampler


class Float:
    """A domain of Ray Tune, with what can be seen of it from outside."""

    def __init__(self, lower: float, upper: float, sampler: _Sampler) -> None:
        self.lower, self.upper, self.sampler = lower, upper, sampler

    def get_sampler(self) -> _Sampler:
        return self.sampler


class Integer(Float):
    pass


class Categorical:
    categories: ClassVar = ["relu", "tanh"]


class Function:
    def __init__(self) -> None:
        self.func = print


def test_ray_tunes_forms_are_read() -> None:
    config = {
        "uniform": Float(0.0, 1.0, _Uniform()),
        "loguniform": Float(1e-4, 1e-1, _LogUniform()),
        "quniform": Float(0.0, 0.3, Quantized(_Uniform(), 0.1)),
        "randint": Integer(1, 9, _Uniform()),
        "lograndint": Integer(1, 1025, _LogUniform()),
        "qrandint": Integer(1, 10, Quantized(_Uniform(), 3)),
        "qrandint_of_one": Integer(1, 10, Quantized(_Uniform(), 1)),
        "choice": Categorical(),
        "grid": {"grid_search": [32, 64]},
        "constant": 7,
        "nothing": None,
        "nested": {"a": 1},
    }
    assert (
        from_ray(config)
        == Space.from_json(
            {
                "uniform": uniform(0, 1),
                "loguniform": loguniform(1e-4, 1e-1),
                "quniform": uniform(0, 0.3, 0.1),
                "randint": integer(1, 8),
                "lograndint": loginteger(1, 1024),
                "qrandint": integer(3, 10, 3),
                "qrandint_of_one": integer(1, 9),
                "choice": choice("relu", "tanh"),
                "grid": choice(32, 64),
                "constant": choice(7),
                "nothing": choice(None),
                "nested": choice({"a": 1}),
            }
        ).to_json()
    )


@pytest.mark.parametrize(
    "item",
    [
        Float(float("-inf"), float("inf"), _Normal()),
        Float(1.0, 9.0, Quantized(_LogUniform(), 1)),
        Integer(1, 9, Quantized(_LogUniform(), 2)),
        Function(),
        {"inner": Float(0, 1, _Uniform())},
    ],
    ids=["normal", "qloguniform", "qlograndint", "sample_from", "nested"],
)
def test_what_ray_tune_has_and_we_have_not_is_refused_by_name(item: Any) -> None:
    with pytest.raises(SpecError, match="'odd' of the Ray Tune search space"):
        from_ray({"fine": 1, "odd": item})
