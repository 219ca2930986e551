"""From a TrainJob or a JobSet, ours or somebody else's, to one value. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kfp_jax.manifests.environment import NODE
from kfp_jax.manifests.identity import ATTEMPT_LABEL, MANAGED_BY, PREFIX, RENEWED, label
from kfp_jax.status import Phase

Manifest = Mapping[str, Any]

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
    task: str
    attempt: str
    runtime: str
    ending: bool
    renewed: datetime | None
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
            "task": self.task,
            "attempt": int(self.attempt) if self.attempt.isdecimal() else None,
            "runtime": self.runtime,
            "being_deleted": self.ending,
        }


def read_jobs(trainjobs: Iterable[Manifest], jobsets: Iterable[Manifest]) -> list[ClusterJob]:
    """Returns all jobs, the newest first; a TrainJob's own JobSet is no job beside it."""
    sets = list(jobsets)
    owned = {owner: item for item in sets if (owner := _owner_uid(item))}
    found = [read_trainjob(item, owned.get(item["metadata"]["uid"])) for item in trainjobs]
    found += [read_jobset(item) for item in sets if not _owner_uid(item)]
    return sorted(found, key=lambda job: (-job.created.timestamp(), job.namespace, job.name))


def read_trainjob(manifest: Manifest, jobset: Manifest | None) -> ClusterJob:
    """Returns a TrainJob as a job.

    Args:
        manifest: The TrainJob.
        jobset: The JobSet of its name, if it is there and may be read. One that another object owns
            tells nothing of this job.
    """
    if jobset is not None and _owner_uid(jobset) != manifest["metadata"]["uid"]:
        jobset = None
    spec, status = manifest.get("spec", {}), manifest.get("status", {})
    trainer, ref = spec.get("trainer", {}), spec.get("runtimeRef", {})
    runtime = f"{ref.get('kind', 'ClusterTrainingRuntime')}/{ref['name']}" if ref else ""
    restarts = jobset.get("status", {}).get("restarts", 0) if jobset else None
    phase, reason, message = _phase(
        status.get("conditions", ()),
        done="Complete",
        suspended=bool(spec.get("suspend")),
        counts=status.get("jobsStatus", ()),
        restarts=restarts or 0,
    )
    return ClusterJob(
        **_identity(manifest),
        backend=TRAINER,
        phase=phase,
        reason=reason,
        message=message,
        nodes=trainer.get("numNodes") or (_node_count(jobset) if jobset else None),
        restarts=restarts,
        runtime=runtime,
        **_training(jobset),
        progress=status.get("trainerStatus", {}).get("progressPercentage"),
    )


def read_jobset(manifest: Manifest) -> ClusterJob:
    """Returns a JobSet that no TrainJob owns as a job."""
    spec, status = manifest.get("spec", {}), manifest.get("status", {})
    restarts = status.get("restarts", 0)
    phase, reason, message = _phase(
        status.get("conditions", ()),
        done="Completed",
        suspended=bool(spec.get("suspend")),
        counts=status.get("replicatedJobsStatus", ()),
        restarts=restarts,
    )
    return ClusterJob(
        **_identity(manifest),
        backend=JOBSET,
        phase=phase,
        reason=reason,
        message=message,
        nodes=_node_count(manifest),
        restarts=restarts,
        runtime="",
        **_training(manifest),
    )


def moment(text: str | None) -> datetime | None:
    """Returns a time as Kubernetes writes it, or None for none."""
    return datetime.fromisoformat(text) if text else None


def condition(conditions: Iterable[Manifest], kind: str) -> Manifest | None:
    """Returns the condition of that type if it is true; the order of conditions says nothing."""
    found = [c for c in conditions if c.get("type") == kind and c.get("status") == "True"]
    return found[0] if found else None


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
        "run": labels.get(label("run"), ""),
        "task": labels.get(label("task"), ""),
        "attempt": labels.get(ATTEMPT_LABEL, ""),
        "ending": "deletionTimestamp" in metadata,
        "renewed": moment(metadata.get("annotations", {}).get(RENEWED)),
    }


def _phase(
    conditions: Iterable[Manifest],
    *,
    done: str,
    suspended: bool,
    counts: Iterable[Manifest],
    restarts: int,
) -> tuple[Phase, str, str]:
    """Returns the phase, and the cluster's reason and message for it."""
    conditions = list(conditions)
    for kind, phase in ((done, Phase.SUCCEEDED), ("Failed", Phase.FAILED)):
        if found := condition(conditions, kind):
            return phase, found.get("reason", ""), found.get("message", "")
    if suspended:
        found = condition(conditions, "Suspended") or {}
        return Phase.QUEUED, found.get("reason", ""), found.get("message", "")
    nodes = [item for item in counts if item.get("name") == NODE] or list(counts)
    if nodes and all(item.get("ready", 0) or item.get("succeeded", 0) for item in nodes):
        return Phase.RUNNING, "", ""
    if restarts:
        return Phase.RESTARTING, "", ""
    active = any(item.get("active", 0) for item in nodes)
    return Phase.STARTING if active else Phase.PENDING, "", ""


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


def _owner_uid(manifest: Manifest) -> str:
    """Returns the uid of the TrainJob that owns a JobSet, or ""."""
    owners = manifest["metadata"].get("ownerReferences", ())
    found = [item["uid"] for item in owners if item.get("kind") == "TrainJob"]
    return found[0] if found else ""
