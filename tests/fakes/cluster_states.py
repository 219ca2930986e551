"""Pods, JobSets and TrainJobs as a cluster shows them, trimmed to what tells how a job stands."""

from typing import Any

from kfp_jax.backends.pod_status import Pod

Manifest = dict[str, Any]
JOBSET_UID = "jobset-uid"
TRAINJOB_UID = "trainjob-uid"


def moment(second: int) -> str:
    return f"2026-12-01T00:{second // 60:02d}:{second % 60:02d}Z"


def pod(
    process: int,
    status: Manifest | None = None,
    *,
    restart: int = 0,
    gone: bool = False,
    deleted_at: int | None = None,
    grace: int = 30,
    jobset: str = JOBSET_UID,
) -> Pod:
    """Returns a pod; `deleted_at` is the second at which somebody asked for its deletion."""
    metadata: Manifest = {
        "name": f"j-node-0-{process}-{restart}",
        "uid": f"pod-{process}-{restart}",
        "labels": {
            "jobset.sigs.k8s.io/jobset-name": "j",
            "jobset.sigs.k8s.io/jobset-uid": jobset,
            "jobset.sigs.k8s.io/replicatedjob-name": "node",
            "jobset.sigs.k8s.io/restart-attempt": str(restart),
            "batch.kubernetes.io/job-completion-index": str(process),
        },
    }
    if deleted_at is not None:
        metadata["deletionTimestamp"] = moment(deleted_at + grace)
        metadata["deletionGracePeriodSeconds"] = grace
    manifest = {"metadata": metadata, "status": status or {"phase": "Pending"}}
    return Pod.seen(manifest, gone=gone, before=None)


def running() -> Manifest:
    return {"phase": "Running", "containerStatuses": [{"name": "node", "state": {"running": {}}}]}


def waiting(reason: str, message: str = "") -> Manifest:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"name": "node", "state": state}]}


def ended(code: int, at: int = 5, reason: str = "", **more: Any) -> Manifest:
    """Returns the status of a pod whose container has ended, at that second."""
    terminated = {
        "exitCode": code,
        "reason": reason or ("Error" if code else "Completed"),
        "finishedAt": moment(at),
    }
    return {
        "phase": "Failed" if code else "Succeeded",
        "containerStatuses": [{"name": "node", "state": {"terminated": terminated}}],
        **more,
    }


def outlived(sidecar: str) -> Manifest:
    """Returns the status of a pod whose process is done, but not the container beside it."""
    status = ended(0)
    other = {"name": sidecar, "state": {"running": {}}}
    return {"phase": "Running", "containerStatuses": [*status["containerStatuses"], other]}


def disrupted(reason: str, message: str = "", at: int = 4) -> list[Manifest]:
    return [
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": moment(at),
        }
    ]


def unschedulable(message: str) -> Manifest:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
    }
    return {"phase": "Pending", "conditions": [condition]}


def condition(kind: str, reason: str = "", message: str = "", status: str = "True") -> Manifest:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def jobset(
    *conditions: Manifest,
    nodes: int = 2,
    restarts: int = 0,
    owner: str = TRAINJOB_UID,
    job: Manifest | None = None,
    **spec: Any,
) -> Manifest:
    owners = [{"kind": "TrainJob", "name": "j", "uid": owner}] if owner else []
    node = {
        "name": "node",
        "template": {
            "spec": {
                "parallelism": nodes,
                "backoffLimit": 0,
                "template": {"spec": {"restartPolicy": "Never"}},
                **(job or {}),
            }
        },
    }
    return {
        "metadata": {"name": "j", "uid": JOBSET_UID, "ownerReferences": owners},
        "spec": {"replicatedJobs": [node], **spec},
        "status": {"conditions": list(conditions), "restarts": restarts},
    }


def trainjob(*conditions: Manifest, nodes: int = 2, **spec: Any) -> Manifest:
    return {
        "metadata": {"name": "j", "uid": TRAINJOB_UID},
        "spec": {"trainer": {"numNodes": nodes}, **spec},
        "status": {"conditions": list(conditions)},
    }
