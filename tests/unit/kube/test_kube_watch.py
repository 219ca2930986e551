import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fakes.api_server import FakeApiServer
from fakes.clock import FastClock
from fakes.kube_client import JOBS, TRAINJOBS, MakeClient
from kfp_jax.errors import Forbidden, NotFound
from kfp_jax.kube.client import Client
from kfp_jax.kube.requests import Resource
from kfp_jax.kube.stop import Stop
from kfp_jax.kube.watch import (
    Added,
    Deleted,
    Event,
    Known,
    Listed,
    Modified,
    Pace,
    Target,
    watch,
)

TARGET = Target(TRAINJOBS, "ns")


class Watched:
    """The events of one watch as short words, taken one by one."""

    def __init__(self, client: Client, target: Target = TARGET, pace: Pace | None = None) -> None:
        self.stop = Stop()
        self.events = watch(client, target, stop=self.stop, pace=pace)

    def next(self) -> str:
        return words(next(self.events))


def words(event: Event) -> str:
    if isinstance(event, Listed):
        return " ".join(["listed", *(told(item) for item in event.objects)])
    return f"{type(event).__name__.lower()} {told(event.object)}"


def told(item: Any) -> str:
    return f"{item['metadata']['name']}={item.get('n', 0)}"


@pytest.fixture
def watched(client: Client) -> Iterator[Watched]:
    watched = Watched(client)
    yield watched
    watched.stop.set()
    watched.events.close()


def put(server: FakeApiServer, name: str, n: int = 0, **labels: str) -> None:
    server.put(*JOBS, {"metadata": {"name": name, "labels": labels}, "n": n})


def test_what_is_there_and_what_changes(server: FakeApiServer, watched: Watched) -> None:
    put(server, "a")
    assert watched.next() == "listed a=0"
    put(server, "b")
    put(server, "a", 1)
    server.remove(*JOBS, "b")
    assert [watched.next() for _ in range(3)] == ["added b=0", "modified a=1", "deleted b=0"]
    assert len(server.calls("GET")) == 2


def test_nothing_is_there(server: FakeApiServer, watched: Watched) -> None:
    assert watched.next() == "listed"


def test_only_what_fits(server: FakeApiServer, client: Client) -> None:
    put(server, "a", run="1")
    put(server, "b", run="2")
    assert Watched(client, Target(TRAINJOBS, "ns", labels="run=2")).next() == "listed b=0"
    assert Watched(client, Target(TRAINJOBS, "", fields="metadata.name=a")).next() == "listed a=0"


def test_a_broken_connection_goes_on_where_it_was(server: FakeApiServer, watched: Watched) -> None:
    put(server, "a")
    watched.next()
    for number in range(1, 6):
        put(server, "a", number)
        assert watched.next() == f"modified a={number}"
        server.break_connections()
    assert len(server.calls("GET")) - len(server.calls("GET", watch="true")) == 1


@pytest.mark.parametrize("after", [0, 1, 30, 200])
def test_a_change_cut_in_the_middle_comes_whole(
    server: FakeApiServer, watched: Watched, after: int
) -> None:
    put(server, "a")
    server.cut(after, path="watch=true")
    assert watched.next() == "listed a=0"
    put(server, "a", 1)
    put(server, "a", 2)
    assert [watched.next(), watched.next()] == ["modified a=1", "modified a=2"]


def test_a_request_that_the_server_ends_goes_on(server: FakeApiServer, client: Client) -> None:
    watched = Watched(client, pace=Pace(request=1))
    put(server, "a")
    watched.next()
    later = threading.Timer(0.1, server.end_streams)
    last = threading.Timer(0.2, put, (server, "a", 1))
    later.start()
    last.start()
    assert watched.next() == "modified a=1"
    assert len(server.calls("GET")) - len(server.calls("GET", watch="true")) == 1
    watched.stop.set()


@pytest.mark.parametrize("as_status", [False, True], ids=["in-the-stream", "as-status"])
def test_410_is_followed_by_a_list(
    server: FakeApiServer, watched: Watched, as_status: bool
) -> None:
    for name in ("kept", "changed", "gone", "replaced"):
        put(server, name)
    watched.next()
    put(server, "kept", 1)
    assert watched.next() == "modified kept=1"
    with server.changed:
        server.break_connections()
        put(server, "changed", 1)
        put(server, "new")
        server.remove(*JOBS, "gone")
        server.remove(*JOBS, "replaced")
        put(server, "replaced", 7)
        server.compact(as_status=as_status)
    missed = {watched.next() for _ in range(5)}
    assert missed == {
        "deleted gone=0",
        "deleted replaced=0",
        "modified changed=1",
        "added new=0",
        "added replaced=7",
    }
    put(server, "kept", 2)
    assert watched.next() == "modified kept=2"


def test_410_in_mid_stream_is_no_object(server: FakeApiServer, watched: Watched) -> None:
    put(server, "a")
    watched.next()
    put(server, "a", 1)
    assert watched.next() == "modified a=1"
    with server.changed:
        put(server, "a", 2)
        server.compact()
    assert watched.next() == "modified a=2"


def test_a_bookmark_spares_a_list(server: FakeApiServer, client: Client) -> None:
    watched = Watched(client)
    put(server, "a")
    watched.next()
    put(server, "a", 1)
    watched.next()
    for _ in range(5):
        put(server, "b", 0)
        server.remove(*JOBS, "b")
    for _ in range(10):
        watched.next()

    def later() -> None:
        server.bookmark()
        time.sleep(0.05)
        with server.changed:
            server.compact()  # all but the bookmark's version
            server.break_connections()
        time.sleep(0.05)
        put(server, "a", 2)

    threading.Thread(target=later).start()
    assert watched.next() == "modified a=2"
    assert len(server.calls("GET")) - len(server.calls("GET", watch="true")) == 1
    watched.stop.set()


def test_a_silent_connection_hides_nothing_for_long(server: FakeApiServer, client: Client) -> None:
    put(server, "a")
    # In the client's fast time; the socket waits in real time.
    watched = Watched(client, pace=Pace(request=0.05, silence=0.05))
    server.go_silent(path="watch=true")
    assert watched.next() == "listed a=0"
    put(server, "a", 1)
    assert watched.next() == "modified a=1"
    watched.stop.set()


def test_a_paused_server(server: FakeApiServer, client: Client) -> None:
    put(server, "a")
    watched = Watched(client, pace=Pace(request=0.1, silence=0.1))
    watched.next()
    server.pause()
    put(server, "a", 1)
    threading.Timer(0.3, server.resume).start()
    assert watched.next() == "modified a=1"
    watched.stop.set()


@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.parametrize("path", ["watch=true", "limit="])
def test_a_server_that_refuses_for_a_while(
    server: FakeApiServer, watched: Watched, status: int, path: str
) -> None:
    put(server, "a")
    server.fail(status, times=4, path=path, retry_after="1")
    assert watched.next() == "listed a=0"
    put(server, "a", 1)
    assert watched.next() == "modified a=1"


def test_a_server_that_restarts(server: FakeApiServer, watched: Watched) -> None:
    put(server, "a")
    watched.next()
    put(server, "a", 1)
    watched.next()
    server.down()
    put(server, "a", 2)
    threading.Timer(0.2, server.up).start()
    assert watched.next() == "modified a=2"


def test_a_token_that_expires(server: FakeApiServer, make_client: MakeClient) -> None:
    tokens = iter(["token-1", "token-2"])
    watched = Watched(make_client(lambda: next(tokens)))
    put(server, "a")
    watched.next()
    server.token = "token-2"
    server.break_connections()
    put(server, "a", 1)
    assert watched.next() == "modified a=1"
    watched.stop.set()


def test_a_missing_right_is_told_at_once(server: FakeApiServer, watched: Watched) -> None:
    server.fail(403, times=100, message='User "u" cannot list resource "trainjobs"')
    with pytest.raises(Forbidden, match=r"list trainjobs\.trainer"):
        watched.next()
    assert len(server.requests) == 1


def test_a_kind_that_is_not_served_is_told_at_once(client: Client) -> None:
    jobsets = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets")
    with pytest.raises(NotFound, match="install what serves"):
        Watched(client, Target(jobsets, "ns")).next()


def test_a_server_that_has_just_started_may_refuse(server: FakeApiServer, watched: Watched) -> None:
    put(server, "a")
    watched.next()
    server.fail(403, times=3, message='User "u" cannot watch resource "trainjobs"')
    server.break_connections()
    put(server, "a", 1)
    assert watched.next() == "modified a=1"
    server.fail(403, times=10_000, message='User "u" cannot watch resource "trainjobs"')
    server.break_connections()
    with pytest.raises(Forbidden):
        watched.next()


def test_the_deadline_ends_it(server: FakeApiServer, client: Client) -> None:
    put(server, "a")
    deadline = client.clock.now() + 0.5 * FastClock.SPEED
    begun = time.monotonic()
    events = list(
        watch(client, TARGET, stop=Stop(), deadline=deadline, pace=Pace(request=1, silence=1))
    )
    assert [words(event) for event in events] == ["listed a=0"]
    assert 0.4 < time.monotonic() - begun < 3


def test_another_thread_stops_it_at_once(server: FakeApiServer, watched: Watched) -> None:
    watched.next()
    ended: list[float] = []
    thread = threading.Thread(target=lambda: (list(watched.events), ended.append(time.monotonic())))
    thread.start()
    server.wait_for(lambda: server.streams == 1)
    stopped = time.monotonic()
    watched.stop.set()
    thread.join(5)
    assert ended[0] - stopped < 0.2


def item(uid: str, version: int) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "resourceVersion": str(version)}}


def test_known_tells_nothing_twice() -> None:
    known = Known()
    a, b, b2 = item("a", 1), item("b", 2), item("b", 3)
    assert known.take_list((a, b)) == [Listed((a, b))]
    assert known.take(a) == []
    assert known.take(b2) == [Modified(b2)]
    assert known.take_list((a, b2)) == []
    c = item("c", 4)
    assert known.take_list((b2, c)) == [Deleted(a), Added(c)]
    assert known.take_deleted(a) == []
    assert known.take_deleted(c) == [Deleted(c)]
