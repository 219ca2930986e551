"""A small distributed training that fails on request; run by tests/integration/test_drills.py."""

import os
import signal
import time
from dataclasses import dataclass
from typing import Literal

from kfp_jax_runtime import Run, Stopped


@dataclass(frozen=True)
class Drill:
    how: Literal["", "raise", "exit", "kill", "suspend", "diverge", "fill"] = ""
    process: int = 1
    at_step: int = 5
    attempts: int = 1
    """How many attempts fail; the ones after that go through."""
    steps: int = 20
    save_every: int = 10
    step_seconds: float = 0.0
    seed: int = 1


def train(run: Run, drill: Drill) -> dict[str, float]:
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import multihost_utils

    state = {"x": jnp.zeros(()), "step": 0}
    restored = run.checkpoints.restore(state)
    if restored:
        _, state = restored
    x, first = float(state["x"]), int(state["step"])
    for step in range(first + 1, drill.steps + 1):
        if run.stop_requested:
            run.checkpoints.save(step - 1, {"x": jnp.float32(x), "step": step - 1})
            raise Stopped(step - 1)
        if step == drill.at_step and run.process_index == drill.process % run.process_count:
            fail(run, drill)
        draw = np.random.default_rng((drill.seed, step)).normal()
        # Like a training step, this needs every process.
        mean = multihost_utils.process_allgather(jnp.float32(draw)).mean()
        x = float(np.float32(0.9) * np.float32(x) + np.float32(mean))
        loss = float("nan") if drill.how == "diverge" and step == drill.at_step else x
        run.report(step, loss=loss)
        run.progress(step, drill.steps)
        if step % drill.save_every == 0:
            run.checkpoints.save(step, {"x": jnp.float32(x), "step": step})
        time.sleep(drill.step_seconds)
    return {"x": x, "first": first}


def fail(run: Run, drill: Drill) -> None:
    marker = run.output_dir / "failures"
    before = len(marker.read_text()) if marker.exists() else 0
    if max(before, run.attempt - 1) >= drill.attempts:
        return
    marker.write_text("x" * (before + 1))
    match drill.how:
        case "raise":
            raise ValueError("no such luck")
        case "exit":
            raise SystemExit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "suspend":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "fill":
            with (run.output_dir / "too-large").open("wb") as file:
                file.write(b"\0" * 64 * 1024 * 1024)
        case _:
            pass
