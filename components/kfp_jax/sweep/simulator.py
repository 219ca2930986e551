"""A sweep in virtual time: trials run along known learning curves, nothing is trained.

For tests, and to compare ways of searching over a table of recorded curves.
"""

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kfp_jax.sweep.pruning import should_prune
from kfp_jax.sweep.study import Study
from kfp_jax.sweep.suggestions import suggest
from kfp_jax.sweep.trial import Trial, TrialState


class Report(NamedTuple):
    """One report of a trial: the objective at a step, and seconds since the trial began."""

    step: int
    value: float
    seconds: float


# The reports of a trial that runs to its end, from its parameters and its number.
Curves = Callable[[Mapping[str, Any], int], Sequence[Report]]


@dataclass(frozen=True)
class Simulation:
    """What came out.

    Attributes:
        trials: By number, with their beginnings and lengths in virtual seconds.
        makespan: Virtual seconds from the first beginning to the last end.
    """

    trials: Sequence[Trial]
    makespan: float

    @property
    def machine_seconds(self) -> float:
        """The time that all trials took together."""
        return sum(trial.seconds for trial in self.trials)


def simulate(
    study: Study,
    curves: Curves,
    *,
    parallel: int,
    failures: Collection[int] = (),
    earlier: Sequence[Trial] = (),
    seconds: float = float("inf"),
) -> Simulation:
    """Returns the trials of a study whose learning curves are known.

    Args:
        study: What decides.
        curves: Gives the reports of a trial.
        parallel: How many trials run at once.
        failures: Trials that fail where their last report would have been.
        earlier: Trials of an earlier sweep.
        seconds: No trial begins once so much virtual time has passed.
    """
    trials: dict[int, Trial] = {}
    reports: dict[int, Sequence[Report]] = {}
    due: list[tuple[float, int, int]] = []  # when, trial, which of its reports

    def begin(now: float) -> bool:
        number = len(trials)
        parameters = (
            suggest(study, tuple(trials.values()), number, earlier) if now < seconds else None
        )
        if parameters is None:
            return False
        trials[number] = Trial(number, parameters, started=now)
        reports[number] = curves(parameters, number)
        first = reports[number][0].seconds if reports[number] else 0.0
        heapq.heappush(due, (now + first, number, 0))
        return True

    while len(due) < parallel and begin(0.0):
        pass
    makespan = 0.0
    while due:
        now, number, index = heapq.heappop(due)
        trial = _after_report(trials[number], reports[number], index, number in failures)
        if not trial.state.finished and should_prune(study, trial, trials.values()):
            trial = replace(trial, state=TrialState.PRUNED)
        if trial.state.finished:
            makespan = max(makespan, now)
            trials[number] = replace(trial, seconds=now - trial.started)
            begin(now)
        else:
            trials[number] = trial
            following = trial.started + reports[number][index + 1].seconds
            heapq.heappush(due, (following, number, index + 1))
    return Simulation(tuple(trials.values()), makespan)


def _after_report(trial: Trial, reports: Sequence[Report], index: int, fails: bool) -> Trial:
    if not reports:
        state = TrialState.FAILED if fails else TrialState.COMPLETE
        return replace(trial, state=state)
    last = index == len(reports) - 1
    if last and fails:
        return replace(trial, state=TrialState.FAILED, reason="simulated")
    point = reports[index]
    return replace(
        trial,
        curve=(*trial.curve, (point.step, point.value)),
        score=point.value,
        state=TrialState.COMPLETE if last else TrialState.RUNNING,
    )
