import json
import math
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kfp_jax.errors import SpecError
from kfp_jax.sweep import (
    Direction,
    Sampler,
    Space,
    Study,
    Trial,
    TrialState,
    choice,
    integer,
    loginteger,
    loguniform,
    suggest,
    uniform,
)

MIXED = Space.from_json(
    {
        "learning_rate": loguniform(1e-4, 1e-1),
        "batch": integer(32, 128, 32),
        "dropout": uniform(0, 0.5, 0.1),
        "width": loginteger(1, 1024),
        "optimizer": choice("adam", "sgd", None, [1, {"a": 2}]),
        "momentum": uniform(0, 0.99, when={"optimizer": "sgd"}),
        "one": integer(3, 3),
    }
)
SIX = Space.from_json({"a": integer(1, 2), "b": choice("x", "y", "z")})
NUMBERS = Space.from_json({"a": integer(1, 2), "b": uniform(0, 0.2, 0.1)})


def score_of(parameters: dict[str, Any]) -> float:
    return float(-abs(math.log10(parameters["learning_rate"]) + 2) - parameters["dropout"])


def history(study: Study, count: int) -> list[Trial]:
    """Trials in all states, in the order of their numbers."""
    trials: list[Trial] = []
    for number in range(count):
        parameters = suggest(study, trials, number)
        assert parameters is not None
        state = list(TrialState)[number % 5] if number % 7 else TrialState.COMPLETE
        scored = state is not TrialState.FAILED and number != 7
        score = score_of(parameters) if scored else None
        curve = () if score is None else ((1, score - 1), (number % 3 + 2, score))
        trials.append(Trial(number, parameters, state, score, curve))
    return trials


@pytest.fixture(scope="module")
def random_history() -> Sequence[Trial]:
    return history(Study(space=MIXED, sampler=Sampler.RANDOM, max_trials=99), 40)


@pytest.mark.parametrize("sampler", [item for item in Sampler if item is not Sampler.GRID])
@settings(deadline=None, max_examples=5)
@given(order=st.randoms(use_true_random=False), seed=st.integers(0, 2**32 - 1))
def test_the_order_in_which_trials_ended_does_not_matter(
    random_history: Sequence[Trial], sampler: Sampler, order: Any, seed: int
) -> None:
    study = Study(space=MIXED, sampler=sampler, seed=seed, max_trials=99)
    shuffled = list(random_history)
    order.shuffle(shuffled)
    copies = [Trial.from_json(json.loads(json.dumps(trial.to_json()))) for trial in shuffled]
    expected = suggest(study, random_history, 40)
    assert expected is not None
    assert MIXED.contains(expected)
    assert json.dumps(suggest(study, shuffled, 40)) == json.dumps(expected)
    assert json.dumps(suggest(study, copies, 40)) == json.dumps(expected)


@pytest.mark.parametrize("sampler", [item for item in Sampler if item is not Sampler.GRID])
def test_trials_differ_by_number_and_by_seed(
    random_history: Sequence[Trial], sampler: Sampler
) -> None:
    found = {
        json.dumps(
            suggest(
                Study(space=MIXED, sampler=sampler, seed=seed, max_trials=99), random_history, n
            )
        )
        for seed in (0, 1)
        for n in (40, 41, 42)
    }
    assert len(found) == 6


@pytest.mark.parametrize("sampler", [Sampler.RANDOM, Sampler.TPE, Sampler.CMAES])
def test_another_process_suggests_the_same(
    random_history: Sequence[Trial], sampler: Sampler
) -> None:
    study = Study(space=MIXED, sampler=sampler, seed=7, max_trials=99)
    code = (
        "import json, sys; from kfp_jax.sweep import *; "
        "space, trials, sampler = json.load(sys.stdin); "
        "study = Study(space=Space.from_json(space), sampler=sampler, seed=7, max_trials=99); "
        "print(json.dumps(suggest(study, [Trial.from_json(t) for t in trials], 40)))"
    )
    given = [MIXED.to_json(), [trial.to_json() for trial in random_history], sampler]
    command = [sys.executable, "-W", "error", "-c", code]
    ended = subprocess.run(
        command, input=json.dumps(given), check=True, capture_output=True, text=True
    )
    assert ended.stderr == ""  # no log of Optuna's
    assert json.loads(ended.stdout) == suggest(study, random_history, 40)


def test_random_suggestions_load_nothing_heavy() -> None:
    code = (
        "import sys; from kfp_jax.sweep import *; "
        "space = Space.from_json({'x': uniform(0, 1)}); "
        "suggest(Study(space=space, sampler='random', max_trials=9), [], 0); "
        "print([m for m in sys.modules if m in ('optuna', 'numpy', 'scipy')])"
    )
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize("sampler", list(Sampler))
@pytest.mark.parametrize("outcome", [*TrialState, None])
def test_a_finite_space_is_tried_once_and_ends(
    sampler: Sampler, outcome: TrialState | None
) -> None:
    study = Study(space=NUMBERS, sampler=sampler, max_trials=12)
    trials: list[Trial] = []
    while (parameters := suggest(study, trials, len(trials))) is not None:
        state = outcome or TrialState.COMPLETE
        score = None if outcome is None else float(len(trials))
        trials.append(Trial(len(trials), parameters, state, score))
    assert len(trials) == 6
    assert sorted(NUMBERS.index(trial.parameters) for trial in trials) == list(range(6))


@pytest.mark.parametrize("sampler", [Sampler.RANDOM, Sampler.GRID, Sampler.TPE])
def test_a_one_point_space_has_one_trial(sampler: Sampler) -> None:
    study = Study(space=Space.from_json({"a": choice("x")}), sampler=sampler)
    assert suggest(study, [], 0) == {"a": "x"}
    assert suggest(study, [Trial(0, {"a": "x"})], 1) is None


def test_the_grid_comes_in_order_whatever_became_of_its_trials() -> None:
    study = Study(space=SIX, sampler=Sampler.GRID, max_trials=12)
    found = [suggest(study, [], number) for number in range(12)]
    assert found[:6] == list(SIX.grid())
    assert found[6:] == [None] * 6


@pytest.mark.parametrize("sampler", [Sampler.GRID, Sampler.RANDOM, Sampler.TPE])
def test_of_ten_thousand_points_twenty_are_asked(sampler: Sampler) -> None:
    space = Space.from_json({name: integer(0, 9) for name in "abcd"})
    study = Study(space=space, sampler=sampler, max_trials=20)
    trials: list[Trial] = []
    while (parameters := suggest(study, trials, len(trials))) is not None:
        trials.append(Trial(len(trials), parameters, TrialState.COMPLETE, float(len(trials))))
    assert len(trials) == 20
    assert len({space.index(trial.parameters) for trial in trials}) == 20


@pytest.mark.parametrize("sampler", [Sampler.GRID, Sampler.RANDOM, Sampler.TPE])
def test_what_an_earlier_sweep_did_with_success_is_not_done_again(sampler: Sampler) -> None:
    study = Study(space=SIX, sampler=sampler)
    done = [
        Trial(0, {"a": 1.0, "b": "x"}, TrialState.COMPLETE, 0.1),
        Trial(1, {"a": 2, "b": "z"}, TrialState.PRUNED, 0.1),
        Trial(2, {"a": 1, "b": "z"}, TrialState.FAILED),
        Trial(3, {"a": 7, "b": "z"}, TrialState.COMPLETE, 0.1),
        Trial(3, {"other": 7}, TrialState.COMPLETE, 0.1),
    ]
    trials: list[Trial] = []
    while (parameters := suggest(study, trials, len(trials), done)) is not None:
        trials.append(Trial(len(trials), parameters, TrialState.COMPLETE, 0.5))
    assert sorted(SIX.index(trial.parameters) for trial in trials) == [1, 2, 3, 4]


@pytest.mark.parametrize("sampler", [Sampler.TPE, Sampler.CMAES])
@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("conditional", [False, True])
def test_suggestions_move_to_where_scores_are_good(
    sampler: Sampler, direction: Direction, conditional: bool
) -> None:
    entries: dict[str, Any] = {"x": uniform(0, 1), "kind": choice("a", "b"), "y": uniform(-5, 5)}
    if conditional:
        entries["z"] = uniform(0, 1, when={"kind": "a"})
    study = Study(
        space=Space.from_json(entries), direction=direction, sampler=sampler, max_trials=60
    )
    sign = 1 if direction is Direction.MINIMIZE else -1

    def score(p: dict[str, Any]) -> float:
        far = (p["x"] - 0.8) ** 2 + ((p["y"] - 3) / 10) ** 2 + p.get("z", 0) / 10
        return float(sign * far)

    trials: list[Trial] = []
    for number in range(60):
        parameters = suggest(study, trials, number)
        assert parameters is not None
        trials.append(Trial(number, parameters, TrialState.COMPLETE, score(parameters)))
    early, late = ([abs(t.score or 0.0) for t in part] for part in (trials[:15], trials[-15:]))
    assert sum(late) < sum(early) / 3


@pytest.mark.parametrize("sampler", [Sampler.TPE, Sampler.CMAES])
def test_an_earlier_sweep_is_a_head_start(sampler: Sampler) -> None:
    space = Space.from_json({"x": uniform(0, 1), "y": uniform(0, 1)})
    earlier = [
        Trial(n, {"x": (n * 0.37) % 1, "y": (n * 0.61) % 1}, TrialState.COMPLETE, score=s)
        for n in range(60)
        for s in [-abs((n * 0.37) % 1 - 0.9) - abs((n * 0.61) % 1 - 0.1)]
    ]
    outside = [Trial(0, {"x": 5.0, "y": 0.0}, TrialState.COMPLETE, 9.0)]
    study = Study(space=space, sampler=sampler, max_trials=99)
    found = [suggest(study, [], number, [*outside, *earlier]) for number in range(8)]
    assert sum(p["x"] > 0.6 and p["y"] < 0.4 for p in found if p) >= 6


def test_running_trials_push_tpe_away() -> None:
    space = Space.from_json({"x": uniform(0, 1)})
    study = Study(space=space, sampler=Sampler.TPE, direction=Direction.MINIMIZE, max_trials=99)
    done = [Trial(n, {"x": n / 30}, TrialState.COMPLETE, abs(n / 30 - 0.5)) for n in range(30)]
    running = [Trial(n, {"x": 0.5 + (n - 40) / 1000}) for n in range(30, 50)]
    near = [
        sum(
            abs(parameters["x"] - 0.5) < 0.02
            for number in range(50, 80)
            if (parameters := suggest(study, trials, number)) is not None
        )
        for trials in (done, [*done, *running])
    ]
    assert near[1] < near[0]


@pytest.mark.parametrize("sampler", [Sampler.TPE, Sampler.CMAES])
def test_equal_scores_and_a_thousand_trials_do_no_harm(sampler: Sampler) -> None:
    study = Study(space=MIXED, sampler=sampler, max_trials=2000)
    random = Study(space=MIXED, sampler=Sampler.RANDOM, max_trials=2000)
    trials = []
    for number in range(1000):
        parameters = suggest(random, (), number)
        assert parameters is not None
        trials.append(Trial(number, parameters, TrialState.COMPLETE, 0.5))
    parameters = suggest(study, trials, 1000)
    assert parameters is not None
    assert MIXED.contains(parameters)


def test_trials_that_no_longer_fit_the_space_are_left_out() -> None:
    trials = [Trial(n, {"x": n / 10, "old": 1}, TrialState.COMPLETE, 1.0) for n in range(30)]
    for sampler in (Sampler.TPE, Sampler.CMAES, Sampler.RANDOM):
        study = Study(space=Space.from_json({"x": uniform(0, 1)}), sampler=sampler, max_trials=99)
        assert suggest(study, trials, 30) is not None


@pytest.mark.parametrize("sampler", list(Sampler))
def test_after_max_trials_nothing_is_suggested(sampler: Sampler) -> None:
    study = Study(space=NUMBERS, sampler=sampler, max_trials=2)
    assert suggest(study, [], 1) is not None
    assert suggest(study, [], 2) is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sampler": "grid"}, ["'learning_rate'", "step", "sampler"]),
        ({"sampler": "bayes"}, ["sampler is 'bayes'", "tpe"]),
        ({"pruner": 3}, ["pruner is 3", "asha"]),
        ({"direction": "up"}, ["direction is 'up'", "maximize"]),
        ({"seed": -1}, ["seed is -1"]),
        ({"max_trials": 0}, ["max_trials", "continuous"]),
        ({"max_trials": 1.5}, ["max_trials is 1.5"]),
        ({"eta": 1}, ["eta is 1"]),
        ({"min_step": -1}, ["min_step is -1"]),
        ({"space": SIX, "sampler": "quasirandom"}, ["quasirandom", "random"]),
        (
            {"space": Space.from_json({"a": choice(1, 2)}), "sampler": "cmaes"},
            ["cmaes", "numbers", "tpe"],
        ),
        (
            {
                "space": Space.from_json({"a": choice(1, 2), "b": integer(1, 9, when={"a": 1})}),
                "sampler": "cmaes",
            },
            ["cmaes", "always in use"],
        ),
    ],
    ids=str,
)
def test_a_study_that_cannot_be_is_refused(fields: dict[str, Any], words: list[str]) -> None:
    if fields.get("space") is SIX:
        fields = {**fields, "space": Space.from_json({"b": choice("x", "y")})}
    with pytest.raises(SpecError) as error:
        Study(**{"space": MIXED, "max_trials": 9, **fields})
    assert [word for word in words if word not in str(error.value)] == []


def test_a_study_reads_what_kfp_sends() -> None:
    study = Study(space=SIX, direction="minimize", sampler="random", seed=3.0, max_trials="8")  # type: ignore[arg-type]
    assert (study.direction, study.sampler) == (Direction.MINIMIZE, Sampler.RANDOM)
    assert (study.seed, study.max_trials) == (3, 8)
