"""How soon a job ends when one of its processes dies or hangs.

    python tests/bench/bench_detection.py

Measured from the death or stop to the Outcome, when nothing of the job runs any more. The jobs are
shells, which show what the launcher alone takes, and MNIST trained by two JAX processes.
"""

import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from figures import Figure, table
from kfp_jax.backends.local import LocalBackend
from kfp_jax.launch import launch
from kfp_jax.reports import Report
from kfp_jax.sinks import NullSink
from kfp_jax.spec import Limits, TrainSpec
from kfp_jax.status import Outcome, Phase
from training import prepare, training

SHELL_DEATHS, SHELL_HANGS, JAX_DEATHS = 10, 3, 4
DEATH_GOAL = 1.0
# Importing JAX and compiling are silent for seconds, and count.
SHELL_STALL, JAX_STALL = 2.0, 15.0
AFTER_STALL_GOAL = 1.0
AT_STEP = 10

# Of two processes the second dies, after a random time; the first would go on for long.
DEATH = """
[ $JAX_PROCESS_ID = 1 ] || exec sleep 600
sleep 0.$((RANDOM % 900 + 100))
echo $EPOCHREALTIME
"""
HANG = "for i in 1 2 3 4 5; do echo tick; sleep 0.1; done; echo $EPOCHREALTIME; kill -STOP $$"


def run_bench() -> dict[str, Any]:
    """Measures deaths and hangs, first of shells and then of JAX processes."""
    with tempfile.TemporaryDirectory(prefix="kfp-jax-bench-") as name:
        folder = Path(name)
        exits = [shell(f"{DEATH} exit 3", processes=2) for _ in range(SHELL_DEATHS)]
        kills = [shell(f"{DEATH} kill -KILL $$", processes=2) for _ in range(SHELL_DEATHS)]
        hangs = [shell(HANG, processes=1, stall=SHELL_STALL) for _ in range(SHELL_HANGS)]
        dataset = prepare(folder)
        # In turn: process 0 is the one that the others are connected to.
        jax_kills = [
            jax(folder / f"kill-{turn}", dataset, signal.SIGKILL, turn % 2)
            for turn in range(JAX_DEATHS)
        ]
        jax_hang = jax(folder / "hang", dataset, signal.SIGSTOP, 1, stall=JAX_STALL)
    shell_limit, jax_limit = SHELL_STALL + AFTER_STALL_GOAL, JAX_STALL + AFTER_STALL_GOAL
    figures = [
        Figure.of("exit 3 to Outcome, 2 shells", exits, "s", DEATH_GOAL),
        Figure.of("SIGKILL to Outcome, 2 shells", kills, "s", DEATH_GOAL),
        Figure.of("SIGKILL to Outcome, 2 JAX processes", jax_kills, "s", DEATH_GOAL),
        Figure.of(
            f"SIGSTOP to Outcome, shell, stall limit {SHELL_STALL:.0f} s", hangs, "s", shell_limit
        ),
        Figure(
            f"SIGSTOP to Outcome, 2 JAX processes, stall limit {JAX_STALL:.0f} s",
            jax_hang,
            "s",
            jax_limit,
        ),
    ]
    return {
        "figures": [figure.to_json() for figure in figures],
        "seconds": {
            "exit": exits,
            "kill": kills,
            "hang": hangs,
            "jax_kill": jax_kills,
            "jax_hang": [jax_hang],
        },
    }


def shell(script: str, *, processes: int, stall: float = 0) -> float:
    """Runs shells of which the last writes the time and fails; returns how long the rest took."""
    with tempfile.TemporaryDirectory(prefix="kfp-jax-bench-") as output:
        spec = TrainSpec(
            name="bench",
            output_uri=output,
            command=("bash", "-c", script),
            num_nodes=processes,
            limits=Limits(stall=stall),
        )
        outcome = launch(spec, LocalBackend())
        ended = time.time()
        _check(outcome, processes - 1)
        (log,) = Path(output, "logs").rglob(f"process-{processes - 1}.log")
        return ended - float(log.read_text().split()[-1])


def jax(
    output: Path, dataset: Path, number: signal.Signals, process: int, stall: float = 0
) -> float:
    """Sends a signal to one of two training processes; returns how long the rest took."""
    spec = training(output, dataset, processes=2, epochs=100, stall=stall)
    blow = _Blow(output, process, number)
    outcome = launch(spec, LocalBackend(), sink=blow)
    ended = time.time()
    _check(outcome, process)
    return ended - blow.struck


class _Blow(NullSink):
    """Sends a signal to one process of a job once it has done some steps."""

    def __init__(self, output: Path, process: int, number: signal.Signals) -> None:
        self.struck = 0.0
        self._output, self._process, self._number = output, process, number

    def report(self, process: int, report: Report) -> None:
        if not self.struck and report.step is not None and report.step >= AT_STEP:
            pid = _pid_of(self._output, self._process)
            self.struck = time.time()
            os.kill(pid, self._number)


def _pid_of(output: Path, process: int) -> int:
    wanted = {f"KFP_JAX_OUTPUT_URI={output}".encode(), f"JAX_PROCESS_ID={process}".encode()}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environ = set((entry / "environ").read_bytes().split(b"\0"))
        except OSError:
            continue  # ended, or somebody else's
        if wanted <= environ:
            return int(entry.name)
    raise RuntimeError(f"process {process} of the job in {output} does not run")


def _check(outcome: Outcome, process: int) -> None:
    if outcome.phase is not Phase.FAILED or outcome.failed_process != process:
        raise RuntimeError(f"not the end that was to be measured: {outcome.message}")


if __name__ == "__main__":
    print(table(run_bench()["figures"]))
