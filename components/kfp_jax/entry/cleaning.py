"""The entry of `cleanup`."""

import os
import sys

from kfp_jax.backends.choice import connect, is_local
from kfp_jax.clock import SystemClock
from kfp_jax.cluster.ending import clean_up_behind
from kfp_jax.entry.task import errors_end_the_step
from kfp_jax.kfp_task import own_run


def cleanup(*, run_id: str, namespace: str, backend: str) -> int:
    """Runs the `cleanup` component. Returns how many objects were deleted."""
    with errors_end_the_step("cleanup"):
        if is_local(backend):
            sys.stdout.write("Jobs on one machine end with their task: nothing is left.\n")
            return 0
        client = connect()
        run = run_id or own_run(client, os.environ)
        where = namespace or client.namespace
        done = clean_up_behind(client, where, run, clock=SystemClock())
        for item in done:
            verb = "deleted" if item.removed else "kept"
            sys.stdout.write(f"{item.kind} {item.name} was {verb}: {item.why}.\n")
        return sum(item.removed for item in done)
