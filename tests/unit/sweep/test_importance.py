import json
from typing import Any

import pytest
from kfp_jax.sweep import (
    Direction,
    Sampler,
    Space,
    Study,
    Trial,
    TrialState,
    choice,
    importances,
    suggest,
    uniform,
)

SPACE = Space.from_json(
    {
        "much": uniform(0, 1),
        "little": uniform(0, 1),
        "kind": choice("a", "b"),
        "sometimes": uniform(0, 1, when={"kind": "a"}),
    }
)


def trials(count: int, score: Any) -> list[Trial]:
    study = Study(space=SPACE, sampler=Sampler.RANDOM, max_trials=count)
    found = []
    for number in range(count):
        parameters = suggest(study, (), number)
        assert parameters is not None
        found.append(Trial(number, parameters, TrialState.COMPLETE, score(parameters)))
    return found


@pytest.mark.parametrize("direction", list(Direction))
def test_what_mattered_comes_first(direction: Direction) -> None:
    sign = 1 if direction is Direction.MAXIMIZE else -1
    found = importances(SPACE, trials(200, lambda p: sign * p["much"]), direction)
    assert next(iter(found)) == "much"
    assert set(found) == set(SPACE.entries)
    assert sum(found.values()) == pytest.approx(1)
    assert found["much"] > 0.5


def test_the_order_of_trials_does_not_matter() -> None:
    some = trials(50, lambda p: p["little"])
    one = importances(SPACE, some, Direction.MAXIMIZE)
    other = importances(SPACE, reversed(some), Direction.MAXIMIZE)
    assert json.dumps(one) == json.dumps(other)


def test_it_cannot_be_told_from_few_trials_or_none_with_scores() -> None:
    some = trials(10, lambda p: p["much"])
    assert importances(SPACE, some[:3], Direction.MAXIMIZE) == {}
    unscored = [Trial(t.number, t.parameters, TrialState.COMPLETE) for t in some]
    assert importances(SPACE, unscored, Direction.MAXIMIZE) == {}
    failed = [Trial(t.number, t.parameters, TrialState.FAILED) for t in some]
    assert importances(SPACE, failed, Direction.MAXIMIZE) == {}
    outside = [Trial(t.number, {"x": 1}, TrialState.COMPLETE, 1.0) for t in some]
    assert importances(SPACE, outside, Direction.MAXIMIZE) == {}


def test_equal_scores_and_one_point_do_no_harm() -> None:
    equal = importances(SPACE, trials(20, lambda _: 0.5), Direction.MAXIMIZE)
    assert equal == {} or sum(equal.values()) == pytest.approx(1)
    space = Space.from_json({"a": choice(1)})
    same = [Trial(n, {"a": 1}, TrialState.COMPLETE, 1.0) for n in range(9)]
    assert importances(space, same, Direction.MAXIMIZE) == {}
