"""What a sweep's machine time is said to be spent on, and its JSON."""

import json
from typing import Any

import pytest
from kfp_jax.sweep.summary import SweepState, SweepSummary, summarize
from kfp_jax.sweep.trial import Direction, Trial, TrialState

COMPLETE, PRUNED, FAILED = TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAILED


def trial(number: int, state: TrialState, seconds: float, score: float | None = None) -> Trial:
    return Trial(number, {"x": number}, state, score, seconds=seconds)


def summary(*trials: Trial, **changes: Any) -> SweepSummary:
    settings: dict[str, Any] = {
        "objective": "accuracy",
        "direction": Direction.MAXIMIZE,
        "program": "pkg.train",
    }
    return summarize(trials, **settings | changes)


def test_machine_time_is_the_trials_time_by_what_became_of_them() -> None:
    spent = summary(
        trial(0, COMPLETE, 10, 0.5),
        trial(1, COMPLETE, 20, 0.6),
        trial(2, PRUNED, 5, 0.4),
        trial(3, FAILED, 3),
        trial(4, TrialState.STOPPED, 2),
        trial(5, TrialState.RUNNING, 1),
        num_nodes=2,
    ).machine_time
    assert (spent.useful, spent.pruned, spent.wasted, spent.used) == (60, 10, 10, 82)


def test_pruning_saves_what_the_mean_complete_trial_takes_longer_and_never_less_than_nothing() -> (
    None
):
    trials = [trial(0, COMPLETE, 10, 0.5), trial(1, COMPLETE, 20, 0.6)]
    trials += [trial(2, PRUNED, 5), trial(3, PRUNED, 40)]
    assert summary(*trials).machine_time.saved == 10
    assert summary(*trials, num_nodes=3).machine_time.saved == 30


def test_without_a_complete_trial_nothing_is_known_to_be_saved() -> None:
    found = summary(trial(0, PRUNED, 0.5, 0.3))
    assert found.machine_time.saved == 0
    assert found.best is None


@pytest.mark.parametrize(("direction", "number"), [("maximize", 1), ("minimize", 0)])
def test_the_best_is_the_best_complete_trial(direction: str, number: int) -> None:
    trials = [trial(0, COMPLETE, 1, 0.2), trial(1, COMPLETE, 1, 0.8)]
    trials += [trial(2, PRUNED, 1, 0.9), trial(3, FAILED, 1, 0.1)]
    best = summary(*trials, direction=Direction(direction)).best
    assert best is not None
    assert best.number == number


def test_every_state_is_counted() -> None:
    assert summary(trial(0, PRUNED, 1)).counts == {
        TrialState.RUNNING: 0,
        COMPLETE: 0,
        PRUNED: 1,
        FAILED: 0,
        TrialState.STOPPED: 0,
    }


def test_becomes_json_and_holds_everything() -> None:
    found = summary(
        trial(0, COMPLETE, 4, 0.5),
        parameters={"epochs": 3},
        sampler="tpe",
        pruner="asha",
        seed=7,
        state=SweepState.STOPPED,
        ended="somebody asked for it",
        makespan=4.5,
        parallel=2,
    )
    assert json.loads(json.dumps(found.to_json(), allow_nan=False)) == {
        "schema": 1,
        "objective": "accuracy",
        "direction": "maximize",
        "program": "pkg.train",
        "parameters": {"epochs": 3},
        "sampler": "tpe",
        "pruner": "asha",
        "seed": 7,
        "state": "STOPPED",
        "ended": "somebody asked for it",
        "counts": {"RUNNING": 0, "COMPLETE": 1, "PRUNED": 0, "FAILED": 0, "STOPPED": 0},
        "best": trial(0, COMPLETE, 4, 0.5).to_json(),
        "makespan": 4.5,
        "parallel": 2,
        "num_nodes": 1,
        "machine_time": {"used": 4, "useful": 4, "pruned": 0, "wasted": 0, "saved": 0},
    }


def test_a_sweep_without_trials_has_a_summary() -> None:
    found = summary(state=SweepState.FAILED, ended="no trial could be submitted").to_json()
    assert found["best"] is None
    assert found["makespan"] is None
    assert set(found["machine_time"].values()) == {0}
