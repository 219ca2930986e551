"""How a sweep ended, and the error that stands for it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kfp_jax.errors import JobCancelled, JobError, JobFailed
from kfp_jax.sweep.spec import SweepSpec
from kfp_jax.sweep.summary import SweepState, SweepSummary, summarize
from kfp_jax.sweep.trial import Trial, TrialState


class End(StrEnum):
    """Why no more trials were started."""

    DONE = "done"  # as many as were asked for
    EXHAUSTED = "exhausted"  # the search space has no other point
    TIME_BUDGET = "time-budget"
    FAILED_BUDGET = "failed-budget"  # more trials failed than may
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class SweepEnd:
    """How a sweep ended.

    Attributes:
        trials: All that were started, by number.
        why: Why no more were.
        seconds: From the first start of the sweep to its end, pauses between starts left out.
    """

    trials: tuple[Trial, ...]
    why: End
    seconds: float

    def count(self, state: TrialState) -> int:
        """Returns how many trials are in that state."""
        return sum(trial.state is state for trial in self.trials)


def summary_of(spec: SweepSpec, end: SweepEnd) -> SweepSummary:
    """Returns what the sweep came to."""
    study = spec.study
    return summarize(
        end.trials,
        objective=spec.job.objective,
        direction=study.direction,
        program=spec.job.program or " ".join(spec.job.command),
        parameters=spec.job.parameters,
        sampler=study.sampler.value,
        pruner="" if study.pruner == "none" else study.pruner.value,
        seed=study.seed,
        state=_state(end),
        ended=_words(spec, end),
        makespan=end.seconds,
        parallel=spec.parallel,
        num_nodes=spec.job.num_nodes,
    )


def error_of(spec: SweepSpec, end: SweepEnd) -> JobError | None:
    """Returns the error that stands for a sweep without a result, or None."""
    ended = sum(trial.state.finished for trial in end.trials) - end.count(TrialState.STOPPED)
    match _state(end):
        case SweepState.STOPPED:
            return JobCancelled(
                f"The sweep was cancelled; {ended} trials have ended and are kept, and the same"
                " sweep in the same folder goes on with the others."
            )
        case SweepState.FAILED:
            return JobFailed(
                f"The sweep failed: {_words(spec, end)}{commonest_failure(end.trials)}"
            )
        case _:
            return None


def _state(end: SweepEnd) -> SweepState:
    if end.why is End.CANCELLED:
        return SweepState.STOPPED
    if end.why is End.FAILED_BUDGET or not end.count(TrialState.COMPLETE):
        return SweepState.FAILED
    return SweepState.SUCCEEDED


def _words(spec: SweepSpec, end: SweepEnd) -> str:
    match end.why:
        case End.DONE:
            return f"all {len(end.trials)} trials were made"
        case End.EXHAUSTED:
            return f"all {len(end.trials)} points of the search space were tried"
        case End.TIME_BUDGET:
            return f"its time budget of {spec.time_budget:g} s is used up"
        case End.FAILED_BUDGET:
            failed = end.count(TrialState.FAILED)
            return f"{failed} trials failed and at most {spec.max_failed} may"
        case End.CANCELLED:
            return "it was cancelled"


def commonest_failure(trials: Iterable[Trial]) -> str:
    """Returns the end of a sentence: the diagnosis that most failed trials share."""
    failed = [trial for trial in trials if trial.state is TrialState.FAILED]
    if not failed:
        return ", but none is complete."
    reason, times = Counter(trial.reason for trial in failed).most_common(1)[0]
    first = next(trial for trial in failed if trial.reason == reason)
    return f"; {times} of {len(failed)} by {reason}, such as trial {first.number}: {first.message}"
