"""What a sweep came to: its best trial, and what its machine time was spent on."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from kfp_jax.sweep.trial import Direction, Trial, TrialState, ranked

SCHEMA = 1


class SweepState(StrEnum):
    """Where a sweep stands."""

    SUCCEEDED = "SUCCEEDED"  # it came to its end, whatever some of its trials did
    FAILED = "FAILED"  # too many trials failed, or none completed
    STOPPED = "STOPPED"  # ended before its time because somebody asked for it


@dataclass(frozen=True)
class MachineTime:
    """Seconds of machines: those of every trial, times the nodes of a trial.

    Attributes:
        used: By all trials.
        useful: By complete trials.
        pruned: By trials that were ended early because others were better.
        wasted: By failed and stopped trials.
        saved: What pruning saved. An estimate: it assumes that a pruned trial would have run as
            long as the mean complete one; 0 when no trial is complete.
    """

    used: float
    useful: float
    pruned: float
    wasted: float
    saved: float


@dataclass(frozen=True)
class SweepSummary:
    """A sweep at its end, or so far.

    Attributes:
        objective: Name of the reported value that is the score.
        direction: Which scores are better.
        program: Module that every trial trains.
        parameters: Those that all trials share.
        sampler: What suggested the trials, such as `tpe`.
        pruner: What ended trials early, such as `asha`; or "".
        seed: Of sampler and pruner; None when the sweep had none.
        state: Where the sweep stands.
        ended: Why it ended, in words such as "all 40 trials are made"; or "".
        counts: Trials by state; every state is in it.
        best: The best complete trial; None without any.
        makespan: Seconds from the sweep's beginning to its end; None when nobody measured it.
        parallel: At most so many trials ran at once; None when the pipeline decided it.
        num_nodes: Nodes of each trial.
        machine_time: What the trials' time was spent on.
    """

    objective: str
    direction: Direction
    program: str
    parameters: Mapping[str, Any]
    sampler: str
    pruner: str
    seed: int | None
    state: SweepState
    ended: str
    counts: Mapping[TrialState, int]
    best: Trial | None
    makespan: float | None
    parallel: int | None
    num_nodes: int
    machine_time: MachineTime

    def to_json(self) -> dict[str, Any]:
        """Returns the summary as a JSON object, the content of `sweep.json`."""
        values: dict[str, Any] = {"schema": SCHEMA}
        for name, value in vars(self).items():
            values[name] = value
        return values | {
            "parameters": dict(self.parameters),
            "counts": {str(state): count for state, count in self.counts.items()},
            "best": self.best.to_json() if self.best is not None else None,
            "machine_time": asdict(self.machine_time),
        }


def summarize(
    trials: Sequence[Trial],
    *,
    objective: str,
    direction: Direction,
    program: str,
    parameters: Mapping[str, Any] | None = None,
    sampler: str = "",
    pruner: str = "",
    seed: int | None = None,
    state: SweepState = SweepState.SUCCEEDED,
    ended: str = "",
    makespan: float | None = None,
    parallel: int | None = None,
    num_nodes: int = 1,
) -> SweepSummary:
    """Returns the summary of a sweep with these trials; the rest is as in `SweepSummary`."""
    best = next(iter(ranked(trials, direction)), None)
    return SweepSummary(
        objective=objective,
        direction=direction,
        program=program,
        parameters=parameters or {},
        sampler=sampler,
        pruner=pruner,
        seed=seed,
        state=state,
        ended=ended,
        counts={one: sum(trial.state is one for trial in trials) for one in TrialState},
        best=best,
        makespan=makespan,
        parallel=parallel,
        num_nodes=num_nodes,
        machine_time=machine_time(trials, num_nodes),
    )


def machine_time(trials: Sequence[Trial], num_nodes: int) -> MachineTime:
    """Returns what the trials' time was spent on."""

    def seconds(*states: TrialState) -> list[float]:
        return [trial.seconds for trial in trials if trial.state in states]

    complete, pruned = seconds(TrialState.COMPLETE), seconds(TrialState.PRUNED)
    usual = sum(complete) / len(complete) if complete else 0.0
    return MachineTime(
        used=num_nodes * sum(seconds(*TrialState)),
        useful=num_nodes * sum(complete),
        pruned=num_nodes * sum(pruned),
        wasted=num_nodes * sum(seconds(TrialState.FAILED, TrialState.STOPPED)),
        saved=num_nodes * sum(max(usual - spent, 0.0) for spent in pruned),
    )
