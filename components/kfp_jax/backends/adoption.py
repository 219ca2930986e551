"""Whose is the object that already has a job's name, and what follows. Pure."""

from enum import StrEnum

from kfp_jax.backends.pod_status import Manifest
from kfp_jax.manifests.identity import JOB_LABEL, MANAGED_BY, PREFIX, SPEC_HASH, Identity
from kfp_jax.status import Phase


class Verdict(StrEnum):
    """What to do about a name that is taken."""

    ADOPT = "adopt"  # it is this very job
    NEXT = "next"  # an attempt of this job that is over: its name is used up
    LEAVING = "leaving"  # an attempt that is being deleted: once it is gone, the next
    BUSY = "busy"  # an attempt of this job runs with another spec
    FOREIGN = "foreign"  # somebody else's


def judge(found: Manifest, phase: Phase, identity: Identity, spec_hash: str) -> Verdict:
    """Returns what to do about an object of the job's name.

    Args:
        found: The TrainJob or JobSet.
        phase: Where it stands.
        identity: Who the job is.
        spec_hash: Of the spec that is to be submitted.
    """
    if not is_ours(found, identity):
        return Verdict.FOREIGN
    if "deletionTimestamp" in found["metadata"]:
        return Verdict.LEAVING
    same = found["metadata"].get("annotations", {}).get(SPEC_HASH) == spec_hash
    if phase.finished and not (same and phase is Phase.SUCCEEDED):
        return Verdict.NEXT
    return Verdict.ADOPT if same else Verdict.BUSY


def is_ours(found: Manifest, identity: Identity) -> bool:
    """Returns whether an object was made for this task: labels alone could be anybody's."""
    metadata = found["metadata"]
    labels = metadata.get("labels", {})
    owners = {owner["uid"] for owner in metadata.get("ownerReferences") or ()}
    owned = identity.owner.uid in owners if identity.owner else True
    return labels.get(MANAGED_BY) == PREFIX and labels.get(JOB_LABEL) == identity.name and owned
