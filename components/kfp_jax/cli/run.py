"""`kfp-jax run`: one job, without a pipeline."""

import json
import sys

from kfp_jax import job_folder, storage
from kfp_jax.cancellation import cancel_on_signals
from kfp_jax.cli import options
from kfp_jax.cli.cluster import place
from kfp_jax.cli.progress import Screen, outcome_rows, print_summary
from kfp_jax.launch import launch
from kfp_jax.spec import TrainSpec


@options.takes_spec
def run(
    spec: TrainSpec,
    *,
    backend: options.BackendName = "auto",
    namespace: options.Namespace = "",
    context: options.Context = "",
    as_json: options.AsJson = False,
) -> None:
    """Run one training job and wait for it.

    Examples:
    kfp-jax run --program kfp_jax_runtime.mnist --nodes 2 -p epochs=1 --output build/mnist

    kfp-jax run --nodes 2 --output build/script -- python my_script.py --epochs 3

    kfp-jax run --backend trainer --program my.train --gpus 1 --volume data:/data --output /data/out
    """
    where = place(backend, namespace, context)
    with cancel_on_signals() as cancellation, Screen() as screen:
        sink = screen.task(spec.name)
        outcome = launch(spec, where, sink=sink, cancellation=cancellation)
        error = outcome.error()
        with (
            job_folder.a_failed_job_matters_more(error, sink),
            storage.results(outcome.output_uri) as folder,
        ):
            job_folder.write_report(folder)
    if as_json:
        sys.stdout.write(json.dumps(outcome.to_json(), indent=2, allow_nan=False) + "\n")
    else:
        title = f"Job {outcome.job} {outcome.phase.value.lower()}"
        print_summary(title, outcome_rows(outcome), good=error is None)
    if error:
        raise error
