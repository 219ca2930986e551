"""Parameters into a program's dataclass."""

import dataclasses
import enum
from typing import Annotated, Literal

import pytest
from kfp_jax_runtime.config import from_parameters
from kfp_jax_runtime.errors import BadInput


class Norm(enum.Enum):
    BATCH = "batch"
    LAYER = "layer"


@dataclasses.dataclass(frozen=True)
class Settings:
    epochs: int = 4
    rate: float = 1e-3
    augment: bool = True
    name: str = "net"
    limit: int | None = None
    loss: Literal["l1", "l2"] = "l2"
    power: Literal[1, 2] = 1
    norm: Norm = Norm.BATCH
    widths: tuple[int, ...] = (32, 64)
    pair: tuple[int, str] = (1, "a")
    either: int | str = 0
    noted: Annotated[int, "per epoch"] = 0
    derived: int = dataclasses.field(default=9, init=False)

    def __post_init__(self) -> None:
        if self.epochs > 1000:
            raise ValueError(f"epochs must be at most 1000, not {self.epochs}")


@pytest.mark.parametrize(
    ("name", "given", "taken"),
    [
        ("epochs", 3, 3),
        ("epochs", 3.0, 3),
        ("epochs", "3", 3),
        ("epochs", "-3", -3),
        ("rate", 3, 3.0),
        ("rate", "3", 3.0),
        ("rate", "0.001", 0.001),
        ("rate", "1e-3", 0.001),
        ("name", 2024, "2024"),
        ("augment", False, False),
        ("augment", "false", False),
        ("augment", "True", True),
        ("name", "3", "3"),
        ("limit", None, None),
        ("limit", 5.0, 5),
        ("loss", "l1", "l1"),
        ("power", 2.0, 2),
        ("power", "2", 2),
        ("norm", "layer", Norm.LAYER),
        ("norm", "LAYER", Norm.LAYER),
        ("widths", [8, 16.0, "32"], (8, 16, 32)),
        ("widths", [], ()),
        ("pair", [2, "b"], (2, "b")),
        ("either", "3", "3"),
        ("either", 3, 3),
        ("noted", "7", 7),
    ],
)
def test_a_value_of_the_right_meaning_is_taken(name: str, given: object, taken: object) -> None:
    value = getattr(from_parameters(Settings, {name: given}), name)
    assert value == taken
    assert type(value) is type(taken)


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("epochs", True, "a whole number, not True"),
        ("epochs", 2.5, "a whole number, not 2.5"),
        ("epochs", "2.5", "a whole number, not '2.5'"),
        ("epochs", float("inf"), "a whole number, not inf"),
        ("epochs", None, "a whole number, not None"),
        ("epochs", "1_000", "a whole number"),
        ("epochs", "9" * 5000, "a whole number"),
        ("epochs", [1], "a whole number"),
        ("rate", True, "a finite number, not True"),
        ("rate", "fast", "a finite number, not 'fast'"),
        ("rate", float("nan"), "a finite number, not nan"),
        ("rate", "inf", "a finite number, not 'inf'"),
        ("rate", 10**400, "a finite number"),
        ("augment", 1, "true or false, not 1"),
        ("augment", "yes", "true or false, not 'yes'"),
        ("name", 3.5, "text, not 3.5"),
        ("limit", "x", "a whole number or null, not 'x'"),
        ("loss", "l3", "one of 'l1', 'l2', not 'l3'"),
        ("power", True, "one of 1, 2, not True"),
        ("norm", "group", "one of 'batch', 'layer', not 'group'"),
        ("widths", 32, "a list, not 32"),
        ("widths", [32, "x"], "a list whose every item is a whole number"),
        ("pair", [1], "a list of 2 values, not [1]"),
    ],
)
def test_a_value_of_another_type_is_refused_with_what_is_valid(
    name: str, given: object, wanted: str
) -> None:
    with pytest.raises(BadInput) as raised:
        from_parameters(Settings, {name: given})
    assert str(raised.value).startswith(f"parameter {name!r} must be {wanted}")
    assert len(str(raised.value)) < 200


def test_an_unknown_key_is_refused_with_the_valid_ones_and_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"unknown parameter 'epoch' \(did you mean 'epochs'\?\)"):
        from_parameters(Settings, {"epoch": 3})
    with pytest.raises(BadInput, match=r"unknown parameters 'x', 'y'; Settings takes augment, ei"):
        from_parameters(Settings, {"x": 3, "y": 4})


def test_a_field_that_the_dataclass_computes_is_not_a_parameter() -> None:
    with pytest.raises(BadInput, match="unknown parameter 'derived'"):
        from_parameters(Settings, {"derived": 3})


def test_what_the_dataclass_itself_refuses_is_bad_input_too() -> None:
    with pytest.raises(BadInput, match="epochs must be at most 1000, not 2000"):
        from_parameters(Settings, {"epochs": 2000})


def test_a_field_without_default_must_be_given() -> None:
    @dataclasses.dataclass(frozen=True)
    class Needs:
        path: str

    with pytest.raises(BadInput, match="parameter 'path' is missing"):
        from_parameters(Needs, {})


def test_a_type_that_no_parameter_can_fill_is_the_programs_mistake() -> None:
    @dataclasses.dataclass(frozen=True)
    class Odd:
        weights: dict[str, int] = dataclasses.field(default_factory=dict)

    assert from_parameters(Odd, {}) == Odd()
    with pytest.raises(TypeError, match="field 'weights' has the type"):
        from_parameters(Odd, {"weights": {}})
    with pytest.raises(TypeError, match="must be a dataclass"):
        from_parameters(int, {})
