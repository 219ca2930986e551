"""Trials a minute of a sweep's trials, each a short MNIST training, two at a time on two cores.

    python tests/bench/bench_sweep_trials.py [TRIALS]

The same program with the same random learning rates, by warm workers, by a process a trial, and by
others' means. For each way the clock runs from nothing to the last result; all find the compiled
code in the same cache on disk, as every sweep but a machine's first does.
"""

import functools
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from figures import Figure, table
from kfp_jax.backends.base import Backend
from kfp_jax.backends.local import LocalBackend
from kfp_jax.backends.warm import WarmBackend
from kfp_jax.launch import launch
from kfp_jax.spec import TrainSpec
from training import prepare

TRIALS = 40
AT_ONCE = 2
CORES = 2
HERE = Path(__file__).parent
RAY = HERE.parents[1] / "build" / "ray" / "bin" / "python"
INSTALL_RAY = (
    f"python -m venv {RAY.parents[1]} && {RAY.with_name('pip')} install -c constraints.txt"
    " -e '.[jax]' 'ray[tune]==2.60.*'"
)
WARM, FRESH, OPTUNA = "warm workers", "one process a trial", "Optuna, a pool by hand"
RAY_FUNCTION, RAY_REUSE = "Ray Tune", "Ray Tune, reuse_actors"
GOALS = {FRESH: 2.5, RAY_FUNCTION: 2.0, RAY_REUSE: 1.3, OPTUNA: 1.0}


def run_bench(trials: int = TRIALS) -> dict[str, Any]:
    """Runs the trials each way and returns the rates and their ratios."""
    if not RAY.exists():
        raise RuntimeError(f"Ray is not there to compare with; install it with: {INSTALL_RAY}")
    seconds: dict[str, float] = {}
    scores: dict[str, list[float]] = {}
    cpu: dict[str, float] = {}
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[:CORES])
    try:
        with tempfile.TemporaryDirectory(prefix="kfp-jax-bench-") as name:
            folder = Path(name)
            environ = {
                **os.environ,
                "JAX_PLATFORMS": "cpu",
                "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            }
            dataset = prepare(folder)
            draw = random.Random(0)
            rates = [10 ** draw.uniform(-4, -1) for _ in range(trials)]
            # Fills the cache, with code for one core and for two.
            for run in (by_processes, by_workers):
                run(environ, folder / f"first-{run.__name__}", dataset, rates[:1])
            for way, run in WAYS.items():
                output = folder / way.replace(" ", "-")
                before = cpu_seconds()
                seconds[way], scores[way] = run(environ, output, dataset, rates)
                cpu[way] = cpu_seconds() - before
                print(f"{way}: {seconds[way]:.1f} s", flush=True)
    finally:
        os.sched_setaffinity(0, cores)
    if scores[WARM] != scores[OPTUNA]:
        raise RuntimeError("warm workers and the pool by hand did not train to the same scores")
    rate = {way: 60 * trials / taken for way, taken in seconds.items()}
    what = f"{trials} MNIST trials of 1 epoch, bundled data, 2 at once"
    figures = [Figure(f"{what}: {WARM}", rate[WARM], "/min")]
    for way, goal in GOALS.items():
        figures.append(Figure(f"  over {way}", rate[WARM] / rate[way], "x", goal, True))
        figures.append(Figure(f"  {way}", rate[way], "/min"))
    figures += [
        Figure(f"  CPU seconds a trial, {way}", cpu[way] / trials, "s")
        for way in (WARM, FRESH, OPTUNA)  # Ray's workers are not this process's children
    ]
    return {
        "figures": [figure.to_json() for figure in figures],
        "seconds": seconds,
        "cpu_seconds": cpu,
        "scores": scores,
        "rates": rates,
    }


def cpu_seconds() -> float:
    """Returns what this process and all its children that have ended have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(item.ru_utime + item.ru_stime for item in used)


def by_processes(
    environ: dict[str, str], output: Path, dataset: Path, rates: list[float]
) -> tuple[float, list[float]]:
    return ours(LocalBackend(environ=environ), output, dataset, rates)


def by_workers(
    environ: dict[str, str], output: Path, dataset: Path, rates: list[float]
) -> tuple[float, list[float]]:
    began = time.monotonic()
    with WarmBackend(AT_ONCE, environ=environ) as backend:
        _, scores = ours(backend, output, dataset, rates)
    return time.monotonic() - began, scores


def ours(
    backend: Backend, output: Path, dataset: Path, rates: list[float]
) -> tuple[float, list[float]]:
    """Launches a trial for each learning rate on a backend."""

    def trial(number: int) -> float:
        outcome = launch(
            TrainSpec(
                name="trial",
                program="kfp_jax_runtime.mnist",
                parameters={"epochs": 1, "learning_rate": rates[number]},
                dataset_uri=str(dataset),
                output_uri=str(output / str(number)),
                objective="accuracy",
            ),
            backend,
        )
        if error := outcome.error():
            raise error
        return outcome.metrics["accuracy"]

    began = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        scores = list(threads.map(trial, range(len(rates))))
    return time.monotonic() - began, scores


def theirs(
    way: str, environ: dict[str, str], output: Path, dataset: Path, rates: list[float]
) -> tuple[float, list[float]]:
    """Runs the trials by `peer_trials`, in a process of its own."""
    output.mkdir()
    trials = output / "trials.json"
    given = {"dataset": str(dataset), "output": str(output), "rates": rates}
    trials.write_text(json.dumps(given))
    python = sys.executable if way == "optuna" else str(RAY)
    command = [python, str(HERE / "peer_trials.py"), way, str(trials)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{way} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    return result["seconds"], result["scores"]


WAYS = {
    FRESH: by_processes,
    WARM: by_workers,
    OPTUNA: functools.partial(theirs, "optuna"),
    RAY_FUNCTION: functools.partial(theirs, "ray"),
    RAY_REUSE: functools.partial(theirs, "ray-reuse"),
}

if __name__ == "__main__":
    print(table(run_bench(*map(int, sys.argv[1:2]))["figures"]))
