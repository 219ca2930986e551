"""Lines a second through the launcher, and the memory it takes.

    python tests/bench/bench_lines.py

The job is `cat` of a prepared file, so that writing the lines is not what takes the time. The
launcher is a process of its own, for its peak memory. Beside it: what one would write in its
place, a loop over a pipe that parses the tagged lines and keeps nothing.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, TextIO

from figures import TAG, Figure, table
from kfp_jax.backends.local import LocalBackend
from kfp_jax.launch import launch
from kfp_jax.sinks import NullSink, PlainSink, Sink
from kfp_jax.spec import TrainSpec

BLOCK = 100_000
RATE_GOAL, MEMORY_GOAL_MB = 200_000, 100
REPEAT = """for ((i = 0; i < $1; i++)); do cat "$0"; done"""
# One line in so many is a report; in 0, none.
MIXES = {"mixed": 10, "log": 0, "reports": 1}


def run_bench() -> dict[str, Any]:
    """Measures a mix of 9 log lines to 1 report at two lengths, and each of them alone."""
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="kfp-jax-bench-") as name:
        folder = Path(name)
        for mix, every in MIXES.items():
            write_block(folder / mix, every)
        for sink in ("null", "plain"):
            for mix, lines in (
                ("mixed", 200_000),
                ("mixed", 2_000_000),
                ("log", 2_000_000),
                ("reports", 200_000),
            ):
                runs.append(_measure(folder, sink, mix, lines))
        runs.append(_measure(folder, "loop", "mixed", 2_000_000))
    return {"figures": [figure.to_json() for run in runs for figure in _figures(run)], "runs": runs}


def write_block(path: Path, every: int) -> None:
    """Writes 100,000 lines as a training would, one in `every` of them a report."""
    with path.open("w") as file:
        for line in range(BLOCK):
            if every and line % every == 0:
                _report(file, line)
            else:
                file.write(f"I0101 12:00:00 train.py:42] step {line} of 100000, 123.4 examples/s\n")


def _report(file: TextIO, step: int) -> None:
    values = {"loss": 2.302585 / (1 + step), "accuracy": 0.98712}
    report = {"v": 1, "kind": "metrics", "time": 1.7e9 + step / 8, "step": step, "values": values}
    file.write(f"{TAG}{json.dumps(report, separators=(',', ':'))}\n")


def _figures(run: dict[str, Any]) -> list[Figure]:
    sink, mix, lines = run["sink"], run["mix"], run["lines"]
    what = f"{lines:,} lines, {mix}, {sink}"
    judged = mix == "mixed" and sink != "loop"
    rate_goal, memory_goal = (RATE_GOAL, MEMORY_GOAL_MB) if judged else (None, None)
    return [
        Figure(what, run["rate"], "lines/s", rate_goal, True),
        Figure("  peak memory", run["peak_mb"], "MB", memory_goal),
    ]


def _measure(folder: Path, sink: str, mix: str, lines: int) -> dict[str, Any]:
    """Runs a launcher in a process of its own."""
    arguments = [sink, str(folder / mix), str(lines // BLOCK)]
    done = subprocess.run(
        [sys.executable, __file__, *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    return {"sink": sink, "mix": mix, "lines": lines, **json.loads(done.stdout)}


def _child(sink: str, block: str, repeat: str) -> None:
    command = ("bash", "-c", REPEAT, block, repeat)
    with (
        tempfile.TemporaryDirectory(prefix="kfp-jax-bench-") as output,
        Path("/dev/null").open("w") as null,
    ):
        began, cpu = time.perf_counter(), time.process_time()
        if sink == "loop":
            _loop(command)
        else:
            _launch(command, output, PlainSink(null) if sink == "plain" else NullSink())
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    lines = int(repeat) * BLOCK
    print(
        json.dumps(
            {"rate": lines / seconds, "cpu_us_a_line": 1e6 * cpu / lines, "peak_mb": _peak_mb()}
        )
    )


def _launch(command: tuple[str, ...], output: str, sink: Sink) -> None:
    block, repeat = command[3:]
    spec = TrainSpec(name="bench", output_uri=output, command=command)
    error = launch(spec, LocalBackend(), sink=sink).error()
    if error:
        raise error
    every, lines = MIXES[Path(block).name], int(repeat) * BLOCK
    with Path(output, "history.jsonl").open() as history:
        reports = sum(1 for _ in history)
    if reports != (lines // every if every else 0):
        raise RuntimeError(f"{reports:,} reports came of {lines:,} lines, one in {every}")


def _loop(command: tuple[str, ...]) -> None:
    last = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if line.startswith(TAG):
                last = json.loads(line.removeprefix(TAG))
    assert last or "log" in command[3]


def _peak_mb() -> float:
    # Of this program alone; getrusage's would count what the parent had when it forked.
    status = Path("/proc/self/status").read_text()
    kib = next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]
    return int(kib) * 1024 / 1e6


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _child(*sys.argv[1:])
    else:
        print(table(run_bench()["figures"]))
