"""What a sweep is: the job that each trial is, the study, and how much of everything."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kfp_jax.checks import json_object, whole
from kfp_jax.errors import SpecError
from kfp_jax.spec import TrainSpec
from kfp_jax.sweep.study import MAX_TRIALS, Study
from kfp_jax.sweep.trial import Trial

MAX_PARALLEL = 1000

_MAY_CHANGE = frozenset(
    {"checkpoint_uri", "env", "limits", "max_trials", "output_uri", "pods", "shared_uri"}
)


@dataclass(frozen=True, kw_only=True)
class SweepSpec:
    """One sweep.

    Attributes:
        job: What each trial trains; its parameters are those that all trials share, its output
            folder is the sweep's, and its objective what trials are compared by.
        study: Which parameters to try, and how.
        parallel: How many trials run at once.
        max_failed: How many trials may fail before the sweep does; -1 for half of them.
        time_budget: Seconds after which running trials are stopped; 0 for no limit.
        earlier: Trials of an earlier sweep, for samplers that learn.

    Raises:
        SpecError: A value is wrong; the message names it and says what is valid.
    """

    job: TrainSpec
    study: Study
    parallel: int = 1
    max_failed: int = -1
    time_budget: float = 0.0
    earlier: tuple[Trial, ...] = ()

    def __post_init__(self) -> None:
        if not self.job.objective:
            raise SpecError("objective is empty; name the metric that trials are compared by.")
        shared = sorted(set(self.job.parameters) & set(self.study.space.entries))
        if shared:
            raise SpecError(
                f"Parameter {shared[0]} is in the search space and has a fixed value; give it once."
            )
        object.__setattr__(self, "parallel", whole("parallel", self.parallel, 1, MAX_PARALLEL))
        object.__setattr__(self, "max_failed", whole("max_failed", self.max_failed, -1, MAX_TRIALS))
        if not (math.isfinite(self.time_budget) and self.time_budget >= 0):
            raise SpecError(
                f"time_budget is {self.time_budget!r}; give seconds >= 0, where 0 means no limit."
            )

    @property
    def most_failed(self) -> int:
        """How many trials may fail."""
        asked = self.study.max_trials or self.study.space.points() or 0
        return most_failed(self.max_failed, asked)

    def trial_job(self, number: int, parameters: Mapping[str, Any]) -> TrainSpec:
        """Returns the job of one trial; it has an output folder of its own."""
        return replace(
            self.job,
            parameters={**self.job.parameters, **parameters},
            output_uri=f"{self.job.output_uri.rstrip('/')}/trials/{number:04d}",
            checkpoint_uri="",
            shared_uri=self.job.output_uri,
        )

    def lasting(self) -> dict[str, Any]:
        """Returns what a sweep that goes on has in common with its earlier start, as JSON.

        How much is tried, how much at once, and on what machines may change.
        """
        found = {**self.job.to_json(), **self.study.to_json()}
        lasting = {name: value for name, value in found.items() if name not in _MAY_CHANGE}
        return json_object("the sweep", lasting)

    def identity(self) -> str:
        """Returns 16 hexadecimal digits of `lasting`."""
        text = json.dumps(self.lasting(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def most_failed(max_failed: int, asked: int) -> int:
    """Returns how many of the trials that were asked for may fail; -1 means half of them."""
    return max_failed if max_failed >= 0 else max(1, asked // 2)
