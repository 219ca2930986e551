"""How a sweep ended, and the error that stands for it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kfp_jax.errors import JobCancelled, JobFailed, KfpJaxError
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
    TROUBLE = "trouble"  # nothing that a trial has done: a full disk, a cluster that refuses


@dataclass(frozen=True)
class SweepEnd:
    """How a sweep ended.

    Attributes:
        trials: All that were started, by number.
        why: Why no more were.
        seconds: From the first start of the sweep to its end, pauses between starts left out.
        trouble: What ended it, where no trial is to blame.
    """

    trials: tuple[Trial, ...]
    why: End
    seconds: float
    trouble: KfpJaxError | None = None

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
        state=state_of(end),
        ended=words_of(end, spec.most_failed, spec.time_budget),
        makespan=end.seconds,
        parallel=spec.parallel,
        num_nodes=spec.job.num_nodes,
    )


def error_of(spec: SweepSpec, end: SweepEnd, *, going_on: str) -> KfpJaxError | None:
    """Returns the error that stands for a sweep without a result, or None.

    Args:
        spec: The sweep.
        end: How it ended.
        going_on: What goes on with one that was cancelled, such as "the same command".
    """
    if end.trouble:
        return end.trouble
    ended = sum(trial.state.finished for trial in end.trials) - end.count(TrialState.STOPPED)
    if state_of(end) is SweepState.STOPPED:
        return JobCancelled(
            f"The sweep was cancelled; {_trials(ended)} ended and {_kept(ended)} kept, and"
            f" {going_on} goes on with the others."
        )
    return failure_of(end, words_of(end, spec.most_failed, spec.time_budget))


def failure_of(end: SweepEnd, words: str) -> JobFailed | None:
    """Returns the error of a sweep that ended so and has failed, with what its trials share."""
    if state_of(end) is not SweepState.FAILED:
        return None
    return JobFailed(f"The sweep failed: {words}{_commonest_failure(end.trials)}")


def state_of(end: SweepEnd) -> SweepState:
    """Returns where a sweep stands that ended so."""
    if end.why in (End.CANCELLED, End.TROUBLE):
        return SweepState.STOPPED
    if end.why is End.FAILED_BUDGET or not end.count(TrialState.COMPLETE):
        return SweepState.FAILED
    return SweepState.SUCCEEDED


def _trials(count: int) -> str:
    return f"{count} trial{'s' if count != 1 else ''}"


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _kept(count: int) -> str:
    return "is" if count == 1 else "are"


def words_of(end: SweepEnd, most_failed: int, time_budget: float = 0.0) -> str:
    """Returns why it ended, as the end of a sentence."""
    match end.why:
        case End.DONE:
            cancelled = end.count(TrialState.STOPPED)  # by us there is none when all were made
            count = len(end.trials)
            made = f"all {count} trials were made" if count != 1 else "the one trial was made"
            if not cancelled:
                return made
            return f"{made}, but {cancelled} {_was(cancelled)} cancelled by somebody else"
        case End.EXHAUSTED:
            return f"all {len(end.trials)} points of the search space were tried"
        case End.TIME_BUDGET:
            return f"its time budget of {time_budget:g} s is used up"
        case End.FAILED_BUDGET:
            failed = end.count(TrialState.FAILED)
            return f"{_trials(failed)} failed and at most {most_failed} may"
        case End.CANCELLED:
            return "it was cancelled"
        case End.TROUBLE:
            return str(end.trouble).rstrip(".")


def _commonest_failure(trials: Iterable[Trial]) -> str:
    """Returns the end of a sentence: the diagnosis that most failed trials share."""
    failed = [trial for trial in trials if trial.state is TrialState.FAILED]
    if not failed:
        return ", but none is complete."
    reason, times = Counter(trial.reason for trial in failed).most_common(1)[0]
    first = next(trial for trial in failed if trial.reason == reason)
    return f"; {times} of {len(failed)} by {reason}, such as trial {first.number}: {first.message}"
