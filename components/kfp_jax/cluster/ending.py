"""Ends jobs on a cluster, and removes what nobody looks after any more."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from kfp_jax.cluster.jobs import TRAINER, ClusterJob, Manifest, moment
from kfp_jax.cluster.lookup import find_jobs
from kfp_jax.errors import Conflict, NotFound
from kfp_jax.kube.resources import JOBSETS, RUNTIMES, TRAINJOBS
from kfp_jax.manifests.identity import MANAGED_BY, PREFIX, RENEW_SECONDS, label
from kfp_jax.manifests.runtime import NAMESPACED_KIND
from kfp_jax.names import label_value

if TYPE_CHECKING:
    from kfp_jax.kube.client import Client

# A launcher that misses one renewal may be slow; one that misses four is gone.
ABANDONED = timedelta(seconds=4 * RENEW_SECONDS)


@dataclass(frozen=True)
class Removal:
    """One object of a run: what becomes of it, and why.

    Attributes:
        kind: TrainJob, JobSet or TrainingRuntime.
        name: Its name.
        removed: Whether it is removed.
        why: Completes "it was removed because ..." or "it was kept because ...".
    """

    kind: str
    name: str
    removed: bool
    why: str

    def to_json(self) -> dict[str, Any]:
        """Returns it for machines."""
        return asdict(self)


def delete_job(client: "Client", job: ClusterJob) -> None:
    """Deletes a job and the runtime that is its own; its pods get their time to save and leave.

    Raises:
        NotFound: It is gone already.
        Conflict: Another job has its name by now.
    """
    resource = TRAINJOBS if job.backend == TRAINER else JOBSETS
    client.delete(resource, job.namespace, job.name, uid=job.uid)
    if job.ours and job.runtime == f"{NAMESPACED_KIND}/{job.name}":
        with suppress(NotFound):  # it went with its owner
            client.delete(RUNTIMES, job.namespace, job.name)


def clean_up(
    client: "Client", namespace: str, run: str, *, now: datetime, followed: bool
) -> list[Removal]:
    """Deletes what a pipeline run left in a namespace, and returns what became of each object.

    Args:
        client: To the cluster.
        namespace: Where.
        run: The run's id.
        now: The time by which renewals are judged.
        followed: Whether jobs that a launcher still follows go, too: when the run has ended.

    Raises:
        Forbidden: The account may not list or delete them.
    """
    labels = f"{label('run')}={label_value(run)},{MANAGED_BY}={PREFIX}"
    jobs = find_jobs(client, namespace, labels=labels).jobs
    done = [judge(job, now, followed=followed) for job in jobs]
    for job, removal in zip(jobs, done, strict=True):
        if removal.removed:
            with suppress(NotFound, Conflict):
                delete_job(client, job)
    with suppress(NotFound):  # a cluster without Trainer has no runtimes
        runtimes = client.list(RUNTIMES, namespace, labels=labels).items
        kept = {removal.name for removal in done if not removal.removed}
        for name in orphans(runtimes, kept, now, followed=followed):
            with suppress(NotFound):
                client.delete(RUNTIMES, namespace, name)
            done.append(Removal(NAMESPACED_KIND, name, True, "its job is gone"))
    return done


def judge(job: ClusterJob, now: datetime, *, followed: bool) -> Removal:
    """Returns what is to become of a job of an ended run. Pure."""
    if followed:
        return Removal(job.kind, job.name, True, "its run has ended")
    heard = job.renewed or job.created
    silent = now - heard
    if silent > ABANDONED:
        minutes = f"{silent.total_seconds() / 60:.0f} min"
        return Removal(job.kind, job.name, True, f"no launcher has followed it for {minutes}")
    return Removal(
        job.kind, job.name, False, f"a launcher followed it {silent.total_seconds():.0f} s ago"
    )


def orphans(
    runtimes: Iterable[Manifest], kept: set[str], now: datetime, *, followed: bool
) -> list[str]:
    """Returns the runtimes whose jobs are gone, or never came. Pure.

    Args:
        runtimes: Of the run, each under the name of its job.
        kept: Jobs that stay.
        now: A runtime is there some moments before its job.
        followed: Whether no job can come any more.
    """
    found = []
    for item in runtimes:
        metadata = item["metadata"]
        made = moment(metadata.get("creationTimestamp")) or datetime.fromtimestamp(0, UTC)
        old = followed or now - made > ABANDONED
        if metadata["name"] not in kept and old:
            found.append(metadata["name"])
    return found
