"""`kfp-jax render`: what a backend would start, without starting it."""

import json
import sys

from kfp_jax.cli import options
from kfp_jax.cli.cluster import place
from kfp_jax.launch import job_ref
from kfp_jax.spec import TrainSpec


@options.takes_spec
def render(
    spec: TrainSpec,
    *,
    backend: options.BackendName = "auto",
    namespace: options.Namespace = "",
    context: options.Context = "",
) -> None:
    """Print what would be started, as JSON, and start nothing.

    Examples:
    kfp-jax render --program kfp_jax_runtime.mnist --nodes 2 -p epochs=1

    kfp-jax render --backend jobset --nodes 2 --output /mnt/out --image team/train:3 -- python t.py
    """
    where = place(backend, namespace, context, asked=False)
    sys.stdout.write(json.dumps(where.render(spec, job_ref(spec, where)), indent=2) + "\n")
