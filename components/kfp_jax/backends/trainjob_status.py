"""From a TrainJob, the JobSet of its name and its pods to the job's status. Pure."""

from collections.abc import Sequence

from kfp_jax.backends.jobset_status import queue, reduce_jobset, suspended
from kfp_jax.backends.pod_status import Manifest, Pod, condition, line
from kfp_jax.status import FOREIGN_JOBSET, JobStatus, Phase, ProcessStatus

# What Trainer says by itself; every other end is copied from whatever JobSet bears the name.
_TRAINERS_OWN = ("DeadlineExceeded", "TrainingRuntimeNotSupported")


def reduce_trainjob(trainjob: Manifest, jobset: Manifest | None, pods: Sequence[Pod]) -> JobStatus:
    """Returns the status of a job that is this TrainJob.

    Args:
        trainjob: As it is.
        jobset: The last one seen of its name. Trainer reads its end without asking whose it is, so
            an end is believed only if it is the TrainJob's own JobSet.
        pods: All that were seen.
    """
    foreign = jobset is not None and not owns(trainjob, jobset)
    below = reduce_jobset(jobset, pods) if jobset and not foreign else None
    processes = below.processes if below else _absent(trainjob)
    restarts = below.restarts if below else 0
    status = trainjob.get("status", {})
    failed = condition(status, "Failed")
    if failed and failed.get("reason") in _TRAINERS_OWN:
        return JobStatus(Phase.FAILED, *_why(failed), restarts, processes)
    if below and below.phase.finished:
        return below
    if foreign:
        return JobStatus(
            Phase.STARTING,
            FOREIGN_JOBSET,
            f"a JobSet of its name belongs to {_owner_name(jobset)}",
            processes=processes,
        )
    if below is None and failed:
        return JobStatus(Phase.FAILED, *_why(failed), 0, processes)
    if below is None and condition(status, "Complete"):
        return JobStatus(Phase.SUCCEEDED, processes=processes)
    if suspended(trainjob):
        return JobStatus(Phase.QUEUED, *queue(trainjob), restarts, processes)
    return below or JobStatus(Phase.STARTING, processes=processes)


def owns(trainjob: Manifest, jobset: Manifest) -> bool:
    """Returns whether a JobSet is this TrainJob's."""
    uid = trainjob["metadata"]["uid"]
    owners = jobset["metadata"].get("ownerReferences") or ()
    return any(owner["uid"] == uid for owner in owners)


def _why(condition: Manifest) -> tuple[str, str]:
    return condition.get("reason", ""), line(condition.get("message"))


def _owner_name(jobset: Manifest | None) -> str:
    owners = (jobset or {}).get("metadata", {}).get("ownerReferences") or ()
    return ", ".join(f"{owner['kind']} {owner['name']} ({owner['uid']})" for owner in owners) or (
        "somebody else"
    )


def _absent(trainjob: Manifest) -> tuple[ProcessStatus, ...]:
    nodes = trainjob["spec"].get("trainer", {}).get("numNodes") or 1
    return tuple(ProcessStatus(index, alive=False) for index in range(nodes))
