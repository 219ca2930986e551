"""The MNIST program's parameters, and what its package costs to import."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kfp_jax_runtime.config import from_parameters
from kfp_jax_runtime.errors import BadInput
from kfp_jax_runtime.evaluate import EvaluateConfig
from kfp_jax_runtime.mnist.config import MnistConfig


@pytest.mark.parametrize("value", [3, 3.0, "3"])
def test_numbers_come_as_any_front_end_sends_them(value: Any) -> None:
    config = from_parameters(MnistConfig, {"learning_rate": value, "epochs": value})
    assert (config.learning_rate, config.epochs) == (3.0, 3)
    assert isinstance(config.learning_rate, float)
    assert isinstance(config.epochs, int)


def test_every_field_can_be_set_from_parameters() -> None:
    given = dataclasses.asdict(MnistConfig(channels=(8, 8, 8), dataset="fashion_mnist", seed=3))
    # As JSON has them: lists instead of tuples.
    given["channels"] = list(given["channels"])
    assert dataclasses.asdict(from_parameters(MnistConfig, given)) == given | {
        "channels": (8, 8, 8)
    }


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"epochs": 0}, "epochs must be at least 1, not 0"),
        ({"epochs": 2.5}, "'epochs' must be a whole number, not 2.5"),
        ({"learning_rate": "fast"}, "'learning_rate' must be a finite number, not 'fast'"),
        ({"learning_rate": 0}, "learning_rate must be more than 0, not 0.0"),
        ({"learning_rat": 1}, "did you mean 'learning_rate'"),
        ({"dropout": 1}, "dropout must be at least 0 and less than 1, not 1.0"),
        ({"max_shift_pixels": -1}, "max_shift_pixels must be at least 0, not -1.0"),
        ({"channels": []}, r"channels must be one to five numbers of at least 1, not \(\)"),
        ({"channels": "32"}, "'channels' must be a list, not '32'"),
        ({"seed": -1}, "seed must be from 0 to 2147483647, not -1"),
        ({"dataset": "cifar10"}, "'dataset' must be one of 'auto', 'mnist', 'fashion_mnist'"),
        ({"global_batch_size": True}, "'global_batch_size' must be a whole number, not True"),
    ],
)
def test_a_bad_parameter_gets_one_sentence(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        from_parameters(MnistConfig, parameters)


def test_evaluate_needs_a_model() -> None:
    with pytest.raises(BadInput, match="'model' is missing"):
        from_parameters(EvaluateConfig, {})
    with pytest.raises(BadInput, match=r"holds no model\.json; set `model`"):
        EvaluateConfig(model="/nowhere").folder()


def test_evaluate_takes_a_folder_or_its_uri(tmp_path: Path) -> None:
    folder = tmp_path / "my model"
    folder.mkdir()
    (folder / "model.json").touch()
    assert EvaluateConfig(model=str(folder)).folder() == folder
    assert EvaluateConfig(model=folder.as_uri()).folder() == folder
    with pytest.raises(BadInput, match="model must be a folder that this node can open, not 'ftp:"):
        EvaluateConfig(model="ftp://host/model").folder()


@pytest.mark.parametrize(
    "module", ["kfp_jax_runtime.mnist", "kfp_jax_runtime.evaluate", "kfp_jax_runtime.data.prepare"]
)
def test_checking_parameters_does_not_load_jax(module: str) -> None:
    heavy = "{'jax', 'flax', 'optax', 'orbax', 'tensorflow_datasets'}"
    code = f"import sys, {module}; print(sorted({heavy} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert result.stdout.strip() == "[]"
