from kfp_jax.sweep import Direction, Trial, TrialState, survivors


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
