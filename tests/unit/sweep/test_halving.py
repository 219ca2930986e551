from kfp_jax.sweep import Direction, Trial, TrialState, rounds, survivors


def test_the_best_complete_trials_go_on() -> None:
    trials = [
        Trial(0, {}, TrialState.COMPLETE, 0.5),
        Trial(1, {}, TrialState.FAILED, 0.9),
        Trial(2, {}, TrialState.COMPLETE, None),
        Trial(3, {}, TrialState.COMPLETE, 0.7),
        Trial(4, {}, TrialState.COMPLETE, 0.5),
    ]
    for some in (trials, trials[::-1]):
        assert [t.number for t in survivors(some, 2, Direction.MAXIMIZE)] == [3, 0]
        assert [t.number for t in survivors(some, 9, Direction.MINIMIZE)] == [0, 4, 3]
    assert survivors([], 3, Direction.MAXIMIZE) == []


def test_each_round_has_one_of_eta_trials_down_to_one() -> None:
    assert rounds(27) == [27, 9, 3, 1]
    assert rounds(10, eta=4) == [10, 2, 1]
    assert rounds(1) == [1]
