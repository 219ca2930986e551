"""Does with kfp-jax what it is told, line by line; `cluster_sdk.py` does the same with the SDK.

submit SECONDS   -> {"name": ..., "seconds": ...}   a TrainJob whose pod sleeps so long
checked SECONDS  -> the same as launchers do it, with the server-side dry run before it; "seconds"
                    are those of the submit, "whole" those of both
wait             -> {"returned": ...}               for the last job, when its end was known
delete           -> {}                              the last job
"""

import json
import sys
import time

from e2e.mnist import PODS
from kfp_jax.backends.base import JobRef
from kfp_jax.backends.choice import Cluster, choose_backend
from kfp_jax.launch import job_ref
from kfp_jax.spec import TrainSpec


def main(namespace: str, folder: str) -> None:
    backend = choose_backend("trainer", Cluster(namespace=namespace))
    ref = JobRef("trainer", "none")
    for number, line in enumerate(sys.stdin):
        action, *arguments = line.split()
        answer: dict[str, object] = {}
        if action in ("submit", "checked"):
            spec = TrainSpec(
                name="bench",
                output_uri=f"{folder}/{number}",
                command=("sh", "-c", f"sleep {arguments[0]}"),
                pods=PODS,
            )
            began = time.perf_counter()
            if action == "checked":
                backend.validate(spec)
            checked = time.perf_counter()
            ref = backend.submit(spec, job_ref(spec, backend))
            ended = time.perf_counter()
            answer = {"name": ref.name, "seconds": ended - checked, "whole": ended - began}
        elif action == "wait":
            *_, status = backend.watch(ref)
            answer = {"returned": time.time(), "phase": status.phase}
        elif action == "delete":
            backend.delete(ref)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
