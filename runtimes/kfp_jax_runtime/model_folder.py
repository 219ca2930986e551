"""Where an exported model is, and what its files are called; standard library only."""

from pathlib import Path
from typing import Final

NAME: Final = "model"
"""The folder in a job's output directory."""

DESCRIPTION: Final = "model.json"
PARAMS: Final = "params"
PREDICT: Final = "predict.jax"


def holds_model(folder: Path) -> bool:
    """Returns whether an exported model is there."""
    return (folder / DESCRIPTION).is_file()
