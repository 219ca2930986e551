from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kfp_jax.sweep import (
    Direction,
    Pruner,
    Space,
    Study,
    Trial,
    TrialState,
    should_prune,
    uniform,
)

SPACE = Space.from_json({"x": uniform(0, 1)})
MOVING = [Pruner.MEDIAN, Pruner.ASHA, Pruner.HYPERBAND]


def study(pruner: Pruner, **fields: Any) -> Study:
    return Study(space=SPACE, pruner=pruner, max_trials=9999, **fields)


def trial(
    number: int, *values: float, state: TrialState = TrialState.RUNNING, every: int = 1
) -> Trial:
    """A trial that reported these values at steps 1, 2, 3 and so on, or every so many."""
    curve = tuple((every * step, value) for step, value in enumerate(values, start=1))
    return Trial(number, {"x": 0.5}, state, values[-1] if values else None, curve)


def complete(number: int, *values: float, every: int = 1) -> Trial:
    return trial(number, *values, state=TrialState.COMPLETE, every=every)


NINE = [complete(n, *[n / 10] * 9) for n in range(9)]  # 0.0 to 0.8, nine steps long


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        pytest.param((0.65,), False, id="at the first rung, two of ten are better"),
        pytest.param((0.6,), False, id="as good as the third of ten"),
        pytest.param((0.55,), True, id="three of ten are better"),
        pytest.param((0.9, 0.1), False, id="between two rungs nothing is decided"),
        pytest.param((0.9, 0.1, 0.1), True, id="at the second rung the value there counts"),
        pytest.param((0.1, 0.1, 0.9), False, id="and not the one at the first"),
        pytest.param((), False, id="nothing reported"),
        pytest.param((0.1,) * 9, False, id="at the full length ending saves nothing"),
    ],
)
def test_asha_lets_one_of_eta_pass_a_rung(values: Sequence[float], ends: bool) -> None:
    asha = study(Pruner.ASHA, min_step=1)
    assert should_prune(asha, trial(9, *values), NINE) is ends


def test_fewer_than_eta_decide_nothing() -> None:
    asha = study(Pruner.ASHA, min_step=1, eta=4)
    assert not should_prune(asha, trial(9, 0.0), [trial(n, 0.5) for n in range(2)])
    assert should_prune(asha, trial(9, 0.0), [trial(n, 0.5) for n in range(3)])


def test_the_first_rung_follows_from_the_longest_complete_trial() -> None:
    asha = study(Pruner.ASHA)
    running = [trial(n, *[0.5] * 26, every=100) for n in range(9)]
    at_once = trial(9, 0.1, every=100)
    assert not should_prune(asha, at_once, running)  # nobody knows how long a trial is
    long = [*running, complete(10, *[0.5] * 27, every=100)]
    assert should_prune(asha, at_once, long)  # rungs at 100, 300, 900
    longer = [*running, complete(10, *[0.5] * 81, every=100)]
    assert not should_prune(asha, at_once, longer)  # rungs at 300, 900, 2700
    assert should_prune(asha, trial(9, 0.9, 0.9, 0.1, every=100), longer)


def test_programs_that_report_at_other_steps_are_compared_at_the_next_one() -> None:
    asha = study(Pruner.ASHA, min_step=10)
    others = [complete(n, *[0.5] * 20, every=7) for n in range(5)]
    assert not should_prune(asha, trial(9, 0.1, every=9), others)
    assert should_prune(asha, trial(9, 0.9, 0.1, every=9), others)


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        pytest.param((0.35,), True, id="worse than the median"),
        pytest.param((0.4,), False, id="as good as the median"),
        pytest.param((0.9, 0.1), False, id="its best value counts"),
        pytest.param((0.1, 0.1, 0.1, 0.1), True, id="at any step"),
        pytest.param((0.1,) * 9, False, id="at the full length ending saves nothing"),
    ],
)
def test_the_median_ends_the_worse_half(values: Sequence[float], ends: bool) -> None:
    assert should_prune(study(Pruner.MEDIAN), trial(9, *values), NINE) is ends


def test_the_median_of_few_and_before_the_first_step_ends_nothing() -> None:
    assert not should_prune(study(Pruner.MEDIAN), trial(9, -1.0), NINE[:4])
    assert should_prune(study(Pruner.MEDIAN), trial(9, -1.0), NINE[:5])
    assert not should_prune(study(Pruner.MEDIAN, min_step=3), trial(9, -1.0, -1.0), NINE)
    assert should_prune(study(Pruner.MEDIAN, min_step=3), trial(9, *[-1.0] * 3), NINE)


def test_hyperband_ends_trials_at_first_rungs_that_differ() -> None:
    hyperband = study(Pruner.HYPERBAND)
    others = [complete(n, *[0.5] * 27) for n in range(490)]
    ended_at = []
    for number in range(490, 980):
        steps = (1, 3, 9)
        worse = [
            step for step in steps if should_prune(hyperband, trial(number, *[0.1] * step), others)
        ]
        ended_at.append(worse[0] if worse else 27)
    shares = [ended_at.count(step) for step in (1, 3, 9, 27)]
    # The paper's numbers of trials for three rungs below the full length: 27, 12, 6 and 4 of 49.
    assert shares == pytest.approx([270, 120, 60, 40], abs=5)


@pytest.mark.parametrize("pruner", MOVING)
def test_none_is_ended_before_anything_is_known(pruner: Pruner) -> None:
    for others in ([], [trial(1)], [trial(9, 5.0)]):
        assert not should_prune(study(pruner), trial(9, 0.1), others)


@pytest.mark.parametrize("pruner", MOVING)
@pytest.mark.parametrize("direction", list(Direction))
def test_equal_values_do_not_end_each_other(pruner: Pruner, direction: Direction) -> None:
    others = [complete(n, *[0.5] * 27) for n in range(100)]
    for step in range(1, 28):
        assert not should_prune(
            study(pruner, direction=direction), trial(200, *[0.5] * step), others
        )


@pytest.mark.parametrize("pruner", list(Pruner))
@settings(max_examples=40)
@given(data=st.data())
def test_a_decision_depends_on_the_set_of_curves_and_turns_with_the_direction(
    pruner: Pruner, data: st.DataObject
) -> None:
    values = st.lists(st.integers(-3, 3).map(float), max_size=9)
    others = [
        trial(number, *data.draw(values), state=data.draw(st.sampled_from(TrialState)))
        for number in range(data.draw(st.integers(0, 12)))
    ]
    own = trial(50, *data.draw(values))
    answer = should_prune(study(pruner), own, others)
    shuffled = data.draw(st.permutations([*others, own]))
    assert should_prune(study(pruner), own, shuffled) is answer
    turned = [trial(t.number, *(-v for _, v in t.curve), state=t.state) for t in others]
    minimize = study(pruner, direction=Direction.MINIMIZE)
    assert should_prune(minimize, trial(50, *(-v for _, v in own.curve)), turned) is answer
    best = trial(50, *[9.0] * len(own.curve))
    assert not should_prune(study(pruner), best, others)
    assert answer is False or pruner is not Pruner.NONE
