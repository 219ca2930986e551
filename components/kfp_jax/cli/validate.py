"""`kfp-jax validate`: whether a backend would take a job."""

from kfp_jax.cli import options
from kfp_jax.cli.cluster import note, place
from kfp_jax.spec import TrainSpec


@options.takes_spec
def validate(
    spec: TrainSpec,
    *,
    backend: options.BackendName = "auto",
    namespace: options.Namespace = "",
    context: options.Context = "",
) -> None:
    """Check a job, and start nothing; a cluster is asked by a dry run, rights included.

    Takes the options of `run`. Exit code 0: the backend would take it.

    Example: kfp-jax validate --backend trainer --program kfp_jax_runtime.mnist --nodes 2
    --volume work:/mnt/work --output /mnt/work/mnist
    """
    where = place(backend, namespace, context)
    for warning in where.validate(spec):
        note(warning)
    note(f"The backend {where.name} would take this job.")
