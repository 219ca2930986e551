"""From Kubernetes' events to why a job has no pods. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from kfp_jax.backends.pod_status import Manifest, line, seconds
from kfp_jax.status import JOB_REFUSED, POD_REFUSED, QUOTA, WEBHOOK_DOWN, JobStatus, Phase

# An event's reason -> ours. Pods tell most by themselves; of these things they cannot.
_REASONS = {
    "TrainJobResourcesCreationFailed": JOB_REFUSED,
    "JobCreationFailed": JOB_REFUSED,
    "HeadlessServiceCreationFailed": JOB_REFUSED,
    "PVCCreationFailed": JOB_REFUSED,
    "FailedCreate": POD_REFUSED,
    "FailedMount": "FailedMount",
    "FailedAttachVolume": "FailedMount",
}
# The platform tries these again, and does so with success once it is itself well.
_PASSING = ("failed calling webhook", "connection refused")


def explained(status: JobStatus, name: str, events: Iterable[Manifest]) -> JobStatus:
    """Returns the status of a job that starts, with the newest event that says what holds it up."""
    if status.phase is not Phase.STARTING or status.reason:
        return status
    for event in sorted(events, key=_moment, reverse=True):
        reason = _REASONS.get(event.get("reason", ""))
        if reason and _concerns(event, name):
            message = line(event.get("message"))
            return replace(status, reason=_refined(reason, message), message=message)
    return status


def _refined(reason: str, message: str) -> str:
    if reason in (POD_REFUSED, JOB_REFUSED):
        if "exceeded quota" in message:
            return QUOTA
        if any(mark in message for mark in _PASSING):
            return WEBHOOK_DOWN
    return reason


def _concerns(event: Manifest, name: str) -> bool:
    about = event.get("involvedObject", {}).get("name", "")
    return bool(about == name or about.startswith(f"{name}-"))


def _moment(event: Manifest) -> float:
    """Returns when it was seen last: some events have no firstTimestamp, some no lastTimestamp."""
    series = event.get("series") or {}
    return max(
        seconds(event.get("lastTimestamp")),
        seconds(event.get("eventTime")),
        seconds(series.get("lastObservedTime")),
    )
