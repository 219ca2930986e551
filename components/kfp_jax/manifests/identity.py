"""Who a job is to the cluster: name, labels, spec hash, owner."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kfp_jax.errors import SpecError
from kfp_jax.names import label_value
from kfp_jax.spec import TrainSpec

PREFIX = "kfp-jax"
MANAGED_BY = "app.kubernetes.io/managed-by"
JOB_LABEL = f"{PREFIX}/job"
ATTEMPT_LABEL = f"{PREFIX}/attempt"
SPEC_HASH = f"{PREFIX}/spec-hash"
# When its launcher last said that it still follows the job, in RFC 3339: what `cleanup` judges by.
RENEWED = f"{PREFIX}/renewed-at"
RENEW_SECONDS = 60.0
# Put on a job before it is deleted on request, so that its launcher takes it for cancelled.
CANCELLED = f"{PREFIX}/cancelled"
STUDY = "study"  # of the names in `Identity.labels`: whose trial a job is
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
# A mesh's sidecar outlives the program, so the pod would never be done.
NO_SIDECAR = {"sidecar.istio.io/inject": "false"}

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
MAX_DNS_LABEL = 63
_GENERATED = len("-abcde")


@dataclass(frozen=True)
class Owner:
    """The object with which the job goes: the run's Workflow, which owns the launcher's pod."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, kw_only=True)
class Identity:
    """One attempt at one job.

    Attributes:
        name: Name of the TrainJob or JobSet, as `names.job_name` makes it.
        namespace: Where it is.
        attempt: 1, 2, ...
        labels: What it belongs to: run, task, study, trial -> any text.
        owner: What takes the job along when it is deleted, or None.
    """

    name: str
    namespace: str
    attempt: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)
    owner: Owner | None = None


def metadata(
    identity: Identity, spec: TrainSpec, *, more_labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Returns the metadata of the TrainJob, JobSet or runtime of a job."""
    found: dict[str, Any] = {
        "name": identity.name,
        "namespace": identity.namespace,
        "labels": {**labels(identity), **(more_labels or {})},
        "annotations": {SPEC_HASH: spec.hash()},
    }
    if identity.owner:
        found["ownerReferences"] = [owner_reference(identity.owner)]
    return found


def labels(identity: Identity) -> dict[str, str]:
    """Returns the labels of a job and of its pods; `find` and `cleanup` go by them."""
    given = {label(name): label_value(value) for name, value in identity.labels.items() if value}
    return given | {
        JOB_LABEL: identity.name,
        ATTEMPT_LABEL: str(identity.attempt),
        MANAGED_BY: PREFIX,
    }


def queue_labels(spec: TrainSpec) -> dict[str, str]:
    """Returns the labels by which Kueue holds a TrainJob or JobSet back until there is room."""
    found = {QUEUE_LABEL: spec.pods.queue, PRIORITY_LABEL: spec.pods.priority}
    return {name: value for name, value in found.items() if value}


def label(name: str) -> str:
    """Returns the label's full name for `run`, `task`, `study` or `trial`."""
    return f"{PREFIX}/{name}"


def owner_reference(owner: Owner) -> dict[str, Any]:
    """Returns the reference by which the garbage collector knows what the job goes with.

    Blocking would need a right on the owner's finalizers, and may deadlock with Trainer 2.2's own.
    """
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": False,
        "blockOwnerDeletion": False,
    }


def check_name(name: str, nodes: Mapping[str, int], *, coordinator: bool) -> None:
    """Refuses a name from which JobSet could not make the names of the pods.

    The TrainJob would be accepted, and then have no pods and no status that says so.

    Args:
        name: Of the TrainJob or JobSet.
        nodes: Replicated job -> how many pods it has.
        coordinator: Whether the JobSet names a coordinator: that becomes a label's value.

    Raises:
        SpecError: It is too long or no DNS label.
    """
    limit = MAX_DNS_LABEL
    for job, count in nodes.items():
        pod = len(f"-{job}-0-{max(count, 1) - 1}") + _GENERATED
        limit = min(limit, MAX_DNS_LABEL - pod)
        if coordinator:
            limit = min(limit, (MAX_DNS_LABEL - len(f"-{job}-0-0.")) // 2)
    if not _NAME.fullmatch(name):
        raise SpecError(
            f"Job name {name!r:.80} is not valid; give a-z, 0-9 and dashes, a letter first."
        )
    if len(name) > limit:
        raise SpecError(
            f"Job name {name} has {len(name)} characters, but the names of its pods leave room for"
            f" {limit}; give a shorter one."
        )
