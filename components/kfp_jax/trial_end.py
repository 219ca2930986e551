"""What a job's reports and its end make of its trial: the same in one step and in a loop. Pure."""

import math
from dataclasses import replace

from kfp_jax.errors import KfpJaxError, SpecError
from kfp_jax.reports import Kind, Report
from kfp_jax.status import BAD_INPUT, Outcome, Phase
from kfp_jax.sweep.trial import Trial, TrialState


def point_of(report: Report, objective: str) -> tuple[int, float] | None:
    """Returns the point that a report adds to a trial's curve, or None."""
    value = report.values.get(objective)
    if report.kind is not Kind.METRICS or report.step is None or value is None:
        return None
    return (report.step, value) if math.isfinite(value) else None


def ended(trial: Trial, outcome: Outcome, objective: str, *, pruned: bool = False) -> Trial:
    """Returns a trial whose job has ended; what that waited in a queue is not the trial's time."""
    seconds = outcome.seconds["total"] - outcome.seconds["queued"]
    trial = replace(_over(trial, seconds), job=outcome.job, model_uri=outcome.model_uri)
    match outcome.phase:
        case Phase.SUCCEEDED:
            return replace(trial, state=TrialState.COMPLETE, score=outcome.metrics[objective])
        case Phase.CANCELLED:
            return replace(trial, state=TrialState.PRUNED if pruned else TrialState.STOPPED)
    return _failed(trial, outcome.reason, outcome.message)


def stopped(trial: Trial, seconds: float) -> Trial:
    """Returns a trial that came to no end of its own, and for no fault of its own."""
    return replace(_over(trial, seconds), state=TrialState.STOPPED)


def refused(trial: Trial, error: KfpJaxError, seconds: float) -> Trial:
    """Returns a trial whose launch failed, where nobody else can be told of that."""
    reason = BAD_INPUT if isinstance(error, SpecError) else "not-launched"
    return _failed(_over(trial, seconds), reason, str(error))


def _over(trial: Trial, seconds: float) -> Trial:
    score = trial.curve[-1][1] if trial.curve else None
    return replace(trial, seconds=seconds, score=score)


def _failed(trial: Trial, reason: str, message: str) -> Trial:
    return replace(trial, state=TrialState.FAILED, reason=reason, message=message)
