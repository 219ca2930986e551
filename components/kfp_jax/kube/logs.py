"""The logs of all processes of one job: every line once, come what may."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kfp_jax.errors import ClusterError, Forbidden, NotFound, Rejected, Throttled, Unavailable
from kfp_jax.kube import requests
from kfp_jax.kube.client import Client
from kfp_jax.kube.feed import Feed
from kfp_jax.kube.log_lines import LogCursor
from kfp_jax.kube.requests import PODS, Manifest
from kfp_jax.kube.retry import ONCE
from kfp_jax.kube.stop import Stop
from kfp_jax.kube.watch import Added, Deleted, Event, Listed, Modified, Target, watch

# A process may be silent for hours, but a connection that is dead must not go unnoticed as long.
SILENCE_SECONDS = 120.0
# From the end of a container, or its last line that came later, to the end of its open log, which
# the kubelet sees to. One that flows is not cut: a kubelet may have put the older part aside,
# where only this connection still reads it.
_CUT_SECONDS = 2.0
# For how long pods of an older attempt hold up the logs of a newer one.
_OVERLAP_SECONDS = 5.0
# For how long the last of a log is asked for when the server does not answer.
_LAST_SECONDS = 10.0
_LOOK_SECONDS = 0.2
_END_SECONDS = 0.01  # a launcher waits for this


class Label(NamedTuple):
    """Whose log it is."""

    process: int
    attempt: int


class ProcessLine(NamedTuple):
    """One line that a process wrote, without its newline."""

    process: int
    attempt: int
    text: str


@dataclass(frozen=True)
class ContainerRun:
    """One run of a container; a container that is restarted in place has several.

    Attributes:
        id: The runtime's id of it.
        ended: It will write no more.
        previous: Its log is the one that the API calls the previous.
    """

    id: str
    ended: bool
    previous: bool


def container_runs(pod: Manifest, container: str) -> list[ContainerRun]:
    """Returns the runs whose logs can be read, the oldest first; a kubelet keeps two at most."""
    status = pod.get("status", {})
    found = [s for s in status.get("containerStatuses", ()) if s["name"] == container]
    if not found:
        return []
    pod_ended = status.get("phase") in ("Succeeded", "Failed")
    state, last = found[0].get("state", {}), found[0].get("lastState", {}).get("terminated", {})
    runs = []
    if last.get("containerID"):
        runs.append(ContainerRun(last["containerID"], ended=True, previous=True))
    terminated = state.get("terminated")
    current = (terminated or {}).get("containerID") or found[0].get("containerID", "")
    if current and (terminated or "running" in state):
        ended = terminated is not None or pod_ended
        runs.append(ContainerRun(current, ended=ended, previous=False))
    return runs


class LogFollower:
    """Reads the logs of the pods of one job as they appear.

    Lines of an attempt come before those of the next. Within an attempt the processes mix; each
    one's lines are in order. Memory is bounded, however much is written: what waits is some hundred
    lines, and a connection that nobody reads from makes the server wait.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        labels: str,
        container: str,
        label: Callable[[Manifest], Label | None],
        *,
        follow: bool = True,
        silence: float = SILENCE_SECONDS,
        pods: Callable[[Stop], Iterator[Event]] | None = None,
    ) -> None:
        """Makes a follower; `lines` does the work.

        Args:
            client: To the server that has the pods.
            namespace: Where they are.
            labels: The selector that finds them.
            container: Whose log is read.
            label: Tells whose log a pod writes; None for a pod that is no process of the job.
            follow: Whether to wait for what is still to come; else `lines` ends with what is there.
            silence: Seconds without a line after which a log is opened anew.
            pods: Their events, as `watch` gives them; by default from a watch of its own.
        """
        self._client = client
        self._target = Target(PODS, namespace, labels)
        self._events = pods or self._watch
        self._container = container
        self._label = label
        self._silence = silence
        self._stop = Stop()
        self._feed: Feed[_News] | None = None
        self._pods: dict[str, _Pod] = {}
        self._follow = follow
        self._finished = not follow
        self._listed = False
        self._heard = False

    def _watch(self, stop: Stop) -> Iterator[Event]:
        return watch(self._client, self._target, stop=stop)

    def finish(self) -> None:
        """Says that the job has ended: what has been written still comes, then `lines` ends."""
        self._finished = True
        if self._feed:
            self._feed.wake()

    def stop(self) -> None:
        """Ends `lines` at once."""
        self._stop.set()

    def lines(self) -> Iterator[ProcessLine]:
        """Yields every line of every process once; to be called once.

        Raises:
            Forbidden: The account may not watch pods or read their logs.
        """
        with Feed[_News](self._stop) as feed:
            self._feed = feed
            feed.add(self._events(self._stop), "pods")
            relisted = False
            while not self._stop.is_set:
                news = feed.take(_END_SECONDS if relisted else _LOOK_SECONDS)
                match news:
                    case _Lines(pod, texts):
                        if pod.reading:
                            pod.reading.over_since = 0.0
                        for text in texts:
                            yield ProcessLine(*pod.label, text)
                    case _End(pod, run_id):
                        pod.reading = None
                        pod.read.add(run_id)
                        self._forget_if_done(pod)
                    case None:
                        pass
                    case event:
                        self._take_event(event)
                if self._finished and self._listed and not relisted:
                    # The watch may be some milliseconds behind the end of the job.
                    self._relist()
                    relisted = True
                self._start_readers(feed)
                self._cut_readers()
                if news is None and relisted and not self._due() and not self._reading():
                    return

    def _take_event(self, event: Event) -> None:
        match event:
            case Listed(objects):
                self._listed = True
                for item in objects:
                    self._take_pod(item)
            case Added(item) | Modified(item):
                self._take_pod(item)
            case Deleted(item):
                pod = self._pods.get(item["metadata"]["uid"])
                if pod:
                    pod.gone = True
                    self._forget_if_done(pod)

    def _take_pod(self, item: Manifest) -> None:
        uid = item["metadata"]["uid"]
        label = self._label(item)
        if uid in self._pods:
            self._pods[uid].manifest = item
        elif label is not None:
            self._pods[uid] = _Pod(item, label, self._container)

    def _forget_if_done(self, pod: "_Pod") -> None:
        if pod.gone and pod.reading is None:
            self._pods.pop(pod.uid, None)

    def _relist(self) -> None:
        target = self._target
        try:
            pods = self._client.list(
                target.resource, target.namespace, labels=target.labels, retry=ONCE
            )
        except ClusterError:
            return  # then what the watch has told must do
        for item in pods.items:
            self._take_pod(item)

    def _due(self) -> list["_Pod"]:
        """Returns the pods that have a run to read and no reader, oldest attempt first."""
        due = [pod for pod in self._pods.values() if pod.reading is None and pod.next_run()]
        return sorted(due, key=lambda pod: pod.label.attempt)

    def _reading(self) -> list["_Reading"]:
        return [pod.reading for pod in self._pods.values() if pod.reading is not None]

    def _start_readers(self, feed: "Feed[_News]") -> None:
        """Starts what is due, but no attempt before the older ones have been read."""
        for pod in self._due():
            older = [r for r in self._reading() if r.pod.label.attempt < pod.label.attempt]
            run = pod.next_run()
            if older:
                self._hurry(older)
            elif run:
                pod.reading = _Reading(pod, run, last_call=not self._follow)
                feed.add(self._read(pod.reading), f"log of {pod.name}")

    def _hurry(self, older: list["_Reading"]) -> None:
        """Gives readers of an older attempt some seconds to end by themselves."""
        now = self._client.clock.now()
        for reading in older:
            reading.newer_since = reading.newer_since or now
            if now - reading.newer_since > _OVERLAP_SECONDS:
                reading.last_call = True

    def _cut_readers(self) -> None:
        """Closes logs that are still open though nothing more can come."""
        now = self._client.clock.now()
        for reading in self._reading():
            reading.last_call = reading.last_call or self._finished
            if reading.over:
                reading.over_since = reading.over_since or now
                # A process that has outlived its job writes on, and nobody waits for that.
                if reading.runs or now - reading.over_since > _CUT_SECONDS:
                    reading.cut()

    def _read(self, reading: "_Reading") -> "Iterator[_News]":
        """Reads one run of a container from its first line to its last, over many connections."""
        pod = reading.pod
        backoff = self._client.backoff(self._stop)
        tried_since: float | None = None
        while not self._stop.is_set:
            last = reading.over
            pod.cursor.resume()
            try:
                for texts in self._one_request(reading, follow=not last):
                    self._heard = True
                    tried_since = None
                    backoff.reset()
                    yield _Lines(pod, texts)
                if last:
                    break
            except NotFound:
                break
            except Rejected:  # the container has not started, or its log is gone
                if last:
                    break
            except Forbidden:
                if not self._heard:
                    raise
                if last:
                    break
            except (Throttled, Unavailable) as error:
                now = self._client.clock.now()
                if last and tried_since is not None and now - tried_since > _LAST_SECONDS:
                    break
                tried_since = now if last and tried_since is None else tried_since
                backoff.pause(error.retry_after)
                continue
            # A log that ends before its container is said to have ended: the news is on its way.
            backoff.pause(until=lambda: reading.over)
        yield _Lines(pod, pod.cursor.end())
        yield _End(pod, reading.run.id)

    def _one_request(self, reading: "_Reading", *, follow: bool) -> Iterator[list[str]]:
        request = requests.pod_log(
            self._target.namespace,
            reading.pod.name,
            self._container,
            follow=follow,
            previous=reading.previous,
            since=reading.pod.cursor.since,
        )
        end = Stop()
        with self._stop.calls(end.set):
            reading.end = end if follow else None
            with self._client.stream(request, silence=self._silence, stop=end) as pieces:
                for piece in pieces:
                    if texts := reading.pod.cursor.feed(piece):
                        yield texts


@dataclass(eq=False)
class _Pod:
    """One pod as it was seen last, and how far its log has been read."""

    manifest: Manifest
    label: Label
    container: str
    gone: bool = False
    reading: "_Reading | None" = None
    read: set[str] = field(default_factory=set)
    # One for all runs: a connection may show the next run before the watch tells of it.
    cursor: LogCursor = field(default_factory=LogCursor)

    @property
    def uid(self) -> str:
        return str(self.manifest["metadata"]["uid"])

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    def runs(self) -> list[ContainerRun]:
        return container_runs(self.manifest, self.container)

    def next_run(self) -> ContainerRun | None:
        """Returns the oldest run that has not been read and can still be."""
        if self.gone:
            return None
        return next((run for run in self.runs() if run.id not in self.read), None)


@dataclass(eq=False)
class _Reading:
    """The reading of one run: written by the thread that collects, read by the one that reads."""

    pod: _Pod
    run: ContainerRun
    last_call: bool = False
    over_since: float = 0.0
    newer_since: float = 0.0
    end: Stop | None = None

    @property
    def over(self) -> bool:
        """Whether this run writes no more, or nobody waits for it."""
        return self.last_call or self.pod.gone or not self.runs

    @property
    def runs(self) -> bool:
        """Whether the process is still there."""
        return any(run.id == self.run.id and not run.ended for run in self.pod.runs())

    @property
    def previous(self) -> bool:
        return any(run.id == self.run.id and run.previous for run in self.pod.runs())

    def cut(self) -> None:
        """Ends the open request, if it follows."""
        if self.end:
            self.end.set()


class _Lines(NamedTuple):
    pod: _Pod
    texts: list[str]


class _End(NamedTuple):
    pod: _Pod
    run_id: str


_News = Event | _Lines | _End
