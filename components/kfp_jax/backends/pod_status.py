"""From the pods of a job to the status of its processes. Pure."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from kfp_jax.manifests.environment import NODE
from kfp_jax.status import DELETED, EXIT_STOPPED, INIT_FAILED, OUT_OF_MEMORY, ProcessStatus

Manifest = Mapping[str, Any]

JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
_JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"
_REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
_RESTART = "jobset.sigs.k8s.io/restart-attempt"
_INDEX = "batch.kubernetes.io/job-completion-index"

# A pod on its way, of which there is nothing to say.
_ON_THE_WAY = ("", "ContainerCreating", "PodInitializing")
_SAME = {"ErrImagePull": "ImagePullBackOff"}  # what the kubelet says by turns
_PLAIN_ENDS = ("Error", "Completed")
_TOLD_TO_STOP = (137, 143, EXIT_STOPPED)


@dataclass(frozen=True)
class Pod:
    """A pod as it was seen last.

    Attributes:
        manifest: What the server said.
        gone: Whether it is not there any more.
        asked: When somebody asked for its deletion, or None.
        asked_at: The server's version when that was first seen: the order within a second.
    """

    manifest: Manifest
    gone: bool = False
    asked: float | None = None
    asked_at: int = 0

    @classmethod
    def seen(cls, manifest: Manifest, *, gone: bool, before: "Pod | None") -> "Pod":
        """Returns a pod as it is now, with what was known of it before.

        When its grace is over the kubelet asks once more, and the server keeps that moment alone.
        """
        asked = _asked(manifest)
        if before is None or before.asked is None:
            version = str(manifest["metadata"].get("resourceVersion", ""))
            seen = int(version) if asked is not None and version.isdecimal() else 0
            return cls(manifest, gone, asked, seen)
        first = before.asked if asked is None else min(before.asked, asked)
        return cls(manifest, gone, first, before.asked_at)

    @property
    def process(self) -> int | None:
        """Which process it is, or None for a pod that trains nothing."""
        metadata = self.manifest["metadata"]
        labels = metadata.get("labels", {})
        index = labels.get(_INDEX) or metadata.get("annotations", {}).get(_INDEX, "")
        return int(index) if labels.get(_REPLICATED_JOB) == NODE and index.isdecimal() else None

    @property
    def restart(self) -> int:
        """How often the set had been started again when it was made."""
        value = self.manifest["metadata"].get("labels", {}).get(_RESTART, "0")
        return int(value) if value.isdecimal() else 0

    @property
    def ends(self) -> bool:
        """Whether it has ended or is gone."""
        return self.gone or self.manifest.get("status", {}).get("phase") in ("Succeeded", "Failed")

    @property
    def outlives(self) -> list[str]:
        """The containers that run on though the process is done."""
        found = self.manifest.get("status", {}).get("containerStatuses", ())
        if _container(found, NODE).get("state", {}).get("terminated", {}).get("exitCode") != 0:
            return []
        return [item["name"] for item in found if "running" in item.get("state", {})]

    def belongs_to(self, jobset_uid: str) -> bool:
        """Returns whether the JobSet of that uid made it; without the label, its name must do."""
        uid = self.manifest["metadata"].get("labels", {}).get(_JOBSET_UID, jobset_uid)
        return bool(uid == jobset_uid)


def reduce_pods(
    pods: Iterable[Pod], *, nodes: int, restart: int, failed: bool
) -> tuple[ProcessStatus, ...]:
    """Returns the status of each process of one attempt, in their order.

    Args:
        pods: All that were seen.
        nodes: How many processes the job has.
        restart: Which attempt counts.
        failed: Whether the job has failed. Then a pod that somebody deleted may be why.
    """
    current = {pod.process: pod for pod in pods if pod.restart == restart}
    found = [
        _process(index, current[index]) if index in current else ProcessStatus(index, alive=False)
        for index in range(nodes)
    ]
    if failed and all(item.failed_at is None for item in found):
        deleted = [
            (math.inf if pod.asked is None else pod.asked, pod.asked_at, not pod.ends, index)
            for index, pod in current.items()
            if index is not None and found[index].exit_code != 0
            if pod.asked is not None or pod.gone
        ]
        if deleted:
            moment, _, _, first = min(deleted)
            found[first] = replace(found[first], failed_at=moment, reason=DELETED)
    return tuple(found)


def _process(index: int, pod: Pod) -> ProcessStatus:
    status = pod.manifest.get("status", {})
    reason, message = _said(pod.manifest)
    node = _container(status.get("containerStatuses", ()), NODE)
    state, before = node.get("state", {}), node.get("lastState", {})
    crashing = state.get("waiting", {}).get("reason") == "CrashLoopBackOff"
    end = before.get("terminated") if crashing else state.get("terminated")
    disrupted = condition(status, "DisruptionTarget")
    code, failed_at = None, None
    if end:
        code = int(end["exitCode"])
        moment = seconds(end.get("finishedAt"))
        if code and not _was_stopped(code, moment, pod):
            failed_at = moment
    if failed_at is None and (code is None or code != 0):
        if disrupted:
            failed_at = seconds(disrupted.get("lastTransitionTime"))
        elif status.get("phase") == "Failed" and pod.asked is None:
            failed_at = seconds(status.get("startTime"))
    return ProcessStatus(
        index,
        alive=not pod.ends and "running" in state,
        exit_code=code,
        failed_at=failed_at,
        reason=reason,
        message=message,
    )


def _said(manifest: Manifest) -> tuple[str, str]:
    """Returns what the platform says of a pod: a reason and its sentence, or nothing."""
    status = manifest.get("status", {})
    disrupted = condition(status, "DisruptionTarget")
    if disrupted:
        # The kubelet's own word (Evicted, NodeLost) is plainer than the condition's.
        reason = str(status.get("reason") or disrupted.get("reason", ""))
        return reason, line(status.get("message") or disrupted.get("message"))
    if status.get("reason"):
        return str(status["reason"]), line(status.get("message"))
    for item in status.get("initContainerStatuses", ()):
        end = item.get("state", {}).get("terminated") or {}
        if end.get("exitCode"):
            return INIT_FAILED, f"{item['name']} exited with code {end['exitCode']}"
    for item in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        waiting = item.get("state", {}).get("waiting") or {}
        if waiting.get("reason", "") not in _ON_THE_WAY:
            reason = str(waiting["reason"])
            return _SAME.get(reason, reason), line(waiting.get("message"))
    scheduled = condition(status, "PodScheduled", "False")
    if scheduled and status.get("phase") == "Pending":
        return scheduled.get("reason", ""), line(scheduled.get("message"))
    node = _container(status.get("containerStatuses", ()), NODE)
    end = node.get("state", {}).get("terminated") or {}
    if end.get("reason") == OUT_OF_MEMORY:
        return OUT_OF_MEMORY, _memory(manifest)
    if end.get("reason", "Error") not in _PLAIN_ENDS:
        return end["reason"], line(end.get("message"))
    return "", ""


def _memory(manifest: Manifest) -> str:
    """Returns which pod it was that had too little memory, and how much that was."""
    node = _container(manifest.get("spec", {}).get("containers", ()), NODE)
    limit = node.get("resources", {}).get("limits", {}).get("memory")
    pod = f"pod {manifest['metadata']['name']}"
    return f"{pod}, limit {limit}" if limit else pod


def _was_stopped(code: int, moment: float, pod: Pod) -> bool:
    """Returns whether a container ended because its pod was deleted, by a clock of seconds."""
    if pod.asked is None:
        return False
    if pod.asked < moment:
        return True
    # In that second the code must tell, as it must where only the kubelet's last word was seen.
    last_word = pod.manifest["metadata"].get("deletionGracePeriodSeconds") == 0
    return code in _TOLD_TO_STOP and (pod.asked == moment or last_word)


def _asked(pod: Manifest) -> float | None:
    """Returns when a pod's deletion was asked for: the server names the end of its grace."""
    metadata = pod["metadata"]
    if "deletionTimestamp" not in metadata:
        return None
    grace = float(metadata.get("deletionGracePeriodSeconds") or 0)
    return seconds(metadata["deletionTimestamp"]) - grace


def condition(status: Manifest, kind: str, value: str = "True") -> Manifest | None:
    """Returns a condition that has this value, or None. Those that hold no more stay listed."""
    for item in status.get("conditions") or ():
        if item["type"] == kind and item["status"] == value:
            found: Manifest = item
            return found
    return None


def _container(statuses: Iterable[Manifest], name: str) -> Manifest:
    return next((item for item in statuses if item["name"] == name), {})


def line(text: Any) -> str:
    """Returns a sentence of the platform's on one line, without its end."""
    return " ".join(str(text or "").split()).rstrip(".")


def seconds(moment: Any) -> float:
    """Returns a moment such as 2026-01-02T03:04:05Z in seconds since the epoch; 0 for none."""
    return datetime.fromisoformat(moment).timestamp() if moment else 0.0
