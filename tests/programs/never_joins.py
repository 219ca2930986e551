"""Process 1 of this program hangs while it is imported, and so never joins."""

import os
import time

from kfp_jax_runtime import Run

if os.environ.get("JAX_PROCESS_ID") == "1":
    time.sleep(600)


def main(run: Run) -> None:
    raise AssertionError("nobody gets here")
