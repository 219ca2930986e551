"""What a job's reports and its end make of its trial."""

import math
from typing import Any

import pytest
from kfp_jax.errors import Conflict, SpecError
from kfp_jax.reports import Kind, Report
from kfp_jax.status import Outcome, Phase
from kfp_jax.sweep.trial import Trial, TrialState
from kfp_jax.trial_end import ended, point_of, refused, stopped

RUNNING = Trial(3, {"x": 1}, curve=((1, 0.25), (2, 0.5)), started=7.0)


def outcome(phase: Phase, **changes: Any) -> Outcome:
    facts: dict[str, Any] = {
        "job": "trial-3-1",
        "backend": "local",
        "phase": phase,
        "reason": "",
        "message": "",
        "program": "pkg.train",
        "parameters": {},
        "num_processes": 1,
        "seconds": {"queued": 2.0, "starting": 1.0, "training": 3.0, "total": 6.0},
        "metrics": {"accuracy": 0.75},
        "attempts": 1,
        "output_uri": "/out",
        "dataset_uri": "",
        "model_uri": "/out/model",
    }
    return Outcome(**facts | changes)


@pytest.mark.parametrize(
    ("phase", "pruned", "state", "score"),
    [
        (Phase.SUCCEEDED, False, TrialState.COMPLETE, 0.75),
        (Phase.SUCCEEDED, True, TrialState.COMPLETE, 0.75),  # it was quicker than its end
        (Phase.CANCELLED, True, TrialState.PRUNED, 0.5),
        (Phase.CANCELLED, False, TrialState.STOPPED, 0.5),
        (Phase.FAILED, False, TrialState.FAILED, 0.5),
        (Phase.FAILED, True, TrialState.FAILED, 0.5),
        (Phase.LOST, False, TrialState.FAILED, 0.5),
    ],
)
def test_a_jobs_end_is_its_trials(
    phase: Phase, pruned: bool, state: TrialState, score: float
) -> None:
    trial = ended(RUNNING, outcome(phase, reason="r", message="m"), "accuracy", pruned=pruned)
    assert (trial.state, trial.score) == (state, score)
    assert (trial.job, trial.model_uri, trial.seconds) == ("trial-3-1", "/out/model", 4.0)
    why = ("r", "m") if state is TrialState.FAILED else ("", "")
    assert (trial.reason, trial.message) == why
    assert (trial.number, trial.parameters, trial.curve) == (3, {"x": 1}, RUNNING.curve)


def test_a_stopped_trial_keeps_its_last_score_and_has_no_failure() -> None:
    trial = stopped(RUNNING, 2.5)
    assert (trial.state, trial.score, trial.seconds) == (TrialState.STOPPED, 0.5, 2.5)
    assert stopped(Trial(0, {}), 0.0).score is None
    assert trial.reason == ""


@pytest.mark.parametrize(
    ("error", "reason"),
    [(SpecError("No such program."), "bad-input"), (Conflict("It is taken."), "not-launched")],
)
def test_a_launch_that_fails_is_the_trials_failure(error: Conflict, reason: str) -> None:
    trial = refused(Trial(0, {}), error, 1.5)
    assert (trial.state, trial.reason, trial.message) == (TrialState.FAILED, reason, str(error))
    assert (trial.score, trial.seconds) == (None, 1.5)


@pytest.mark.parametrize(
    ("kind", "step", "values", "point"),
    [
        (Kind.METRICS, 4, {"accuracy": 0.5, "loss": 1.0}, (4, 0.5)),
        (Kind.METRICS, 0, {"accuracy": 0.0}, (0, 0.0)),
        (Kind.METRICS, None, {"accuracy": 0.5}, None),
        (Kind.METRICS, 4, {"loss": 1.0}, None),
        (Kind.METRICS, 4, {"accuracy": math.nan}, None),
        (Kind.METRICS, 4, {"accuracy": -math.inf}, None),
        (Kind.RESULT, 4, {"accuracy": 0.5}, None),
    ],
)
def test_which_reports_are_points_of_the_curve(
    kind: Kind, step: int | None, values: dict[str, float], point: tuple[int, float] | None
) -> None:
    assert point_of(Report(kind, 0.0, step, values), "accuracy") == point
