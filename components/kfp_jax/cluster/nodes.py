"""From the pods and events of a job to what a person asks: who does what, and why not. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kfp_jax.backends.pod_status import Manifest, condition
from kfp_jax.cluster.jobs import ClusterJob, moment
from kfp_jax.manifests.environment import NODE
from kfp_jax.reports import Report, parse_line
from kfp_jax.sinks import describe

_STEP = "jobset.sigs.k8s.io/replicatedjob-name"
_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
_JOB_INDEX = "jobset.sigs.k8s.io/job-index"
_INDEX = "batch.kubernetes.io/job-completion-index"
_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, kw_only=True)
class NodeState:
    """One pod of a job.

    Attributes:
        step: The replicated job that it belongs to; `node` trains.
        process: Its JAX process id, its number within the step.
        attempt: 1, and 1 more for each restart of the whole job.
        container: The container that trains.
        state: Running, exited 1, ImagePullBackOff, Unschedulable and the like.
        detail: The cluster's sentence about that, or "".
        restarts: How often the container was started again in place.
        machine: The Kubernetes node that it is on, or "".
    """

    pod: str
    uid: str
    step: str
    process: int
    attempt: int
    container: str
    state: str
    detail: str
    restarts: int
    machine: str

    def to_json(self) -> dict[str, Any]:
        """Returns it for machines."""
        return {
            "process": self.process,
            "step": self.step,
            "attempt": self.attempt,
            "state": self.state,
            "detail": self.detail,
            "restarts": self.restarts,
            "machine": self.machine,
            "pod": self.pod,
        }


@dataclass(frozen=True)
class JobEvent:
    """One event: when it was seen last, on what, and what it says."""

    when: datetime
    kind: str
    name: str
    level: str
    reason: str
    text: str
    count: int = 1

    def to_json(self) -> dict[str, Any]:
        """Returns it for machines."""
        return {
            "when": self.when.isoformat(),
            "object": f"{self.kind}/{self.name}",
            "level": self.level,
            "reason": self.reason,
            "message": self.text,
            "count": self.count,
        }


def read_nodes(pods: Iterable[Manifest]) -> list[NodeState]:
    """Returns the pods of a job by step, process and attempt."""
    found = [read_node(item) for item in pods]
    return sorted(found, key=lambda n: (n.step != NODE, n.step, n.process, n.attempt, n.pod))


def read_node(pod: Manifest) -> NodeState:
    """Returns one pod of a job."""
    metadata, status = pod["metadata"], pod.get("status", {})
    labels = {**metadata.get("annotations", {}), **metadata.get("labels", {})}
    container = training_container(pod)
    statuses = status.get("containerStatuses", ())
    own: Manifest = next((item for item in statuses if item["name"] == container), {})
    state, detail = _state(pod, own)
    return NodeState(
        pod=metadata["name"],
        uid=metadata["uid"],
        step=labels.get(_STEP, NODE),
        process=_number(labels.get(_INDEX, labels.get(_JOB_INDEX, "0"))),
        attempt=_number(labels.get(_ATTEMPT, "0")) + 1,
        container=container,
        state=state,
        detail=_told(detail),
        restarts=own.get("restartCount", 0),
        machine=pod.get("spec", {}).get("nodeName", ""),
    )


def training_container(pod: Manifest) -> str:
    """Returns the container that trains: `node`, or the first of a pod that has none."""
    names = [item["name"] for item in pod.get("spec", {}).get("containers", ())]
    return NODE if NODE in names or not names else names[0]


def trains(job: ClusterJob, node: NodeState) -> bool:
    """Returns whether a pod is a process of the training, not one that prepares it."""
    return job.step in ("", node.step)


def read_events(
    events: Iterable[Manifest], job: ClusterJob, nodes: Iterable[NodeState]
) -> list[JobEvent]:
    """Returns the events of a job, its JobSet, Jobs and pods, gone ones included, newest last."""
    uids = {job.uid, *(node.uid for node in nodes)}
    steps = "|".join(re.escape(step) for step in {NODE, *(node.step for node in nodes)})
    name = re.escape(job.name)
    patterns = {
        "TrainJob": name,
        "JobSet": name,
        "TrainingRuntime": name,
        "Job": rf"{name}-({steps})-\d+",
        "Pod": rf"{name}-({steps})-\d+-\d+-\w+",
        "Workload": rf"(trainjob|jobset)-{name}-\w+",
    }

    def concerns(event: Manifest) -> bool:
        about = event.get("involvedObject", {})
        if about.get("uid") in uids:
            return True
        pattern = patterns.get(about.get("kind", ""))
        return bool(pattern and re.fullmatch(pattern, about.get("name", "")))

    own = [item for item in events if concerns(item)]
    # Most know the second alone; the server counts on with each change.
    own.sort(key=lambda item: _number(item["metadata"].get("resourceVersion", "")))
    return sorted((_event(item) for item in own), key=lambda event: int(event.when.timestamp()))


def missing(job: ClusterJob, pods: Iterable[Manifest]) -> list[str]:
    """Returns what a job lacks that kfp-jax gives its own, one sentence each."""
    if job.ours:
        return []
    found = [
        f"kfp-jax did not make this {job.kind}: no run or task is known, no limit is kept,"
        " and no launcher collects its results."
    ]
    pods = list(pods)
    if job.nodes and job.nodes > 1 and pods and not any(_has_jax_environment(p) for p in pods):
        found.append(
            "Its pods have no JAX_* variables: unless the program knows the others by itself, each"
            " trains alone."
        )
    policies = {pod.get("spec", {}).get("restartPolicy", "Always") for pod in pods}
    if policies - {"Never"}:
        found.append(
            f"Its pods restart one by one (restartPolicy {', '.join(sorted(policies))}), and a JAX"
            " process that restarts alone cannot join the others again."
        )
    return found


def _has_jax_environment(pod: Manifest) -> bool:
    containers = pod.get("spec", {}).get("containers", ())
    return any(
        item.get("name") == "JAX_COORDINATOR_ADDRESS"
        for c in containers
        for item in c.get("env", ())
    )


def _state(pod: Manifest, own: Manifest) -> tuple[str, str]:
    """Returns what a pod does in a word or two, and the cluster's sentence about it."""
    status = pod.get("status", {})
    if status.get("reason"):  # Evicted, NodeLost, DeadlineExceeded
        return status["reason"], status.get("message", "")
    for item in status.get("initContainerStatuses", ()):
        if blocked := _init_problem(item):
            return blocked
    state = own.get("state", {})
    if ended := state.get("terminated"):
        return _exit(ended), ended.get("message", "")
    if waiting := state.get("waiting"):
        return waiting.get("reason", "Waiting"), waiting.get("message") or _last_exit(own)
    if "deletionTimestamp" in pod["metadata"]:
        return "Stopping", ""
    if "running" in state:
        return "Running", _last_exit(own)
    for found in status.get("conditions", ()):
        if found.get("type") == "PodScheduled" and found.get("status") == "False":
            return found.get("reason", "Unschedulable"), found.get("message", "")
    disrupted = condition(status, "DisruptionTarget")
    if disrupted:
        return disrupted.get("reason", "Disrupted"), disrupted.get("message", "")
    return status.get("phase", "Unknown"), ""


def _told(text: str) -> str:
    """Returns what a termination message tells, which of our programs is a report, on one line."""
    report = parse_line(text)
    if isinstance(report, Report):
        text = str(report.fields.get("message") or describe(report))
    return " ".join(text.split())


def _init_problem(item: Manifest) -> tuple[str, str] | None:
    state = item.get("state", {})
    ended, waiting = state.get("terminated", {}), state.get("waiting", {})
    if ended.get("exitCode"):
        return f"init {item['name']} {_exit(ended)}", ended.get("message", "")
    if waiting.get("reason") not in (None, "PodInitializing"):
        return f"init {item['name']} {waiting['reason']}", waiting.get("message", "")
    return None


def _exit(ended: Manifest) -> str:
    code, reason = ended.get("exitCode", 0), ended.get("reason", "")
    known = "" if reason in ("", "Error", "Completed") else f" ({reason})"
    return f"exited {code}{known}"


def _last_exit(own: Manifest) -> str:
    ended = own.get("lastState", {}).get("terminated")
    return f"before: {_exit(ended)}" if ended else ""


def _event(item: Manifest) -> JobEvent:
    about: Mapping[str, Any] = item.get("involvedObject", {})
    series = item.get("series") or {}
    # Events of the newer API have no lastTimestamp, those of the older no eventTime.
    times = (
        series.get("lastObservedTime"),
        item.get("lastTimestamp"),
        item.get("eventTime"),
        item.get("firstTimestamp"),
        item["metadata"].get("creationTimestamp"),
    )
    return JobEvent(
        when=next((found for text in times if (found := moment(text))), _EPOCH),
        kind=about.get("kind", ""),
        name=about.get("name", ""),
        level=item.get("type", "Normal"),
        reason=item.get("reason", ""),
        text=" ".join(str(item.get("message", "")).split()),
        count=series.get("count") or item.get("count") or 1,
    )


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
