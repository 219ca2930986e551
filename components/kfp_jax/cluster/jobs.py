"""From a TrainJob or a JobSet, ours or somebody else's, to one value. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kfp_jax.backends.jobset_status import reduce_jobset
from kfp_jax.backends.pod_status import JOBSET_NAME, Manifest, Pod
from kfp_jax.backends.trainjob_status import owns, reduce_trainjob
from kfp_jax.manifests.environment import NODE
from kfp_jax.manifests.identity import (
    ATTEMPT_LABEL,
    MANAGED_BY,
    PREFIX,
    QUEUE_LABEL,
    RENEWED,
    STUDY,
    label,
)
from kfp_jax.manifests.runtime import CLUSTER_KIND
from kfp_jax.status import JobStatus, Phase

TRAINER = "trainer"
JOBSET = "jobset"


@dataclass(frozen=True, kw_only=True)
class ClusterJob:
    """One job.

    Attributes:
        backend: trainer for a TrainJob, jobset for a JobSet of its own.
        reason: The cluster's word for how it ended or why it waits, or "".
        message: The cluster's sentence about that, or "".
        nodes: How many nodes; None where only the runtime knows.
        restarts: How often all nodes were started again; None where the JobSet cannot be read.
        ours: Whether kfp-jax made it.
        run: Label of the pipeline run, or "".
        task: Label of the task, or "".
        attempt: Label of the attempt, or "".
        runtime: What a TrainJob refers to, as kind/name, or "".
        ending: Whether its deletion has begun.
        queue: Kueue's queue that holds it back or has let it through, or "".
        renewed: When its launcher last said that it follows the job, or None.
        step: The replicated job whose pods train; "" where any may.
        container: The container that trains.
        progress: Percent that its `trainerStatus` tells, or None.
    """

    backend: str
    namespace: str
    name: str
    uid: str
    phase: Phase
    reason: str
    message: str
    nodes: int | None
    restarts: int | None
    created: datetime
    ours: bool
    run: str
    study: str
    attempt: str
    runtime: str
    ending: bool
    renewed: datetime | None
    queue: str = ""
    step: str = NODE
    container: str = NODE
    progress: int | None = None

    @property
    def kind(self) -> str:
        """What Kubernetes calls it."""
        return "TrainJob" if self.backend == TRAINER else "JobSet"

    def to_json(self) -> dict[str, Any]:
        """Returns it for machines."""
        return {
            "name": self.name,
            "namespace": self.namespace,
            "backend": self.backend,
            "phase": self.phase.value,
            "reason": self.reason,
            "message": self.message,
            "nodes": self.nodes,
            "restarts": self.restarts,
            "created": self.created.isoformat(),
            "made_by_kfp_jax": self.ours,
            "run": self.run,
            "study": self.study,
            "attempt": int(self.attempt) if self.attempt.isdecimal() else None,
            "runtime": self.runtime,
            "being_deleted": self.ending,
        }


def read_jobs(
    trainjobs: Iterable[Manifest], jobsets: Iterable[Manifest], pods: Iterable[Manifest]
) -> list[ClusterJob]:
    """Returns all jobs, the newest first; a TrainJob's own JobSet is no job beside it."""
    sets = {_key(item): item for item in jobsets}
    members: dict[tuple[str, str], list[Manifest]] = {}
    for pod in pods:
        metadata = pod["metadata"]
        name = metadata.get("labels", {}).get(JOBSET_NAME, "")
        members.setdefault((metadata["namespace"], name), []).append(pod)
    found = []
    for item in trainjobs:
        key = _key(item)
        found.append(read_trainjob(item, sets.get(key), members.get(key, ())))
        if key in sets and owns(item, sets[key]):
            del sets[key]
    found += [read_jobset(item, members.get(key, ())) for key, item in sets.items()]
    return sorted(found, key=lambda job: (-job.created.timestamp(), job.namespace, job.name))


def read_trainjob(
    manifest: Manifest, jobset: Manifest | None, pods: Iterable[Manifest]
) -> ClusterJob:
    """Returns a TrainJob as a job.

    Args:
        manifest: The TrainJob.
        jobset: The JobSet of its name, if it is there and may be read.
        pods: Of that JobSet.
    """
    spec, status = manifest.get("spec", {}), manifest.get("status", {})
    ref = spec["runtimeRef"]
    stands = reduce_trainjob(manifest, jobset, [Pod(pod) for pod in pods])
    own = jobset if jobset and owns(manifest, jobset) else None
    return ClusterJob(
        **_identity(manifest),
        **_standing(stands),
        backend=TRAINER,
        nodes=spec.get("trainer", {}).get("numNodes") or (_node_count(own) if own else None),
        restarts=stands.restarts if own else None,
        runtime=f"{ref.get('kind', CLUSTER_KIND)}/{ref['name']}",
        progress=status.get("trainerStatus", {}).get("progressPercentage"),
        **_training(own),
    )


def read_jobset(manifest: Manifest, pods: Iterable[Manifest]) -> ClusterJob:
    """Returns a JobSet that no TrainJob owns as a job."""
    stands = reduce_jobset(manifest, [Pod(pod) for pod in pods])
    training = _training(manifest)
    if stands.phase is Phase.RUNNING and training.get("step") == "":
        # Whose jobs have other names than ours: all of them train, as far as anybody knows.
        counts = manifest.get("status", {}).get("replicatedJobsStatus", ())
        if not counts or not all(item["ready"] or item["succeeded"] for item in counts):
            stands = JobStatus(Phase.STARTING, restarts=stands.restarts)
    return ClusterJob(
        **_identity(manifest),
        **_standing(stands),
        backend=JOBSET,
        nodes=_node_count(manifest),
        restarts=stands.restarts,
        runtime="",
        **training,
    )


def moment(text: str | None) -> datetime | None:
    """Returns a time as Kubernetes writes it, or None for none."""
    return datetime.fromisoformat(text) if text else None


def _identity(manifest: Manifest) -> dict[str, Any]:
    metadata = manifest["metadata"]
    labels = metadata.get("labels", {})
    created = moment(metadata.get("creationTimestamp"))
    return {
        "namespace": metadata.get("namespace", ""),
        "name": metadata["name"],
        "uid": metadata["uid"],
        "created": created or datetime.fromisoformat("1970-01-01T00:00:00Z"),
        "ours": labels.get(MANAGED_BY) == PREFIX,
        "queue": labels.get(QUEUE_LABEL, ""),
        "run": labels.get(label("run"), ""),
        "study": labels.get(label(STUDY), ""),
        "attempt": labels.get(ATTEMPT_LABEL, ""),
        "ending": "deletionTimestamp" in metadata,
        "renewed": moment(metadata.get("annotations", {}).get(RENEWED)),
    }


def _standing(status: JobStatus) -> dict[str, Any]:
    return {"phase": status.phase, "reason": status.reason, "message": status.message}


def _key(manifest: Manifest) -> tuple[str, str]:
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


def _node_count(jobset: Manifest) -> int:
    """Returns how many pods the nodes are; of a JobSet without `node`, all of its pods."""
    jobs = jobset.get("spec", {}).get("replicatedJobs", ())
    nodes = [item for item in jobs if item.get("name") == NODE] or jobs
    return sum(
        item.get("replicas", 1) * item.get("template", {}).get("spec", {}).get("parallelism", 1)
        for item in nodes
    )


def _training(jobset: Manifest | None) -> dict[str, Any]:
    """Returns the step and the container that train: `node`, else any and the first."""
    jobs = jobset.get("spec", {}).get("replicatedJobs", ()) if jobset else ()
    nodes = [item for item in jobs if item.get("name") == NODE] or jobs
    if not nodes:
        return {}
    pod = nodes[0].get("template", {}).get("spec", {}).get("template", {}).get("spec", {})
    names = [item["name"] for item in pod.get("containers", ())]
    return {
        "step": NODE if nodes is not jobs else "",
        "container": NODE if NODE in names or not names else names[0],
    }
