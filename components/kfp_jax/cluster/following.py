"""Reads the logs of a job's processes: what there is, or on to the end of the job."""

import threading
from collections.abc import Iterator

from kfp_jax.backends.pod_status import Manifest
from kfp_jax.cluster.jobs import TRAINER, ClusterJob, read_jobset, read_trainjob
from kfp_jax.cluster.lookup import pod_labels
from kfp_jax.cluster.nodes import read_node, trains
from kfp_jax.errors import ClusterError
from kfp_jax.kube.client import Client
from kfp_jax.kube.logs import Label, LogFollower, ProcessLine
from kfp_jax.kube.resources import JOBSETS, TRAINJOBS
from kfp_jax.kube.stop import Stop
from kfp_jax.kube.watch import Deleted, Event, Listed, Target, watch


class JobLogs:
    """The lines of the processes of one job, each once; a job that was restarted has more runs."""

    def __init__(
        self, client: Client, job: ClusterJob, *, process: int | None, follow: bool
    ) -> None:
        """Makes a reader; `lines` does the work.

        Args:
            client: To the cluster.
            job: Whose logs.
            process: Of this process alone; None for all.
            follow: Go on until the job has ended or is gone.
        """
        self._client = client
        self._job = job
        self._process = process
        self._follow = follow and not job.phase.finished
        self._over = Stop()
        self._follower = LogFollower(
            client,
            job.namespace,
            pod_labels(job.name),
            job.container,
            self._label,
            follow=self._follow,
        )

    def lines(self) -> Iterator[ProcessLine]:
        """Yields the lines; to be called once.

        Raises:
            Forbidden: The account may not watch pods or read their logs.
        """
        if self._follow:
            threading.Thread(target=self._await_end, name="end of job", daemon=True).start()
        try:
            yield from self._follower.lines()
        finally:
            self._over.set()

    def stop(self) -> None:
        """Ends `lines` at once."""
        self._follower.stop()

    def _label(self, pod: Manifest) -> Label | None:
        node = read_node(pod)
        if not trains(self._job, node) or self._process not in (None, node.process):
            return None
        return Label(node.process, node.attempt)

    def _await_end(self) -> None:
        job = self._job
        resource = TRAINJOBS if job.backend == TRAINER else JOBSETS
        target = Target(resource, job.namespace, fields=f"metadata.name={job.name}")
        try:
            for event in watch(self._client, target, stop=self._over):
                if _ends(event, job):
                    break
        except ClusterError:
            pass  # then what was written until now must do
        self._follower.finish()


def _ends(event: Event, job: ClusterJob) -> bool:
    """Returns whether after this event the job runs no more. Pure."""
    if isinstance(event, Deleted):
        return bool(event.object["metadata"]["uid"] == job.uid)
    objects = event.objects if isinstance(event, Listed) else (event.object,)
    found = [item for item in objects if item["metadata"]["uid"] == job.uid]
    if not found:
        return isinstance(event, Listed)
    trainjob = job.backend == TRAINER
    read = read_trainjob(found[0], None, ()) if trainjob else read_jobset(found[0], ())
    return read.phase.finished
