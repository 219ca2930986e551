"""Which running trial to end, as others were better at the same step: decisions over curves."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from kfp_jax.sweep.study import Pruner, Study
from kfp_jax.sweep.trial import Direction, Trial, TrialState

# The median of fewer says little.
_LEAST_FOR_MEDIAN = 5
# Where no first rung is given, so many rungs lie below the full length.
_RUNGS = 3
_GOLDEN = (5**0.5 - 1) / 2


def should_prune(study: Study, trial: Trial, others: Iterable[Trial]) -> bool:
    """Returns whether to end a running trial at its newest report.

    Ask at each report of a trial: a rung decides at the first report that reaches it. The answer
    depends on the reports alone, not on the order of `others`, which may hold the trial itself and
    trials in any state. Equal values never end each other, and nothing is ended at or beyond the
    length of a complete trial, where ending it would save nothing.
    """
    if study.pruner is Pruner.NONE or not trial.curve:
        return False
    rivals = [other for other in others if other.number != trial.number and other.curve]
    length = _full_length(rivals)
    if length and trial.curve[-1][0] >= length:
        return False
    if study.pruner is Pruner.MEDIAN:
        return _below_median(study, trial, rivals)
    first_rung = study.min_step or -(-length // study.eta**_RUNGS)
    if not first_rung:
        return False
    if study.pruner is Pruner.HYPERBAND:
        return _below_rung_of_bracket(study, trial, rivals, first_rung, length)
    return _below_rung(study, trial, rivals, first_rung)


def _below_median(study: Study, trial: Trial, rivals: Sequence[Trial]) -> bool:
    """The median rule of Vizier (Golovin et al., KDD 2017), on the values at the same step.

    The trial's best value so far is compared, so that one bad report ends nothing.
    """
    step = trial.curve[-1][0]
    if step < study.min_step:
        return False
    values = _values_at(rivals, step)
    own = _best((value for _, value in trial.curve), study.direction)
    return len(values) >= _LEAST_FOR_MEDIAN and 2 * _better(values, own, study) > len(values)


def _below_rung(study: Study, trial: Trial, rivals: Sequence[Trial], first_rung: int) -> bool:
    """The rule of ASHA (Li et al., MLSys 2020) in the form that ends trials and pauses none.

    Of the trials that have reached a rung, one of `eta` goes on.
    """
    rung = _rung_just_reached(trial.curve, first_rung, study.eta)
    if rung is None:
        return False
    values = _values_at(rivals, rung)
    reached = len(values) + 1
    if reached < study.eta:
        return False
    return _better(values, trial.curve[-1][1], study) >= reached // study.eta


def _rung_just_reached(curve: Sequence[tuple[int, float]], first_rung: int, eta: int) -> int | None:
    """Returns the highest rung that the newest report reached, if the one before it had not."""
    newest = curve[-1][0]
    before = curve[-2][0] if len(curve) > 1 else -1
    rung = first_rung
    while rung * eta <= newest:
        rung *= eta
    return rung if before < rung <= newest else None


def _below_rung_of_bracket(
    study: Study, trial: Trial, rivals: Sequence[Trial], first_rung: int, length: int
) -> bool:
    """The rule of Hyperband (Li et al., JMLR 2018): brackets whose first rungs lie apart.

    The last bracket's first rung is the full length, so that it ends no trial. The paper's bracket
    with `s` rungs below the full length has about eta**s / (s + 1) trials.
    """
    brackets = 1
    while first_rung * study.eta**brackets <= length:
        brackets += 1
    shares = [study.eta**rungs / (rungs + 1) for rungs in reversed(range(brackets))]
    ends = [end / sum(shares) for end in accumulate(shares)]
    bracket = _bracket_of(trial.number, ends)
    mates = [other for other in rivals if _bracket_of(other.number, ends) == bracket]
    return _below_rung(study, trial, mates, first_rung * study.eta**bracket)


def _bracket_of(number: int, ends: Sequence[float]) -> int:
    # Multiples of the golden ratio spread the trials over the brackets as they come.
    return min(bisect_right(ends, number * _GOLDEN % 1.0), len(ends) - 1)


def _full_length(rivals: Iterable[Trial]) -> int:
    """Returns the last step of the longest complete trial, or 0."""
    complete = (other.curve[-1][0] for other in rivals if other.state is TrialState.COMPLETE)
    return max(complete, default=0)


def _values_at(rivals: Iterable[Trial], step: int) -> Sequence[float]:
    """Returns what those that came so far reported at a step, or next after it."""
    place = (step,)
    return [
        other.curve[bisect_left(other.curve, place)][1]
        for other in rivals
        if other.curve[-1][0] >= step
    ]


def _better(values: Iterable[float], own: float, study: Study) -> int:
    """Returns how many of the values are better than one's own."""
    if study.direction is Direction.MAXIMIZE:
        return sum(value > own for value in values)
    return sum(value < own for value in values)


def _best(values: Iterable[float], direction: Direction) -> float:
    return max(values) if direction is Direction.MAXIMIZE else min(values)
