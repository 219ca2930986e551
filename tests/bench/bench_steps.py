"""Steps a second of two processes against one, at an equal global batch.

    python tests/bench/bench_steps.py

MNIST trained by the local backend: the one process has all cores, the two have half of them each.
In turn, so that what the machine does besides hits all alike. Counted are the steps within an
epoch, of process 0, but for the first two of all: those compile.
"""

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from figures import Figure, table
from kfp_jax.backends.local import LocalBackend
from kfp_jax.launch import launch
from kfp_jax.spec import TrainSpec
from training import prepare, training

ROUNDS = 3
EPOCHS = 4
GOAL = 0.95
ONE, TWO, DEVICES = "1 process", "2 processes", "1 process of 2 devices"
CASES = {ONE: (1, 1), TWO: (2, 1), DEVICES: (1, 2)}  # processes, devices of each


def run_bench() -> dict[str, Any]:
    """Trains each way several times and returns the rates and their ratios."""
    rates: dict[str, list[float]] = {case: [] for case in CASES}
    with tempfile.TemporaryDirectory(prefix="kfp-jax-bench-") as name:
        folder = Path(name)
        dataset = prepare(folder)
        for turn in range(ROUNDS):
            for case, (processes, devices) in CASES.items():
                output = folder / f"{processes}-{devices}-{turn}"
                spec = training(
                    output, dataset, processes=processes, epochs=EPOCHS, devices=devices
                )
                rates[case].append(steps_a_second(spec))
    figures = [
        Figure("steps/s, 2 processes / 1 process, batch 512", _ratio(rates, TWO), "x", GOAL, True),
        Figure("  1 process of 2 devices / 1 process", _ratio(rates, DEVICES), "x"),
        *(
            Figure(f"  {case}", statistics.median(found), "steps/s")
            for case, found in rates.items()
        ),
    ]
    return {"figures": [figure.to_json() for figure in figures], "steps_a_second": rates}


def steps_a_second(spec: TrainSpec) -> float:
    """Trains, and returns the rate of the steps that follow another one in their epoch."""
    error = launch(spec, LocalBackend()).error()
    if error:
        raise error
    lines = Path(spec.output_uri, "history.jsonl").read_text().splitlines()
    reports = [json.loads(line) for line in lines]
    times: dict[int, float] = {r["step"]: r["time"] for r in reports if "loss" in r["values"]}
    epoch = len(times) // EPOCHS
    counted = [step for step in times if step > 2 and (step - 1) % epoch]
    return len(counted) / sum(times[step] - times[step - 1] for step in counted)


def _ratio(rates: dict[str, list[float]], case: str) -> float:
    return statistics.median(a / b for a, b in zip(rates[case], rates[ONE], strict=True))


if __name__ == "__main__":
    print(table(run_bench()["figures"]))
