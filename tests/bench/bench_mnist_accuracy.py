"""Test accuracy on the full MNIST: five seeds of the accurate settings, and the demo's default.

    python tests/bench/bench_mnist_accuracy.py

Each training is a job of its own, of a single process; as many run at once as there are cores.
"""

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

ACCURATE: Mapping[str, Any] = {
    "channels": [32, 64, 128],
    "hidden": 128,
    "epochs": 10,
    "global_batch_size": 256,
    "learning_rate": 3e-3,
    "weight_decay": 0.01,
    "label_smoothing": 0.05,
    "dropout": 0.3,
    "max_shift_pixels": 1.5,
    "max_rotation_degrees": 10,
    "max_scale": 0.1,
    "max_shear": 0.1,
}
SEEDS = range(5)
GOAL, FLOOR = 0.995, 0.993
TAG = "@kfp-jax "


def run_bench() -> dict[str, Any]:
    """Trains five seeds, prints a row for each, and returns the figures."""
    with tempfile.TemporaryDirectory(prefix="kfp-jax-bench-") as name:
        folder = Path(name)
        source = prepare(folder)
        cores: SimpleQueue[int] = SimpleQueue()
        for core in sorted(os.sched_getaffinity(0)):
            cores.put(core)
        print(f"{'seed':>4} {'accuracy %':>10} {'loss':>8} {'CPU s':>7} {'wall s':>7}", flush=True)
        with ThreadPoolExecutor(cores.qsize()) as pool:
            rows = list(pool.map(lambda seed: _row(seed, folder, cores), SEEDS))
    mean = statistics.mean(row["accuracy"] for row in rows)
    spread = statistics.stdev(row["accuracy"] for row in rows)
    cpu = statistics.mean(row["cpu_seconds"] for row in rows)
    print(f"mean {mean:.4%} (goal {GOAL:.1%}, floor {FLOOR:.1%}), deviation {spread:.4%}")
    print(f"{cpu:.0f} CPU seconds a training, start-up included; data: {source['name']}")
    return {
        "mean_accuracy": mean,
        "deviation": spread,
        "goal": GOAL,
        "floor": FLOOR,
        "cpu_seconds_each": round(cpu, 1),
        "parameters": dict(ACCURATE),
        "source": source,
        "seeds": rows,
    }


def prepare(folder: Path) -> dict[str, Any]:
    """Writes the dataset to `folder` and returns where it came from."""
    job(folder, "kfp_jax_runtime.data.prepare", {}, None)
    source: dict[str, Any] = json.loads((folder / "dataset" / "source.json").read_text())
    return source


def job(output: Path, program: str, parameters: Mapping[str, Any], core: int | None) -> Any:
    """Runs a program in one process, as a node would, and returns its final metrics."""
    environ = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "KFP_JAX_PARAMETERS": json.dumps(parameters),
        "KFP_JAX_OUTPUT_URI": str(output),
        "KFP_JAX_DATASET_URI": str(output.parent / "dataset") if core is not None else "",
    }
    pin = [] if core is None else ["taskset", "-c", str(core)]
    done = subprocess.run(
        [*pin, sys.executable, "-m", "kfp_jax_runtime.bootstrap", program],
        env=environ,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    reports = [
        json.loads(line.removeprefix(TAG))
        for line in done.stdout.splitlines()
        if line.startswith(TAG)
    ]
    return next(report["values"] for report in reports if report["kind"] == "result")


def _row(seed: int, folder: Path, cores: "SimpleQueue[int]") -> dict[str, Any]:
    core = cores.get()
    output = folder / f"seed-{seed}"
    started = time.monotonic()
    # The children's CPU time, told apart by a middleman of its own for each training.
    script = [sys.executable, __file__, str(output), json.dumps({**ACCURATE, "seed": seed})]
    done = subprocess.run([*script, str(core)], check=True, stdout=subprocess.PIPE, text=True)
    wall = time.monotonic() - started
    cores.put(core)
    shutil.rmtree(output)
    row = {"seed": seed, "wall_seconds": round(wall, 1), **json.loads(done.stdout)}
    print(
        f"{seed:>4} {100 * row['accuracy']:>10.2f} {row['loss']:>8.4f} {row['cpu_seconds']:>7.0f} "
        f"{wall:>7.0f}",
        flush=True,
    )
    return row


def _measured(output: str, parameters: str, core: str) -> None:
    """Prints one training's metrics with the CPU seconds of its process, as JSON."""
    metrics = job(Path(output), "kfp_jax_runtime.mnist", json.loads(parameters), int(core))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({**metrics, "cpu_seconds": round(used.ru_utime + used.ru_stime, 1)}))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _measured(*sys.argv[1:])
    else:
        run_bench()
