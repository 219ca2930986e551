"""The one watch engine: generators of rising scope, one request < one list < for ever."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass

from kfp_jax.errors import Forbidden, NotFound, Throttled, Unavailable
from kfp_jax.kube import answers, requests
from kfp_jax.kube.answers import Dropped, NotSent, Untrusted
from kfp_jax.kube.client import Client
from kfp_jax.kube.requests import Manifest, Resource
from kfp_jax.kube.retry import ONCE, Backoff
from kfp_jax.kube.stop import Stop

# An API server that has just started may refuse for some seconds what it allowed before.
_REFUSAL_SECONDS = 30.0
_HASTY_SECONDS = 0.5


@dataclass(frozen=True)
class Listed:
    """What was there when the watch began; always the first event, and only that."""

    objects: tuple[Manifest, ...]


@dataclass(frozen=True)
class Added:
    """An object that was not there before."""

    object: Manifest


@dataclass(frozen=True)
class Modified:
    """A new version of an object."""

    object: Manifest


@dataclass(frozen=True)
class Deleted:
    """An object that is gone, as it was seen last."""

    object: Manifest


Event = Listed | Added | Modified | Deleted


@dataclass(frozen=True)
class Target:
    """What to watch: the objects of a namespace ("" for all) that fit both selectors."""

    resource: Resource
    namespace: str
    labels: str = ""
    fields: str = ""


@dataclass(frozen=True)
class Pace:
    """How long one request of a watch lasts.

    Attributes:
        request: Seconds after which the server ends it.
        silence: Seconds beyond that after which the connection is taken for dead. Together they
            bound for how long a half-open connection can hide the end of a job.
    """

    request: float = 90.0
    silence: float = 10.0


def watch(
    client: Client,
    target: Target,
    *,
    stop: Stop,
    deadline: float = math.inf,
    pace: Pace | None = None,
) -> Iterator[Event]:
    """Yields what is there and every change, each once, whatever becomes of the connection.

    It ends when `stop` is set or at the deadline, a moment of the client's clock. What was missed
    during a gap is found by listing again: also deletions, and an object that was replaced by
    another of its name.

    Raises:
        Forbidden: The account may not list or watch this.
        NotFound: The server does not know that kind of object.
        Untrusted: The server's certificate does not hold.
    """
    known = Known()
    backoff = client.backoff(stop)
    refused: float | None = None
    one = _Watch(client, target, known, backoff, stop, deadline, pace or Pace())
    while not one.over():
        try:
            for event in one.until_expired():
                refused = None
                yield event
        except (Forbidden, NotFound):
            now = client.clock.now()
            refused = now if refused is None else refused
            if not known.listed or now - refused > _REFUSAL_SECONDS:
                raise
            backoff.pause()
        except Untrusted:
            raise
        except (Throttled, Unavailable) as error:
            backoff.pause(error.retry_after)


class Known:
    """What a consumer has been told, so that it is told nothing twice. Pure."""

    def __init__(self) -> None:
        self.listed = False
        self._objects: dict[str, Manifest] = {}

    def take_list(self, objects: tuple[Manifest, ...]) -> list[Event]:
        """Returns what a list brings: all of the first one, of later ones what is different."""
        present = {_uid(item): item for item in objects}
        if not self.listed:
            self.listed = True
            self._objects = present
            return [Listed(objects)]
        gone = [uid for uid in self._objects if uid not in present]
        events: list[Event] = [Deleted(self._objects.pop(uid)) for uid in gone]
        for item in objects:
            events += self.take(item)
        return events

    def take(self, item: Manifest) -> list[Event]:
        """Returns what an object as it is now brings: nothing if its version is known."""
        before = self._objects.get(_uid(item))
        self._objects[_uid(item)] = item
        if before is None:
            return [Added(item)]
        return [Modified(item)] if _version(item) != _version(before) else []

    def take_deleted(self, item: Manifest) -> list[Event]:
        """Returns what a deletion brings: nothing if it is known."""
        return [Deleted(item)] if self._objects.pop(_uid(item), None) is not None else []


class _Watch:
    """One watch: its parts in the scope of a request and of a list."""

    def __init__(
        self,
        client: Client,
        target: Target,
        known: Known,
        backoff: Backoff,
        stop: Stop,
        deadline: float,
        pace: Pace,
    ) -> None:
        self._client = client
        self._target = target
        self._known = known
        self._backoff = backoff
        self._stop = stop
        self._deadline = deadline
        self._pace = pace

    def over(self) -> bool:
        """Returns whether nobody wants more."""
        return self._stop.is_set or self._left <= 0

    def until_expired(self) -> Iterator[Event]:
        """Lists, then watches from there; a broken connection is made anew.

        Raises:
            Expired: The server does not keep the changes since then any more.
            Unavailable: The server refused, or fell silent.
        """
        target = self._target
        listing = self._client.list(
            target.resource,
            target.namespace,
            labels=target.labels,
            fields=target.fields,
            retry=ONCE,
        )
        yield from self._known.take_list(listing.items)
        version = listing.version
        while not self.over():
            began = self._client.clock.now()
            try:
                for kind, item in self._one_request(version):
                    version = _version(item)
                    self._backoff.reset()
                    yield from self._events(kind, item)
                    if self.over():
                        return
            except (Dropped, NotSent):
                broken = True
            else:
                broken = False
            # Something between us and the server may end every request at once.
            hasty = self._client.clock.now() - began < _HASTY_SECONDS
            if not hasty:
                self._backoff.reset()
            if broken or hasty:
                self._backoff.pause()

    def _one_request(self, version: str) -> Iterator[tuple[str, Manifest]]:
        """Yields the changes that one request brings, as type and object."""
        target = self._target
        seconds = min(self._pace.request, self._left)
        request = requests.watch(
            target.resource,
            target.namespace,
            target.labels,
            target.fields,
            version=version,
            seconds=math.ceil(seconds),
        )
        silence = min(seconds + self._pace.silence, self._left + 1.0)
        with self._client.stream(request, silence=silence, stop=self._stop) as pieces:
            for line in _lines(pieces):
                change = json.loads(line)
                if change["type"] == "ERROR":
                    raise answers.status_error(request, change["object"])
                yield change["type"], change["object"]

    def _events(self, kind: str, item: Manifest) -> list[Event]:
        match kind:
            case "BOOKMARK":
                return []
            case "DELETED":
                return self._known.take_deleted(item)
            case _:
                return self._known.take(item)

    @property
    def _left(self) -> float:
        return self._deadline - self._client.clock.now()


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yields whole lines; one that breaks off is not heard of again, its change comes anew."""
    rest: list[bytes] = []
    for piece in pieces:
        whole, newline, after = piece.rpartition(b"\n")
        if newline:
            yield from b"".join([*rest, whole]).split(b"\n")
            rest = []
        rest.append(after)


def _uid(item: Manifest) -> str:
    return str(item["metadata"]["uid"])


def _version(item: Manifest) -> str:
    return str(item["metadata"]["resourceVersion"])
