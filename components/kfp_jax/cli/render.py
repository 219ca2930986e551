"""`kfp-jax render`: what a backend would start, without starting it."""

import json
import sys

from kfp_jax.backends.choice import choose_backend
from kfp_jax.cli import options
from kfp_jax.launch import job_ref
from kfp_jax.spec import TrainSpec


@options.takes_spec
def render(
    spec: TrainSpec,
    *,
    backend: options.BackendName = "auto",
) -> None:
    """Print what would be started, as JSON, and start nothing.

    Example: kfp-jax render --program kfp_jax_runtime.mnist --nodes 2 -p epochs=1
    """
    place = choose_backend(backend)
    sys.stdout.write(json.dumps(place.render(spec, job_ref(spec, place)), indent=2) + "\n")
