"""One watch of each kind for all jobs of a study: a sweep's trials need no watches of their own."""

import threading
from collections.abc import Iterator, Sequence
from queue import SimpleQueue

from kfp_jax.backends.pod_status import JOBSET_NAME, Manifest
from kfp_jax.kube.client import Client
from kfp_jax.kube.requests import Resource
from kfp_jax.kube.stop import Stop
from kfp_jax.kube.watch import Deleted, Event, Listed, Target, watch

# How far the watch may be behind an object that this launcher has made.
_BEHIND_SECONDS = 10.0


class StudyWatch:
    """Hands the events of each job to those who ask for them; the watches begin with the first."""

    def __init__(
        self, client: Client, namespace: str, kinds: Sequence[Resource], labels: str
    ) -> None:
        """Makes it; nothing is sent yet.

        Args:
            client: To the server.
            namespace: Where the jobs are.
            kinds: What to watch.
            labels: The selector that all objects of the study fit.
        """
        self._stop = Stop()
        self._kinds = {
            kind: _KindWatch(client, Target(kind, namespace, labels=labels), self._stop)
            for kind in kinds
        }

    def events(self, kind: Resource, job: str, uid: str, stop: Stop) -> Iterator[Event]:
        """Yields what there is of a job, and every change, as `kube.watch.watch` does.

        Args:
            kind: What of the job.
            job: Its name.
            uid: Of the object that must be there, as it was made before this was called; or "".
            stop: Ends it.

        Raises:
            ClusterError: The watch was refused.
        """
        return self._kinds[kind].events(job, uid, stop)

    def close(self) -> None:
        """Ends the watches."""
        self._stop.set()


class _KindWatch:
    """The newest objects of one kind, and who wants to hear of which job."""

    def __init__(self, client: Client, target: Target, stop: Stop) -> None:
        self._client = client
        self._target = target
        self._stop = stop
        self._changed = threading.Condition()
        self._objects: dict[str, Manifest] = {}
        self._listeners: list[tuple[str, SimpleQueue[Event | None]]] = []
        self._started = False
        self._listed = False
        self._error: BaseException | None = None

    def events(self, job: str, uid: str, stop: Stop) -> Iterator[Event]:
        queue: SimpleQueue[Event | None] = SimpleQueue()
        with stop.calls(lambda: queue.put(None)):
            yield Listed(self._listen(job, uid, queue, stop))
            try:
                while not (stop.is_set or self._stop.is_set):
                    event = queue.get()
                    if event is not None:
                        yield event
                    elif self._error:
                        raise self._error
            finally:
                with self._changed:
                    self._listeners.remove((job, queue))

    def _listen(
        self, job: str, uid: str, queue: SimpleQueue[Event | None], stop: Stop
    ) -> tuple[Manifest, ...]:
        """Returns what there is of a job, and has its queue told of every change from then on."""
        with self._changed:
            self._start()
            with stop.calls(self._wake):
                self._changed.wait_for(lambda: self._listed or self._over(stop))
                self._changed.wait_for(
                    lambda: not uid or uid in self._objects or self._over(stop), _BEHIND_SECONDS
                )
            self._listeners.append((job, queue))
            if self._error:
                queue.put(None)
            return tuple(item for item in self._objects.values() if _job_of(item) == job)

    def _over(self, stop: Stop) -> bool:
        return bool(self._error) or stop.is_set or self._stop.is_set

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _start(self) -> None:
        if not self._started:
            self._started = True
            name = f"watch {self._target.resource} of the study"
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            for event in watch(self._client, self._target, stop=self._stop):
                self._take(event)
        except Exception as error:  # noqa: BLE001 - the top of a thread: those who ask raise it
            self._error = error
        with self._changed:
            for _, queue in self._listeners:
                queue.put(None)
            self._changed.notify_all()

    def _take(self, event: Event) -> None:
        with self._changed:
            if isinstance(event, Listed):
                self._objects = {item["metadata"]["uid"]: item for item in event.objects}
                self._listed = True
            else:
                uid, job = event.object["metadata"]["uid"], _job_of(event.object)
                if isinstance(event, Deleted):
                    self._objects.pop(uid, None)
                else:
                    self._objects[uid] = event.object
                for wanted, queue in self._listeners:
                    if wanted == job:
                        queue.put(event)
            self._changed.notify_all()


def _job_of(item: Manifest) -> str:
    """Returns the job that an object is of: pods say it, all else has the job's name."""
    metadata = item["metadata"]
    return str(metadata.get("labels", {}).get(JOBSET_NAME) or metadata["name"])
