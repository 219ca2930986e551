"""One trial of a sweep: a value, and a row of the trials table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Self

from kfp_jax.checks import known_keys
from kfp_jax.errors import SpecError

MAX_POINTS = 200


class TrialState(StrEnum):
    """Where a trial stands."""

    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    PRUNED = "PRUNED"  # ended early, as others were better at the same step
    FAILED = "FAILED"
    STOPPED = "STOPPED"  # ended by us with the sweep, for no fault of its own

    @property
    def finished(self) -> bool:
        """Whether nothing more will happen."""
        return self is not TrialState.RUNNING


class Direction(StrEnum):
    """Which scores are better."""

    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"


@dataclass(frozen=True)
class Trial:
    """One trial.

    Attributes:
        number: From 0, in the order in which trials were suggested.
        parameters: What was suggested for it; parameters that all trials share are not in it.
        state: Where it stands.
        score: The objective: final for a complete trial, the last reported one for another;
            None without any. Always finite.
        curve: The reported objective as (step, value), steps rising, values finite.
        started: Seconds from the sweep's beginning to the trial's, after any wait for its turn.
        seconds: From there to its end.
        reason: Of a failure, the diagnosis's word, such as `out-of-memory`; or "".
        message: Of a failure, the diagnosis's sentence; or "".
        job: Its job's name.
        output_uri: Its job's output folder.
        model_uri: The exported model, or "".
    """

    number: int
    parameters: Mapping[str, Any]
    state: TrialState = TrialState.RUNNING
    score: float | None = None
    curve: tuple[tuple[int, float], ...] = ()
    started: float = 0.0
    seconds: float = 0.0
    reason: str = ""
    message: str = ""
    job: str = field(default="", kw_only=True)
    output_uri: str = field(default="", kw_only=True)
    model_uri: str = field(default="", kw_only=True)

    def to_json(self) -> dict[str, Any]:
        """Returns the trial as a JSON object."""
        curve = [list(point) for point in self.curve]
        return vars(self) | {"parameters": dict(self.parameters), "curve": curve}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Returns the trial that `to_json` gave.

        Raises:
            SpecError: It is no trial.
        """
        known_keys("the trial", data, (item.name for item in fields(cls)))
        try:
            curve = tuple((int(step), float(value)) for step, value in data.get("curve", ()))
            state = TrialState(data.get("state", TrialState.RUNNING))
            return cls(**{**data, "state": state, "curve": curve})
        except (TypeError, ValueError) as error:
            raise SpecError(f"Not a trial: {error}.") from error


def extended(trial: Trial, step: int, value: float) -> Trial:
    """Returns the trial with one more point of its curve.

    A restart goes back to a checkpoint: points from this step on are reported anew. Of a long curve
    every other point is dropped, so that a trial stays small.
    """
    curve = tuple(point for point in trial.curve if point[0] < step)
    if len(curve) >= MAX_POINTS:
        curve = curve[::2]
    return replace(trial, curve=(*curve, (step, value)))


def ranked(trials: Iterable[Trial], direction: Direction) -> Sequence[Trial]:
    """Returns the complete trials, the best first; of equal ones, the one suggested first."""
    sign = -1.0 if direction is Direction.MAXIMIZE else 1.0
    complete = (trial for trial in trials if trial.state is TrialState.COMPLETE)
    scored = (
        (sign * trial.score, trial.number, trial) for trial in complete if trial.score is not None
    )
    return [trial for _, _, trial in sorted(scored, key=lambda item: item[:2])]
