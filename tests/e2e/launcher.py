"""A launcher as a process of its own, for tests that kill it: backend, namespace, spec as JSON."""

import json
import os
import sys

from kfp_jax.backends.choice import Cluster, choose_backend
from kfp_jax.cancellation import cancel_on_signals
from kfp_jax.launch import launch
from kfp_jax.sinks import PlainSink
from kfp_jax.spec import TrainSpec

if __name__ == "__main__":
    backend = choose_backend(sys.argv[1], Cluster(namespace=sys.argv[2]))
    spec = TrainSpec.from_json(json.loads(sys.argv[3]))
    with cancel_on_signals() as cancellation:
        outcome = launch(spec, backend, sink=PlainSink(sys.stdout), cancellation=cancellation)
    # What is left to do has no part in what is tested.
    sys.stdout.flush()
    os._exit(0 if outcome.error() is None else 1)
