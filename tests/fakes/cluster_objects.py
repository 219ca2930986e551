"""TrainJobs, JobSets, pods and events as a real server tells them, trimmed."""

from datetime import UTC, datetime, timedelta
from typing import Any

Manifest = dict[str, Any]

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
OURS = {
    "app.kubernetes.io/managed-by": "kfp-jax",
    "kfp-jax/job": "mnist-0a1b2c3d-1",
    "kfp-jax/attempt": "1",
    "kfp-jax/run": "run-7",
    "kfp-jax/study": "lr-search",
}
RUNNING = {"jobsStatus": [{"name": "node", "ready": 1, "active": 1, "succeeded": 0, "failed": 0}]}


def at(ago: timedelta, now: datetime = NOW) -> str:
    return (now - ago).strftime("%Y-%m-%dT%H:%M:%SZ")


def trainjob(
    name: str = "mnist-0a1b2c3d-1",
    *,
    labels: dict[str, str] | None = None,
    status: Manifest | None = None,
    created: str = at(timedelta(hours=3)),
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Manifest:
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-of-{name}",
        "creationTimestamp": created,
        "labels": OURS if labels is None else labels,
        "annotations": annotations or {},
    }
    ref = {
        "apiGroup": "trainer.kubeflow.org",
        "kind": "ClusterTrainingRuntime",
        "name": "kfp-jax-cpu",
    }
    given = {"runtimeRef": ref, "trainer": {"numNodes": 2}, "suspend": False, **spec}
    return {"metadata": metadata, "spec": given, "status": RUNNING if status is None else status}


def jobset(
    name: str = "mnist-0a1b2c3d-1",
    *,
    owner: str = "",
    step: str = "node",
    container: str = "node",
    labels: dict[str, str] | None = None,
    status: Manifest | None = None,
    **spec: Any,
) -> Manifest:
    metadata: Manifest = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-of-jobset-{name}",
        "creationTimestamp": at(timedelta(hours=2, minutes=5)),
        "labels": labels or {},
    }
    if owner:
        metadata["ownerReferences"] = [{"kind": "TrainJob", "name": name, "uid": owner}]
    job = {
        "name": step,
        "replicas": 1,
        "template": {
            "spec": {
                "parallelism": 2,
                "template": {"spec": {"containers": [{"name": container}]}},
            }
        },
    }
    return {
        "metadata": metadata,
        "spec": {"replicatedJobs": [job], **spec},
        "status": status or {},
    }


def pod(
    process: int = 0,
    *,
    job: str = "mnist-0a1b2c3d-1",
    step: str = "node",
    container: str = "node",
    attempt: int = 0,
    policy: str = "Never",
    env: bool = True,
    machine: str = "node-1",
    **status: Any,
) -> Manifest:
    name = f"{job}-{step}-0-{process}-abcd{process}"
    labels = {
        "jobset.sigs.k8s.io/jobset-name": job,
        "jobset.sigs.k8s.io/replicatedjob-name": step,
        "jobset.sigs.k8s.io/restart-attempt": str(attempt),
        "jobset.sigs.k8s.io/job-index": "0",
        "batch.kubernetes.io/job-completion-index": str(process),
    }
    variables = [{"name": "JAX_COORDINATOR_ADDRESS", "value": "x"}] if env else []
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-of-{name}", "labels": labels},
        "spec": {
            "nodeName": machine,
            "restartPolicy": policy,
            "containers": [{"name": container, "env": variables}],
        },
        "status": {"phase": "Running", **status},
    }


def container(name: str = "node", restarts: int = 0, **state: Any) -> list[Manifest]:
    """Returns the statuses of a pod's containers, of which it has one."""
    last = state.pop("lastState", {})
    return [{"name": name, "restartCount": restarts, "state": state, "lastState": last}]


def event(kind: str, name: str, reason: str, message: str, ago: timedelta, **more: Any) -> Manifest:
    return {
        "metadata": {"name": f"{name}.{reason}.{ago.total_seconds():.0f}".lower()},
        "involvedObject": {"kind": kind, "name": name},
        "reason": reason,
        "message": message,
        "type": "Normal",
        "lastTimestamp": at(ago),
        **more,
    }
