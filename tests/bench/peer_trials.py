"""The trials of bench_sweep_trials by others' means, calling the same training function.

    python tests/bench/peer_trials.py optuna|ray|ray-reuse TRIALS.json

TRIALS.json: `dataset`, `output`, `rates`. Prints {"seconds": ..., "scores": [...]}; of Ray the
seconds are those of `fit`, not of starting Ray.
"""

import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def train(dataset: str, output: str, rate: float) -> float:
    """Trains as a trial of `kfp-jax` does, in this process, and returns the accuracy."""
    from kfp_jax_runtime import mnist
    from kfp_jax_runtime.node import from_environment
    from kfp_jax_runtime.program import load
    from kfp_jax_runtime.report import Reporter
    from kfp_jax_runtime.run import Run

    Path(output).mkdir(parents=True)
    parameters = {"epochs": 1, "learning_rate": rate}
    environ = {
        "KFP_JAX_OUTPUT_URI": output,
        "KFP_JAX_DATASET_URI": dataset,
        "KFP_JAX_PARAMETERS": json.dumps(parameters),
    }
    program = load(mnist.__name__, parameters)
    node = from_environment(environ)
    reporter = Reporter(0, 1, write=lambda line: None)
    run = Run(node, program.effective(parameters), reporter, stop=lambda: False)
    scores = program(run)
    run.wait()
    return float(scores["accuracy"])  # type: ignore[arg-type]


@dataclass(frozen=True)
class Trials:
    dataset: str
    output: str
    rates: list[float]


def by_optuna(trials: Trials) -> tuple[float, list[float]]:
    """A study and a pool of two processes, each on a core of its own, as one would write it."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize")
    for rate in trials.rates:
        study.enqueue_trial({"learning_rate": rate})
    cores = sorted(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    free = context.Queue()
    for core in cores[:2]:
        free.put(core)
    began = time.monotonic()
    with ProcessPoolExecutor(2, context, initializer=pin, initargs=(free,)) as pool:
        running: dict[Future[float], Any] = {}
        for _ in trials.rates:
            while len(running) == 2:
                finish(study, running)
            trial = study.ask()
            rate = trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True)
            output = f"{trials.output}/{trial.number}"
            running[pool.submit(train, trials.dataset, output, rate)] = trial
        while running:
            finish(study, running)
    return time.monotonic() - began, [trial.value for trial in study.trials]


def pin(free: Any) -> None:
    os.sched_setaffinity(0, {free.get()})


def finish(study: Any, running: dict[Future[float], Any]) -> None:
    for future in wait(running, return_when=FIRST_COMPLETED).done:
        study.tell(running.pop(future), future.result())


def by_ray(trials: Trials, reuse: bool) -> tuple[float, list[float]]:
    import ray
    from ray import tune

    def trainable(config: dict[str, Any]) -> None:
        output = f"{trials.output}/{trials.rates.index(config['learning_rate'])}"
        tune.report({"accuracy": train(trials.dataset, output, config["learning_rate"])})

    ray.init(num_cpus=2, include_dashboard=False, configure_logging=False, log_to_driver=False)
    began = time.monotonic()
    results = tune.Tuner(
        trainable,
        param_space={"learning_rate": tune.grid_search(trials.rates)},
        tune_config=tune.TuneConfig(
            metric="accuracy", mode="max", max_concurrent_trials=2, reuse_actors=reuse
        ),
        run_config=tune.RunConfig(storage_path=f"{trials.output}/ray", verbose=0),
    ).fit()
    seconds = time.monotonic() - began
    scores = {result.config["learning_rate"]: result.metrics["accuracy"] for result in results}
    ray.shutdown()
    return seconds, [scores[rate] for rate in trials.rates]


def main() -> None:
    way, file = sys.argv[1:]
    trials = Trials(**json.loads(Path(file).read_text()))
    if way == "optuna":
        seconds, scores = by_optuna(trials)
    else:
        seconds, scores = by_ray(trials, reuse=way == "ray-reuse")
    print(json.dumps({"seconds": seconds, "scores": scores}))


if __name__ == "__main__":
    main()
