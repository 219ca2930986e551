"""Ends jobs on a cluster, and removes what nobody looks after any more."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from kfp_jax.backends.pod_status import Manifest
from kfp_jax.clock import Clock
from kfp_jax.cluster.jobs import TRAINER, ClusterJob, moment
from kfp_jax.cluster.lookup import find_jobs
from kfp_jax.errors import Conflict, Forbidden, NotFound, Rejected
from kfp_jax.kube.resources import JOBSETS, RUNTIMES, TRAINJOBS
from kfp_jax.manifests.identity import CANCELLED, MANAGED_BY, PREFIX, RENEW_SECONDS, label
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
        heard: When its launcher was heard last; None for what has none.
    """

    kind: str
    name: str
    removed: bool
    why: str
    heard: datetime | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns it for machines."""
        heard = self.heard.isoformat() if self.heard else None
        return asdict(self) | {"heard": heard}


def cancel_job(client: "Client", job: ClusterJob) -> None:
    """Deletes a job, and lets the launcher that follows it know that it was meant.

    Raises:
        NotFound: It is gone already.
        Conflict: Another job has its name by now.
    """
    resource = TRAINJOBS if job.backend == TRAINER else JOBSETS
    mark = {"metadata": {"uid": job.uid, "annotations": {CANCELLED: "on request"}}}
    with suppress(Forbidden, Rejected):  # then the launcher takes it for deleted
        client.patch(resource, job.namespace, job.name, mark)
    delete_job(client, job)


def delete_job(client: "Client", job: ClusterJob) -> None:
    """Deletes a job and the runtime that is its own.

    Its pods get their grace period to save.

    Raises:
        NotFound: It is gone already.
        Conflict: Another job has its name by now.
    """
    # A JobSet keeps its name until its pods are gone. A TrainJob that did so would make its JobSet
    # anew meanwhile.
    resource, propagation = (
        (TRAINJOBS, "Background") if job.backend == TRAINER else (JOBSETS, "Foreground")
    )
    client.delete(resource, job.namespace, job.name, uid=job.uid, propagation=propagation)
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


def clean_up_behind(client: "Client", namespace: str, run: str, *, clock: Clock) -> list[Removal]:
    """Deletes what a run left, and waits for those launchers of which nobody knows if they live.

    So a job goes whose launcher died a moment ago, and that of a task that still runs stays. It
    takes 4 minutes at most, and none where nothing is left.

    Args:
        client: To the cluster.
        namespace: Where.
        run: The run's id.
        clock: Time.
    """
    end = clock.wall() + ABANDONED.total_seconds()
    first: dict[str, datetime | None] = {}
    removed: list[Removal] = []
    while True:
        now = datetime.fromtimestamp(clock.wall(), UTC)
        done = clean_up(client, namespace, run, now=now, followed=False)
        removed += [item for item in done if item.removed]
        kept = [item for item in done if not item.removed]
        # Who has renewed since the first look lives.
        unsure = [item for item in kept if first.setdefault(item.name, item.heard) == item.heard]
        if not unsure or clock.wall() > end:
            return [*removed, *kept]
        clock.sleep(min(seconds_left(item, now) for item in unsure) + 1.0)


def seconds_left(kept: Removal, now: datetime) -> float:
    """Returns after how many seconds a kept job is abandoned, unless it is renewed. Pure."""
    return ((kept.heard or now) + ABANDONED - now).total_seconds()


def judge(job: ClusterJob, now: datetime, *, followed: bool) -> Removal:
    """Returns what is to become of a job of an ended run. Pure."""
    if followed:
        return Removal(job.kind, job.name, True, "its run has ended")
    heard = job.renewed or job.created
    silent = now - heard
    if silent > ABANDONED:
        minutes = f"{silent.total_seconds() / 60:.0f} min"
        return Removal(job.kind, job.name, True, f"no launcher has followed it for {minutes}")
    why = f"a launcher followed it {silent.total_seconds():.0f} s ago"
    return Removal(job.kind, job.name, False, why, heard)


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
