"""Trials as a real sweep makes them: MNIST-like curves, pruned by successive halving."""

import math
import random
from collections.abc import Sequence
from typing import Any

from kfp_jax.sweep.summary import SweepSummary, summarize
from kfp_jax.sweep.trial import Direction, Trial, TrialState

OUT_OF_MEMORY = (
    "Job {job} failed: process 0 was killed because its memory ran out (limit 2 GiB); raise the "
    "memory or lower batch_size."
)
NOT_FINITE = "Job {job} failed: process 0 raised FloatingPointError: loss is nan at step 120."
EPOCHS, STEPS = 9, 117
RUNGS = (1, 3, 9)
PARALLEL = 4


def mnist_trials(count: int, *, seed: int = 0, jobs: bool = True) -> list[Trial]:
    """Returns the trials of a sweep; without jobs as a pipeline's loop makes them."""
    rng = random.Random(seed)
    free_at = [0.0] * PARALLEL
    at_rung: dict[int, list[float]] = {rung: [] for rung in RUNGS}
    trials = []
    for number in range(count):
        slot = free_at.index(min(free_at))
        trial = _trial(number, rng, at_rung, started=free_at[slot] if jobs else 0.0, jobs=jobs)
        free_at[slot] += trial.seconds + 0.4
        trials.append(trial)
    return trials


def _trial(
    number: int, rng: random.Random, at_rung: dict[int, list[float]], *, started: float, jobs: bool
) -> Trial:
    parameters = _parameters(rng)
    job = f"mnist-sweep-1a2b-t{number}"
    common: dict[str, Any] = {"started": started}
    if jobs:
        common |= {"job": job, "output_uri": f"/output/trials/{number}"}
    if parameters["batch_size"] == 512 and parameters["width"] > 100:
        message = OUT_OF_MEMORY.format(job=job)
        return Trial(
            number, parameters, TrialState.FAILED, None, (), seconds=rng.uniform(4, 6),
            reason="out-of-memory", message=message, **common,
        )  # fmt: skip
    curve, state = _curve(parameters, rng, at_rung)
    seconds = 3.5 + len(curve) * 4.2 * rng.uniform(0.9, 1.1)
    if parameters["learning_rate"] > 0.05:
        message = NOT_FINITE.format(job=job)
        return Trial(
            number, parameters, TrialState.FAILED, curve[0][1], curve[:1], seconds=seconds / 3,
            reason="exception", message=message, **common,
        )  # fmt: skip
    if state is TrialState.COMPLETE:
        common["model_uri"] = f"/output/trials/{number}/model"
    return Trial(number, parameters, state, curve[-1][1], curve, seconds=seconds, **common)


def _parameters(rng: random.Random) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "learning_rate": 10 ** rng.uniform(-4, -1),
        "batch_size": rng.choice([32, 64, 128, 256, 512]),
        "width": rng.randrange(16, 129, 16),
        "optimizer": rng.choice(["adam", "sgd", "lion"]),
    }
    if parameters["optimizer"] == "sgd":
        parameters["momentum"] = round(rng.uniform(0, 0.99), 3)
    return parameters


def _curve(
    parameters: dict[str, Any], rng: random.Random, at_rung: dict[int, list[float]]
) -> tuple[tuple[tuple[int, float], ...], TrialState]:
    """Returns a curve up to the rung at which it is not among the better third."""
    off = abs(math.log10(parameters["learning_rate"]) + 2.4)
    limit = 0.993 - 0.012 * off**2 - 0.25 / parameters["width"] - rng.uniform(0, 0.004)
    pace = 1.1 - 0.25 * off + (0.2 if parameters["optimizer"] == "adam" else 0)
    points = []
    for epoch in range(1, EPOCHS + 1):
        value = limit - (limit - 0.1) * math.exp(-pace * (epoch + 1.2)) - rng.uniform(0, 0.002)
        points.append((epoch * STEPS, value))
        if epoch in at_rung and epoch != EPOCHS:
            at_rung[epoch].append(value)
            better = sorted(at_rung[epoch], reverse=True)
            if value < better[math.ceil(len(better) / 3) - 1]:
                return tuple(points), TrialState.PRUNED
    return tuple(points), TrialState.COMPLETE


def mnist_summary(trials: Sequence[Trial], **changes: Any) -> SweepSummary:
    """Returns their summary."""
    settings: dict[str, Any] = {
        "objective": "test_accuracy",
        "direction": Direction.MAXIMIZE,
        "program": "kfp_jax_runtime.mnist",
        "parameters": {"epochs": EPOCHS, "seed": 0},
        "sampler": "tpe",
        "pruner": "asha",
        "seed": 0,
        "ended": f"all {len(trials):,} trials are made",
        "parallel": PARALLEL,
        "makespan": max((trial.started + trial.seconds for trial in trials), default=0.0),
    }
    return summarize(trials, **settings | changes)


IMPORTANCES = {
    "learning_rate": 0.71, "width": 0.16, "optimizer": 0.08, "batch_size": 0.03, "momentum": 0.02,
}  # fmt: skip
