"""How one job on a cluster stands, for any number of threads that ask."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from kfp_jax.backends.event_status import explained
from kfp_jax.backends.pod_status import JOBSET_NAME, Manifest, Pod
from kfp_jax.backends.queue_status import explained_by_queue, queue_of
from kfp_jax.backends.study_watch import StudyWatch
from kfp_jax.backends.workloads import read_workloads
from kfp_jax.errors import ClusterError
from kfp_jax.kube.client import Client
from kfp_jax.kube.feed import Feed
from kfp_jax.kube.requests import PODS, Resource
from kfp_jax.kube.resources import EVENTS
from kfp_jax.kube.retry import ONCE
from kfp_jax.kube.stop import Stop
from kfp_jax.kube.watch import Added, Deleted, Event, Listed, Modified, Target, watch
from kfp_jax.manifests.identity import CANCELLED, RENEW_SECONDS, RENEWED
from kfp_jax.status import FAILING, JobStatus, Phase

Objects = Mapping[Resource, Manifest]
Reduce = Callable[[Objects, Sequence[Pod]], JobStatus]

HEARTBEAT_SECONDS = 0.5
# From the first failure that is seen to the job's: kubelets tell of what happened within a second.
_SETTLING_SECONDS = 1.0
_FIRST_LOOK_SECONDS = 2.0
_LOOK_SECONDS = 30.0
_CANCELLED = "Cancelled"


class Observer:
    """Watches a job and what belongs to it until nothing of it runs, or until it is closed."""

    def __init__(
        self,
        client: Client,
        job: Manifest,
        kinds: Sequence[Resource],
        reduce: Reduce,
        *,
        renews: bool,
        study: StudyWatch | None = None,
    ) -> None:
        """Starts to watch.

        Args:
            client: To the server.
            job: The TrainJob or JobSet; another of its name is not this job.
            kinds: What to watch by the job's name, the job's own kind first.
            reduce: Makes the status of the newest objects of these kinds and all pods.
            renews: Whether to say on the job that somebody looks after it.
            study: Watches the job along with others; None for watches of its own.
        """
        metadata = job["metadata"]
        self.name: str = metadata["name"]
        self.uid: str = metadata["uid"]
        self._namespace: str = metadata["namespace"]
        self._client = client
        self._kinds = tuple(kinds)
        self._reduce = reduce
        self._study = study
        self._stop = Stop()
        self._changed = threading.Condition()
        self._objects: dict[Resource, Manifest] = {self._kinds[0]: job}
        self._pods: dict[str, Pod] = {}
        self._restart = 0
        self._events: tuple[Manifest, ...] = ()
        self._workloads: tuple[Manifest, ...] = ()
        self._listed: set[Resource] = set()
        self._there: set[Resource] = {self._kinds[0]}
        self._cancels = 0
        self._failing_since: float | None = None
        self._status: JobStatus | None = None
        self._error: BaseException | None = None
        self._at_end: list[Callable[[], None]] = []
        threading.Thread(target=self._run, name=f"watch {self.name}", daemon=True).start()
        if renews:
            threading.Thread(target=self._renew, name=f"renew {self.name}", daemon=True).start()

    def statuses(self) -> Iterator[JobStatus]:
        """Yields the status now, at each change, and twice a second, until the job is finished.

        Raises:
            ClusterError: The watch was refused.
        """
        shown: JobStatus | None = None
        while shown is None or not shown.phase.finished:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._error or self._status is not shown,  # noqa: B023 - called here
                    HEARTBEAT_SECONDS,
                )
                status, error = self._status, self._error
            if status is not None:
                shown = status
                yield status
            if error and not (shown and shown.phase.finished):
                raise error

    @property
    def job(self) -> Manifest:
        """The TrainJob or JobSet as it was seen last."""
        return self._objects[self._kinds[0]]

    @property
    def finished(self) -> bool:
        """Whether the job is known to have ended."""
        return self._status is not None and self._status.phase.finished

    @property
    def stranded(self) -> list[Pod]:
        """The pods that run on though the job has failed: they have no one to work with."""
        with self._changed:
            if self._status is None or self._status.phase is not Phase.FAILED:
                return []
            return [pod for pod in self._pods.values() if not pod.ends]

    def pod_events(self, stop: Stop) -> Iterator[Event]:
        """Yields what happens to the job's pods until `stop`, for who reads their logs."""
        return self._watch(PODS, stop)

    def cancel(self) -> None:
        """Says that we delete it; a second time, that nobody waits for its processes."""
        with self._changed:
            self._cancels += 1
        self._update()

    def at_end(self, action: Callable[[], None]) -> None:
        """Has `action` called once the job has ended or is no longer watched, at once if it has."""
        with self._changed:
            over = self.finished or self._stop.is_set
            if not over:
                self._at_end.append(action)
        if over:
            action()

    def wait_until_gone(self, seconds: float) -> None:
        """Waits until nothing of the job runs: its processes have ended, or all is gone."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._error or (self._cancels > 1 or not self._may_run()), seconds
            )

    def close(self) -> None:
        """Ends the watch and what hangs on it."""
        self._stop.set()
        with self._changed:
            if self._error is None and not self.finished:
                self._status = replace(self._status or JobStatus(Phase.LOST), phase=Phase.LOST)
            self._changed.notify_all()
        self._call_at_end()

    def _may_run(self) -> bool:
        if PODS not in self._listed or any(not pod.ends for pod in self._pods.values()):
            return True
        # As long as it is there and has not ended by itself, pods may still be made.
        phase = self._status.phase if self._status else None
        return bool(self._there) and phase not in (Phase.SUCCEEDED, Phase.FAILED)

    def _run(self) -> None:
        try:
            with Feed[tuple[Resource, Event]](self._stop) as feed:
                for kind in (*self._kinds, PODS):
                    feed.add(self._source(kind), f"watch {kind} of {self.name}")
                self._follow(feed)
        except Exception as error:  # noqa: BLE001 - the top of a thread: those who ask raise it
            with self._changed:
                self._error = error
                self._changed.notify_all()
            self._call_at_end()

    def _source(self, kind: Resource) -> Iterator[tuple[Resource, Event]]:
        for event in self._watch(kind, self._stop):
            yield kind, event

    def _watch(self, kind: Resource, stop: Stop) -> Iterator[Event]:
        if self._study:
            uid = self.uid if kind == self._kinds[0] else ""
            return self._study.events(kind, self.name, uid, stop)
        if kind is PODS:
            target = Target(kind, self._namespace, labels=f"{JOBSET_NAME}={self.name}")
        else:
            target = Target(kind, self._namespace, fields=f"metadata.name={self.name}")
        return watch(self._client, target, stop=stop)

    def _follow(self, feed: Feed[tuple[Resource, Event]]) -> None:
        clock = self._client.clock
        pause = look = 0.0
        phase: Phase | None = None
        while not self._stop.is_set and not (self.finished and not self._may_run()):
            news = feed.take(HEARTBEAT_SECONDS)
            while news is not None:
                self._take(*news)
                news = feed.take(0.0)  # what came meanwhile is one change
            self._update()
            now = clock.now()
            before, phase = phase, self._status.phase if self._status else None
            if phase is not before:
                pause = _FIRST_LOOK_SECONDS
                # Kueue has said why before it holds a job back; events come later.
                look = now if phase is Phase.QUEUED else now + pause
            if now >= look and phase in self._looks:
                pause = min(2 * pause, _LOOK_SECONDS)
                look = now + pause
                self._looks[phase]()

    def _take(self, kind: Resource, event: Event) -> None:
        with self._changed:
            match event:
                case Listed(objects):
                    self._listed.add(kind)
                    self._there.discard(kind)
                    for item in objects:
                        self._take_object(kind, item)
                case Added(item) | Modified(item):
                    self._take_object(kind, item)
                case Deleted(item):
                    self._take_object(kind, item, gone=True)

    def _take_object(self, kind: Resource, item: Manifest, *, gone: bool = False) -> None:
        uid = item["metadata"]["uid"]
        if kind is PODS:
            self._pods[uid] = pod = Pod.seen(item, gone=gone, before=self._pods.get(uid))
            if gone or pod.restart > self._restart:
                self._restart = max(self._restart, pod.restart)
                self._forget_older_pods()
            return
        is_job = kind == self._kinds[0]
        if is_job and uid != self.uid:
            return
        self._objects[kind] = item
        owners = [owner["uid"] for owner in item["metadata"].get("ownerReferences") or ()]
        if gone:
            self._there.discard(kind)
        elif is_job or self.uid in owners:
            self._there.add(kind)

    def _forget_older_pods(self) -> None:
        """Drops pods of attempts before the newest that are gone: nobody asks about them."""
        self._pods = {
            uid: pod
            for uid, pod in self._pods.items()
            if not pod.gone or pod.restart == self._restart
        }

    def _update(self) -> None:
        """Makes the status anew; a finished one stands."""
        with self._changed:
            if self.finished or self._stop.is_set or not {*self._kinds, PODS} <= self._listed:
                self._changed.notify_all()
                return
            status = self._made()
        if status.phase.finished and status.phase is not Phase.LOST:
            self._relist_pods()
        with self._changed:
            status = self._made()
            if status != self._status:
                self._status = status
            self._changed.notify_all()
        if status.phase.finished:
            self._call_at_end()

    def _made(self) -> JobStatus:
        status = self._reduce(self._objects, list(self._pods.values()))
        status = explained_by_queue(status, queue_of(self.job), self._workloads)
        gone = self._kinds[0] not in self._there
        if not (gone or "deletionTimestamp" in self.job["metadata"]):
            return self._settled(explained(status, self.name, self._events))
        # `kfp-jax cancel` tells us by a mark on the job: that is no loss.
        cancels = self._cancels or int(CANCELLED in self.job["metadata"].get("annotations", {}))
        if status.phase is Phase.SUCCEEDED or (status.phase.finished and not cancels):
            return status
        if not cancels:
            return replace(status, phase=Phase.LOST)
        if self._may_run() and cancels == 1:
            phase = status.phase if not status.phase.finished else Phase.RUNNING
            return replace(status, phase=phase, reason=_CANCELLED, message="")
        return replace(status, phase=Phase.CANCELLED, reason="", message="")

    def _settled(self, status: JobStatus) -> JobStatus:
        """Returns a status of a job that has failed once all that failed together must be known."""
        if (status.phase, status.reason) != (Phase.RUNNING, FAILING):
            self._failing_since = None
            return status
        now = self._client.clock.now()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since < _SETTLING_SECONDS:
            return status
        return replace(status, phase=Phase.FAILED, reason="")

    def _relist_pods(self) -> None:
        """Reads the pods once more: their watch may be some milliseconds behind the job's."""
        selector = f"{JOBSET_NAME}={self.name}"
        try:
            pods = self._client.list(PODS, self._namespace, labels=selector, retry=ONCE)
        except ClusterError:
            return  # then what the watch has told must do
        with self._changed:
            for item in pods.items:
                self._take_object(PODS, item)

    @property
    def _looks(self) -> Mapping[Phase | None, Callable[[], None]]:
        """What tells why a job is still in a phase."""
        return {Phase.STARTING: self._look_at_events, Phase.QUEUED: self._look_at_workloads}

    def _look_at_events(self) -> None:
        with suppress(ClusterError):  # `validate` has said it if the account may not
            listing = self._client.list(EVENTS, self._namespace, fields="type=Warning", retry=ONCE)
            self._events = listing.items
        self._update()

    def _look_at_workloads(self) -> None:
        if queue_of(self.job):
            self._workloads = read_workloads(self._client, self._namespace, self.uid)
            self._update()

    def _renew(self) -> None:
        """Says again and again that the job is followed, so that `cleanup` spares it.

        It also keeps a connection open: the server closes one that has been idle for 90 s, and a
        cancel has no time to make another.
        """
        closed = threading.Event()
        with self._stop.calls(closed.set):
            while not closed.wait(RENEW_SECONDS):
                moment = datetime.fromtimestamp(self._client.clock.wall(), UTC).isoformat()
                changes = {"metadata": {"annotations": {RENEWED: moment}}}
                with suppress(ClusterError):  # `cleanup` lets a launcher miss some
                    self._client.patch(self._kinds[0], self._namespace, self.name, changes)

    def _call_at_end(self) -> None:
        with self._changed:
            actions, self._at_end = self._at_end, []
        for action in actions:
            action()
