"""A training that is over at once, for trials of sweeps; no JAX, so that it starts in a blink."""

import json
import math
import time
from dataclasses import dataclass
from typing import Any, Literal

from kfp_jax_runtime import Run


@dataclass(frozen=True)
class Config:
    learning_rate: float = 0.01
    batch_size: int = 32
    momentum: float = 0.0
    how: Literal["well", "better", "raises", "nan", "other", "hangs"] = "well"
    epochs: int = 1
    fails_from_epochs: int = 100


def train(run: Run, config: Config) -> dict[str, float]:
    """Returns the better accuracies the nearer the learning rate is to 0.01."""
    score = 0.9 - abs(math.log10(config.learning_rate) + 2) / 10 + config.momentum / 100
    score += 0.01 * (config.how == "better") + config.epochs / 1000
    objective = "val_accuracy" if config.how == "other" else "accuracy"
    for step in range(1, 2 * config.epochs + 1):
        run.report(step, **{objective: score * step / (2 * config.epochs)})
    while config.how == "hangs":
        time.sleep(0.1)
    if config.how == "raises" or config.epochs >= config.fails_from_epochs:
        raise ValueError("no such luck")
    folder = run.output_dir / "model"
    folder.mkdir()
    seen: dict[str, Any] = dict(run.parameters)
    (folder / "parameters.json").write_text(json.dumps(seen))
    return {objective: float("nan") if config.how == "nan" else score}
