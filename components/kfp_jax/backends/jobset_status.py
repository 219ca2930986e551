"""From a JobSet and its pods to the job's status. Pure."""

from collections.abc import Sequence

from kfp_jax.backends.pod_status import Manifest, Pod, condition, line, reduce_pods
from kfp_jax.manifests.environment import NODE
from kfp_jax.manifests.identity import QUEUE_LABEL
from kfp_jax.status import FAILING, SIDECAR, JobStatus, Phase, ProcessStatus


def reduce_jobset(jobset: Manifest, pods: Sequence[Pod]) -> JobStatus:
    """Returns the status of a job that is this JobSet."""
    status = jobset.get("status", {})
    restarts = int(status.get("restarts") or 0)
    failed = condition(status, "Failed")
    own = [pod for pod in pods if pod.belongs_to(jobset["metadata"]["uid"])]
    processes = reduce_pods(
        own, nodes=node_count(jobset), restart=restarts, failed=failed is not None
    )

    def stands(phase: Phase, reason: str = "", message: str = "") -> JobStatus:
        return JobStatus(phase, reason, message, restarts, processes)

    if failed:
        return stands(Phase.FAILED, failed.get("reason", ""), line(failed.get("message")))
    if condition(status, "Completed"):
        return stands(Phase.SUCCEEDED)
    if suspended(jobset):
        return stands(Phase.QUEUED, *queue(jobset))
    if restarts and not any(pod.restart == restarts for pod in own):
        return stands(Phase.RESTARTING)
    if is_final(jobset) and any(item.failed_at is not None for item in processes):
        return stands(Phase.RUNNING, FAILING)
    if all(item.alive or item.exit_code == 0 for item in processes):
        return stands(Phase.RUNNING, *_outlived(own, restarts))
    return stands(Phase.STARTING, *held_up(processes))


def node_count(jobset: Manifest) -> int:
    """Returns how many processes a JobSet has."""
    for job in jobset["spec"].get("replicatedJobs", ()):
        if job["name"] == NODE:
            return int(job["template"]["spec"].get("parallelism") or 1)
    return 0


def is_final(jobset: Manifest) -> bool:
    """Returns whether the failure of one process is the end of the job.

    The JobSet itself says so only when the last process has left, which takes the others the whole
    of their grace where they wait for the one that failed.
    """
    spec = jobset["spec"]
    policy, status = spec.get("failurePolicy") or {}, jobset.get("status", {})
    used = status.get("restartsCountTowardsMax") or status.get("restarts") or 0
    replicated = spec.get("replicatedJobs", ())
    jobs = [job["template"]["spec"] for job in replicated if job["name"] == NODE]
    return (
        used >= (policy.get("maxRestarts") or 0)
        and _only(policy, "FailJobSet")
        and all(
            job.get("backoffLimit") == 0
            and job["template"]["spec"].get("restartPolicy") == "Never"
            and _only(job.get("podFailurePolicy") or {}, "FailJob")
            for job in jobs
        )
    )


def _only(policy: Manifest, action: str) -> bool:
    """Returns whether no rule of a policy does anything else."""
    return all(rule.get("action") == action for rule in policy.get("rules") or ())


def _outlived(pods: Sequence[Pod], restart: int) -> tuple[str, str]:
    """Returns what keeps pods from ending whose training is done."""
    names = sorted({name for pod in pods if pod.restart == restart for name in pod.outlives})
    if not names:
        return "", ""
    return SIDECAR, f"container {', '.join(names)} still runs beside it"


def suspended(job: Manifest) -> bool:
    """Returns whether a TrainJob or JobSet is held back."""
    return bool(job["spec"].get("suspend")) or bool(condition(job.get("status", {}), "Suspended"))


def queue(job: Manifest) -> tuple[str, str]:
    """Returns reason and message of a job that is held back."""
    name = job["metadata"].get("labels", {}).get(QUEUE_LABEL)
    return "Suspended", f"queue {name} has not admitted it" if name else "it is suspended"


def held_up(processes: Sequence[ProcessStatus]) -> tuple[str, str]:
    """Returns why the processes do not all run yet, as far as the platform says."""
    held = [item for item in processes if not item.alive and item.exit_code is None and item.reason]
    if not held:
        return "", ""
    first = held[0]
    who = f"process {first.process}" if len(held) == 1 else f"{len(held)} processes"
    return first.reason, f"{who}: {first.message or first.reason}"
