"""Programs that a sweep tries, without JAX: each trial ends the way its parameter `how` says."""

import fcntl
import math
import os
import signal
import time

from kfp_jax_runtime import Run

SECONDS = 0.15


def train(run: Run) -> dict[str, float]:
    x, how = float(run.parameters["x"]), run.parameters.get("how", "")
    match how:
        case "raises":
            raise RuntimeError("no such luck")
        case "hangs":
            time.sleep(600)
        case "nan":
            run.report(1, accuracy=math.nan)
            return {"accuracy": math.nan}
        case "nothing":
            return {}
        case "other-name":
            run.report(1, acuracy=x)
            return {"acuracy": x}
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
    for step in (1, 2, 4, 8):
        run.report(step, accuracy=x * step / 8)
    return {"accuracy": x}


def slow_if_bad(run: Run) -> dict[str, float]:
    x = float(run.parameters["x"])
    for step in (1, 2, 4, 8):
        run.report(step, accuracy=x * step / 8)
        time.sleep(60 if x < 0.2 and step == 4 else 0)
    return {"accuracy": x}


def once(run: Run) -> dict[str, float]:
    """Notes in the shared folder when it starts and ends; two at once of one trial are a crime."""
    number = run.output_dir.name
    with (run.output_dir / "alone").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
        note(run, f"start {number}")
        time.sleep(SECONDS)
        note(run, f"end {number}")
    return {"accuracy": float(run.parameters["x"])}


def note(run: Run, text: str) -> None:
    with (run.shared_dir / "notes").open("a") as notes:
        notes.write(f"{text}\n")
