"""The user's program and what it trains with."""

import enum
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

from kfp_jax_runtime.program import Program


class Norm(enum.Enum):
    BATCH = "batch"


@dataclass(frozen=True)
class Config:
    rate: float = 1e-3
    clip: float = math.inf
    norm: Norm = Norm.BATCH
    widths: tuple[int, ...] = (32, 64)
    limit: int | None = None
    shuffle: bool = True
    cache: Path = Path("cache")
    derived: list[int] = field(default_factory=list, init=False)


def test_effective_parameters_are_json_whatever_the_config_holds() -> None:
    effective = Program("module", print, Config(rate=0.5)).effective({"rate": 0.5})
    assert json.loads(json.dumps(effective, allow_nan=False)) == {
        "rate": 0.5,
        "clip": "Infinity",
        "norm": "batch",
        "widths": [32, 64],
        "limit": None,
        "shuffle": True,
        "cache": "cache",
    }


def test_without_a_config_the_effective_parameters_are_those_given() -> None:
    assert Program("module", print, None).effective({"rate": 0.5}) == {"rate": 0.5}
