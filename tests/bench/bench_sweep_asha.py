"""Whether ending trials early pays: ASHA against none at equal machine time, on real curves.

    python tests/bench/bench_sweep_asha.py

Records the learning curves of 100 MNIST trainings with random hyperparameters, then has sweeps with
ten seeds search that table in virtual time. An epoch of any of them costs the same: one second.
"""

import json
import math
import os
import random
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from figures import Figure, table
from kfp_jax.backends.local import LocalBackend
from kfp_jax.cancellation import Cancellation
from kfp_jax.sinks import NullSink
from kfp_jax.spec import TrainSpec
from kfp_jax.sweep import (
    Direction,
    Pruner,
    Report,
    Sampler,
    Space,
    Study,
    TrialState,
    choice,
    loguniform,
    simulate,
    uniform,
)
from kfp_jax.sweep.spec import SweepSpec
from kfp_jax.sweep_folder import FolderJournal, sweep_folder
from kfp_jax.sweep_news import SweepNews
from kfp_jax.tuning import run_sweep, trial_backend
from training import prepare

TRAININGS = 100
EPOCHS = 27
SEEDS = 10
WORKERS = 4
# How many full trainings of each worker fit into the time that a sweep has, and in how many seeds
# ASHA should then be better. With little time it suffers from its first trials, which nothing ends.
BUDGETS = {2: None, 4: 8, 6: None}
SPACE = {
    "learning_rate": loguniform(1e-4, 1e-1),
    "weight_decay": loguniform(1e-5, 1.0),
    "dropout": uniform(0.0, 0.8),
    "warmup_fraction": uniform(0.0, 0.6),
    "label_smoothing": uniform(0.0, 0.4),
    "max_shift_pixels": uniform(0.0, 4.0),
}

Curve = Sequence[float]


def run_bench() -> dict[str, Any]:
    """Records the curves, and compares both ways on them."""
    curves = recorded()
    figures: list[Figure] = []
    samples: dict[int, list[tuple[float, float]]] = {}
    for rounds, goal in BUDGETS.items():
        bests = samples[rounds] = [
            (best(curves, Pruner.NONE, seed, rounds), best(curves, Pruner.ASHA, seed, rounds))
            for seed in range(SEEDS)
        ]
        better = sum(asha < none for none, asha in bests)
        worse = sum(asha > none for none, asha in bests)
        what = f"in the time of {rounds * WORKERS} trainings, of {SEEDS} seeds"
        figures += [
            Figure(f"ASHA better than random {what}", better, "", goal, at_least=True),
            Figure("  worse", worse, ""),
            Figure("  mean best test loss, random", _mean(none for none, _ in bests), ""),
            Figure("  mean best test loss, ASHA", _mean(asha for _, asha in bests), ""),
        ]
    figures.append(Figure("best of the whole table", min(curve[-1] for curve in curves), ""))
    return {
        "figures": [figure.to_json() for figure in figures],
        "curves": curves,
        "best": samples,
    }


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)


def recorded() -> list[Curve]:
    """Trains, and returns the test loss after each epoch of each training."""
    with tempfile.TemporaryDirectory(prefix="kfp-jax-bench-") as name:
        folder = Path(name)
        job = TrainSpec(
            name="bench",
            program="kfp_jax_runtime.mnist",
            parameters={"epochs": EPOCHS, "channels": [8], "hidden": 16},
            objective="test_loss",  # finer than an accuracy: hardly ever are two equal
            dataset_uri=str(prepare(folder)),
            output_uri=str(folder / "sweep"),
        )
        space = Space.from_json(SPACE)
        study = Study(
            space=space, direction=Direction.MINIMIZE, sampler=Sampler.RANDOM, max_trials=TRAININGS
        )
        cores = len(os.sched_getaffinity(0))
        spec = SweepSpec(job=job, study=study, parallel=cores, max_failed=TRAININGS)
        with (
            sweep_folder(spec, resume=False) as path,
            trial_backend(LocalBackend(), cores) as workers,
        ):
            news = SweepNews(spec, NullSink())
            journal = FolderJournal(path)
            end = run_sweep(spec, workers, journal, sink=news, cancellation=Cancellation())
    curves = [[value for _, value in trial.curve] for trial in end.trials]
    whole = [curve for curve in curves if len(curve) == EPOCHS]
    if len(whole) < TRAININGS * 0.9:
        raise RuntimeError(f"only {len(whole)} of {TRAININGS} trainings came to their end")
    return whole


def best(curves: Sequence[Curve], pruner: Pruner, seed: int, rounds: int) -> float:
    """Returns the best final loss that a sweep has when its time is over."""
    order = list(range(len(curves)))
    random.Random(seed).shuffle(order)
    space = Space.from_json({"training": choice(*order)})
    study = Study(
        space=space,
        direction=Direction.MINIMIZE,
        sampler=Sampler.RANDOM,
        pruner=pruner,
        seed=seed,
        max_trials=len(curves),
        min_step=1,
    )

    def reports(parameters: Mapping[str, Any], number: int) -> list[Report]:
        curve = curves[parameters["training"]]
        return [Report(epoch, value, float(epoch)) for epoch, value in enumerate(curve, start=1)]

    budget = float(rounds * EPOCHS)
    trials = simulate(study, reports, parallel=WORKERS, seconds=budget).trials
    done = (trial for trial in trials if trial.state is TrialState.COMPLETE)
    within = (trial for trial in done if trial.started + trial.seconds <= budget)
    return min((trial.score for trial in within if trial.score is not None), default=math.inf)


if __name__ == "__main__":
    result = run_bench()
    print(json.dumps(result["curves"]))
    print(table(result["figures"]))
