import math
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from kfp_jax.sweep import (
    Direction,
    Pruner,
    Report,
    Sampler,
    Space,
    Study,
    Trial,
    TrialState,
    choice,
    integer,
    loguniform,
    ranked,
    simulate,
    uniform,
)

SPACE = Space.from_json(
    {
        "learning_rate": loguniform(1e-4, 1),
        "dropout": uniform(0, 0.5, 0.1),
        "optimizer": choice("adam", "sgd"),
    }
)


def accuracy(parameters: Mapping[str, Any], number: int) -> Sequence[Report]:
    """Nine epochs of a second each towards a level that the parameters set, with a little noise."""
    far = abs(math.log10(parameters["learning_rate"]) + 2) + parameters["dropout"]
    noise = random.Random(number)
    return [
        Report(step, 1 - far / 5 - 0.5 / step + noise.gauss(0, 0.005), float(step))
        for step in range(1, 10)
    ]


def loss(parameters: Mapping[str, Any], number: int) -> Sequence[Report]:
    return [Report(step, -value, at) for step, value, at in accuracy(parameters, number)]


def study(**fields: Any) -> Study:
    return Study(**{"space": SPACE, "sampler": Sampler.RANDOM, "max_trials": 60, **fields})


def test_without_pruning_workers_are_always_busy() -> None:
    result = simulate(study(max_trials=20), accuracy, parallel=4)
    assert result.makespan == 45
    assert result.machine_seconds == 180
    assert [trial.started for trial in result.trials[:5]] == [0, 0, 0, 0, 9]
    assert {trial.state for trial in result.trials} == {TrialState.COMPLETE}
    assert all(len(trial.curve) == 9 for trial in result.trials)


@pytest.mark.parametrize("pruner", [Pruner.MEDIAN, Pruner.ASHA, Pruner.HYPERBAND])
@pytest.mark.parametrize("direction", list(Direction))
def test_pruning_ends_earlier_with_the_same_best(pruner: Pruner, direction: Direction) -> None:
    curves = accuracy if direction is Direction.MAXIMIZE else loss
    plain = simulate(study(direction=direction), curves, parallel=4)
    pruned = simulate(study(direction=direction, pruner=pruner), curves, parallel=4)
    assert len(pruned.trials) == len(plain.trials) == 60
    assert pruned.makespan < 0.75 * plain.makespan
    best, expected = (ranked(r.trials, direction)[0] for r in (pruned, plain))
    assert best.score == pytest.approx(expected.score, abs=0.02)


def test_a_pruned_trial_keeps_its_last_value_and_its_time() -> None:
    result = simulate(study(pruner=Pruner.ASHA, min_step=1), accuracy, parallel=4)
    pruned = [trial for trial in result.trials if trial.state is TrialState.PRUNED]
    assert pruned
    for trial in pruned:
        assert trial.score == trial.curve[-1][1]
        assert trial.seconds == trial.curve[-1][0]


def test_failures_cost_only_themselves() -> None:
    result = simulate(study(max_trials=5), accuracy, parallel=2, failures={2})
    states = [trial.state for trial in result.trials]
    assert states.count(TrialState.COMPLETE) == 4
    assert states[2] is TrialState.FAILED
    assert len(ranked(result.trials, Direction.MAXIMIZE)) == 4


def test_all_may_fail() -> None:
    every = range(12)
    for sampler in (Sampler.RANDOM, Sampler.TPE, Sampler.CMAES):
        result = simulate(
            study(sampler=sampler, pruner=Pruner.ASHA, max_trials=12),
            accuracy,
            parallel=3,
            failures=every,
        )
        assert [trial.state for trial in result.trials] == [TrialState.FAILED] * 12


def test_a_program_that_reports_nothing_ends_at_once_without_a_score() -> None:
    for sampler in (Sampler.RANDOM, Sampler.TPE, Sampler.CMAES):
        result = simulate(
            study(sampler=sampler, pruner=Pruner.MEDIAN, max_trials=30),
            lambda _, number: [Report(1, 1.0, 1.0)] if number % 2 else [],
            parallel=3,
        )
        assert [trial.score for trial in result.trials] == [None, 1.0] * 15


def test_more_trials_than_points_end_with_the_space() -> None:
    space = Space.from_json({"a": integer(1, 2), "b": choice(1, 2, 3)})
    for sampler in (Sampler.GRID, Sampler.RANDOM, Sampler.TPE):
        result = simulate(
            Study(space=space, sampler=sampler, max_trials=12),
            lambda parameters, _: [Report(1, float(parameters["a"]), 1.0)],
            parallel=4,
        )
        assert len(result.trials) == 6
        assert result.makespan == 2


def test_a_time_budget_begins_no_trial_after_it() -> None:
    result = simulate(study(), accuracy, parallel=2, seconds=20)
    assert len(result.trials) == 6
    assert result.makespan == 27


@pytest.mark.parametrize("sampler", [Sampler.RANDOM, Sampler.TPE, Sampler.CMAES])
def test_the_same_seed_gives_the_same_sweep(sampler: Sampler) -> None:
    fields = {"sampler": sampler, "pruner": Pruner.ASHA, "max_trials": 30, "seed": 5}
    one, other = (simulate(study(**fields), accuracy, parallel=4) for _ in range(2))
    assert one == other
    another = simulate(study(**{**fields, "seed": 6}), accuracy, parallel=4)
    assert another != one


def test_a_thousand_trials_take_little_time() -> None:
    began = time.process_time()
    result = simulate(study(max_trials=1000, pruner=Pruner.ASHA), accuracy, parallel=32)
    assert len(result.trials) == 1000
    # A second or so; the bound only tells it from the minutes that quadratic work would take.
    assert time.process_time() - began < 20


def test_an_earlier_sweep_warms_a_later_one() -> None:
    earlier = simulate(study(max_trials=40), accuracy, parallel=4)
    later = study(sampler=Sampler.TPE, max_trials=10, seed=1)
    cold, warm = (
        simulate(later, accuracy, parallel=2, earlier=trials) for trials in ((), earlier.trials)
    )

    def mean(trials: Sequence[Trial]) -> float:
        return sum(trial.score or 0.0 for trial in trials) / len(trials)

    assert mean(warm.trials) > mean(cold.trials) + 0.1
