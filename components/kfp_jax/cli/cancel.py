"""`kfp-jax cancel`: ends a job on a cluster that still runs."""

from kfp_jax.cli import options
from kfp_jax.cli.cluster import connected, note
from kfp_jax.cluster.ending import cancel_job
from kfp_jax.cluster.lookup import find_job


def cancel(
    name: options.JobName,
    namespace: options.Namespace = "",
    context: options.Context = "",
) -> None:
    """End a job that has not ended; a finished one stays as it is.

    Its processes are asked to stop, and get their grace period to save a checkpoint.

    Example: kfp-jax cancel mnist-0a1b2c3d-1
    """
    with connected(context, namespace) as (client, where):
        job, _ = find_job(client, where, name)
        if job.phase.finished:
            note(f"Job {name} has {job.phase.value.lower()} already; nothing was done.")
            return
        cancel_job(client, job)
    note(f"Job {name} is cancelled; its processes may take their grace period to save.")
