"""What the launcher itself costs: around a job, and to import.

    python tests/bench/bench_launcher_overhead.py

The job is a shell that writes the time as its first line and again as its last, so that neither
Python nor JAX is in between; a job of the launcher also writes its logs, history and result.
"""

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from figures import Figure, table
from kfp_jax.backends.local import LocalBackend
from kfp_jax.launch import launch
from kfp_jax.sinks import NullSink
from kfp_jax.spec import TrainSpec
from kfp_jax.status import Phase

JOBS = 30
JOB_GOAL_MS = 50.0
IMPORTS = 20
IMPORT_GOAL_MS = 30.0
STATEMENTS = ("pass", "import kfp_jax", "import kfp_jax.launch", "import kfp_jax.cli")
SCRIPT = "echo $EPOCHREALTIME; sleep $0; echo $EPOCHREALTIME"


def run_bench() -> dict[str, Any]:
    """Measures jobs of 1 and 2 processes, and imports."""
    figures: list[Figure] = []
    samples: dict[str, Any] = {}
    for processes, goal in ((1, JOB_GOAL_MS), (2, None)):
        runs = [job(processes) for _ in range(JOBS)]
        what = f"local job of {processes} process{'es' if processes > 1 else ''}"
        together = [start + end for start, end in runs]
        figures += [
            Figure.of(f"{what}: submit to first line + exit to Outcome", together, "ms", goal),
            Figure.of("  submit to first line", [start for start, _ in runs], "ms"),
            Figure.of("  exit to Outcome", [end for _, end in runs], "ms"),
        ]
        samples[what] = runs
    by_statement = imports()
    bare = by_statement["pass"]
    for statement in STATEMENTS[1:]:
        beyond = [time - base for time, base in zip(by_statement[statement], bare, strict=True)]
        goal = IMPORT_GOAL_MS if statement == "import kfp_jax" else None
        figures.append(Figure.of(f"{statement}, beyond a bare Python", beyond, "ms", goal))
    samples["imports"] = by_statement
    return {"figures": [figure.to_json() for figure in figures], "milliseconds": samples}


def job(processes: int) -> tuple[float, float]:
    """Runs one job; returns the milliseconds before its first line and after its last."""
    # Of random length, so that no beat of the launcher's falls in with it.
    command = ("bash", "-c", SCRIPT, f"{random.uniform(0.05, 0.15):.4f}")
    with tempfile.TemporaryDirectory(prefix="kfp-jax-bench-") as output:
        spec = TrainSpec(name="bench", output_uri=output, command=command, num_nodes=processes)
        submitted = time.time()
        outcome = launch(spec, LocalBackend(), sink=NullSink())
        ended = time.time()
        if outcome.phase is not Phase.SUCCEEDED:
            raise RuntimeError(outcome.message)
        logs = [log.read_text().split() for log in Path(output, "logs").rglob("*.log")]
    first = max(float(times[0]) for times in logs)
    last = max(float(times[1]) for times in logs)
    return 1000 * (first - submitted), 1000 * (ended - last)


def imports() -> dict[str, list[float]]:
    """Returns the milliseconds that Python takes for each statement, in turn, so often."""
    taken: dict[str, list[float]] = {statement: [] for statement in STATEMENTS}
    for round_ in range(IMPORTS + 1):
        for statement in STATEMENTS:
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", statement], check=True)
            if round_:  # the first reads the files from disk
                taken[statement].append(1000 * (time.perf_counter() - began))
    return taken


if __name__ == "__main__":
    print(table(run_bench()["figures"]))
