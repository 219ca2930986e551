"""The `cleanup` component: deletes what a run left on a cluster."""

from kfp_jax.components.definition import launching


@launching
def cleanup(run_id: str = "", namespace: str = "", backend: str = "auto") -> int:
    """Deletes the jobs of a run that no launcher follows any more; made for `dsl.ExitHandler`.

    Args:
        run_id: The run; empty for the one that this task belongs to.
        namespace: Where its jobs are; empty for the namespace of this task.
        backend: Where they ran: trainer, jobset, local, or auto to choose.

    Returns:
        Output: How many jobs and runtimes were deleted.
    """
    from kfp_jax import entry

    return entry.cleanup(run_id=run_id, namespace=namespace, backend=backend)
