"""What a sweep costs beside its trials: makespan, the launcher's CPU and memory.

    python tests/bench/bench_sweep_overhead.py

Trials are real processes of this machine that only sleep and say a score, so that what is left is
the launcher's. Each sweep is run by a launcher of its own, whose CPU is its own alone.
"""

import json
import resource
import subprocess
import sys
import tempfile
from typing import Any

from figures import TAG, Figure, table

PARALLEL = 8
SLEEPERS = 200
SECONDS = 1.0
MAKESPAN_GOAL = 1.05
MANY = 1000
CPU_GOAL_MS = 5.0
MEMORY_GOAL_MB = 150.0
SCORE = f'{TAG}{{"v": 1, "kind": "result", "time": 0, "values": {{"score": 0.5}}}}'


def run_bench() -> dict[str, Any]:
    """Measures 200 trials of a second, and 1,000 of a blink with each of two samplers."""
    sleepers = of_a_sweep("random", SLEEPERS, SECONDS)
    ideal = SLEEPERS / PARALLEL * SECONDS
    what = f"{SLEEPERS} trials of {SECONDS:g} s, {PARALLEL} at once"
    figures = [
        Figure(f"{what}: makespan / ideal", sleepers["makespan"] / ideal, "x", MAKESPAN_GOAL)
    ]
    samples = {"sleepers": sleepers}
    for sampler, goal in (("random", CPU_GOAL_MS), ("tpe", None)):
        many = of_a_sweep(sampler, MANY, 0.0)
        samples[sampler] = many
        what = f"{MANY:,} trials, {sampler}: launcher's"
        figures += [
            Figure(f"{what} CPU a trial", 1000 * many["cpu"] / MANY, "ms", goal),
            Figure(f"{what} memory", many["megabytes"], "MB", MEMORY_GOAL_MB),
        ]
    return {"figures": [figure.to_json() for figure in figures], "samples": samples}


def of_a_sweep(sampler: str, trials: int, seconds: float) -> dict[str, float]:
    """Returns makespan, CPU seconds and peak megabytes of the launcher of a sweep."""
    with tempfile.TemporaryDirectory(prefix="kfp-jax-bench-") as folder:
        asked = (__file__, "--launcher", folder, sampler, str(trials), str(seconds))
        done = subprocess.run([sys.executable, *asked], stdout=subprocess.PIPE, check=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def launcher(folder: str, sampler: str, trials: int, seconds: float) -> dict[str, float]:
    """Runs a sweep in this process and returns what it took."""
    from kfp_jax.backends.local import LocalBackend
    from kfp_jax.cancellation import Cancellation
    from kfp_jax.sinks import NullSink
    from kfp_jax.spec import TrainSpec
    from kfp_jax.sweep import Space, Study, uniform
    from kfp_jax.sweep.spec import SweepSpec
    from kfp_jax.sweep_folder import FolderJournal, sweep_folder
    from kfp_jax.sweep_news import SweepNews
    from kfp_jax.tuning import run_sweep, trial_backend

    job = TrainSpec(
        name="bench",
        output_uri=folder,
        command=("sh", "-c", 'sleep "$1"; echo "$2"', "trial", seconds, SCORE),
        objective="score",
    )
    space = Space.from_json({f"x{index}": uniform(0.0, 1.0) for index in range(4)})
    study = Study(space=space, sampler=sampler, max_trials=trials)
    spec = SweepSpec(job=job, study=study, parallel=PARALLEL)
    with (
        sweep_folder(spec, resume=False) as path,
        trial_backend(LocalBackend(), PARALLEL) as workers,
    ):
        news = SweepNews(spec, NullSink())
        end = run_sweep(spec, workers, FolderJournal(path), sink=news, cancellation=Cancellation())
    complete = sum(trial.score is not None for trial in end.trials)
    if complete != trials:
        raise RuntimeError(f"{trials - complete} trials failed")
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "makespan": end.seconds,
        "cpu": used.ru_utime + used.ru_stime,
        "megabytes": used.ru_maxrss / 1024,
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--launcher"]:
        where, how, count, length = sys.argv[2:]
        print(json.dumps(launcher(where, how, int(count), float(length))))
    else:
        print(table(run_bench()["figures"]))
