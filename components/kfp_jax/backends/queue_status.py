"""From Kueue's Workload of a job to why the job is held back. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from kfp_jax.backends.pod_status import Manifest, condition, line
from kfp_jax.manifests.identity import QUEUE_LABEL
from kfp_jax.status import JobStatus, Phase

# Kueue's word for why it took a job's place back -> ours.
_EVICTIONS = {
    "Preempted": "was preempted",
    "PodsReadyTimeout": "was put back, as its pods did not start in time",
    "AdmissionCheck": "was put back, as an admission check failed",
    "ClusterQueueStopped": "was put back, as its ClusterQueue was stopped",
    "LocalQueueStopped": "was put back, as its queue was stopped",
    "NodeFailures": "was put back, as a machine of it failed",
    "MaximumExecutionTimeExceeded": "was put back for good, as it ran for too long",
    "Deactivated": "was put back for good",
}


def queue_of(job: Manifest) -> str:
    """Returns the name of the queue that holds a TrainJob or JobSet back, or ""."""
    return str(job["metadata"].get("labels", {}).get(QUEUE_LABEL, ""))


def explained_by_queue(status: JobStatus, queue: str, workloads: Iterable[Manifest]) -> JobStatus:
    """Returns the status of a job that is queued, with what Kueue says of it.

    Args:
        status: As the job's own objects tell it.
        queue: The job's, or "".
        workloads: Kueue's, of this job.
    """
    newest = max(workloads, key=lambda item: str(item["metadata"]["creationTimestamp"]), default={})
    if status.phase is not Phase.QUEUED or not queue or not newest:
        return status
    told = newest.get("status", {})
    waiting = condition(told, "QuotaReserved", "False")
    evicted = condition(told, "Evicted", "True")
    # Kueue repeats the words of an eviction as the reason why it waits.
    words = [line(item.get("message")) for item in (evicted, waiting) if item]
    message = ": ".join(dict.fromkeys(text for text in words if text))
    if evicted:
        reason = str(evicted.get("reason", ""))
        did = _EVICTIONS.get(reason, "was put back")
        return replace(status, reason=reason, message=f"it {did} in queue {queue}: {message}")
    if waiting:
        reason = str(waiting.get("reason", ""))
        return replace(status, reason=reason, message=f"it waits in queue {queue}: {message}")
    return status
