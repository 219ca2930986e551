"""`kfp-jax delete`: removes a job from a cluster."""

from kfp_jax.cli import options
from kfp_jax.cli.cluster import connected, note
from kfp_jax.cluster.ending import delete_job
from kfp_jax.cluster.lookup import find_job


def delete(
    name: options.JobName,
    namespace: options.Namespace = "",
    context: options.Context = "",
) -> None:
    """Remove a job, running or finished, with its pods, their logs, and its own runtime.

    What it wrote to its output folder stays.

    Example: kfp-jax delete mnist-0a1b2c3d-1
    """
    with connected(context, namespace) as (client, where):
        job, _ = find_job(client, where, name)
        delete_job(client, job)
    note(f"Job {name} is deleted.")
