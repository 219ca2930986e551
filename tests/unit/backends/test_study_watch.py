"""One watch of each kind for all jobs of a study."""

import threading
from collections.abc import Callable, Iterator
from queue import Queue

import pytest
from fakes.api_server import FakeApiServer
from fakes.kube_client import make_client
from kfp_jax.backends import study_watch
from kfp_jax.backends.study_watch import StudyWatch
from kfp_jax.clock import SystemClock
from kfp_jax.errors import Rejected
from kfp_jax.kube.client import Client
from kfp_jax.kube.resources import CONFIG_MAPS
from kfp_jax.kube.stop import Stop
from kfp_jax.kube.watch import Added, Deleted, Event, Listed, Modified

LABELS = {"study": "s"}
SECONDS = 5.0


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with FakeApiServer() as server:
        yield server


@pytest.fixture
def client(server: FakeApiServer) -> Iterator[Client]:
    client = make_client(server, clock=SystemClock())
    yield client
    client.close()


@pytest.fixture
def study(client: Client) -> Iterator[StudyWatch]:
    watch = StudyWatch(client, "ns", [CONFIG_MAPS], "study=s")
    yield watch
    watch.close()


class Listener:
    """Hears of one job in a thread of its own, as an observer does."""

    def __init__(self, study: StudyWatch, job: str, uid: str = "") -> None:
        self.stop = Stop()
        self.error: BaseException | None = None
        self._heard: Queue[Event] = Queue()
        self._events = study.events(CONFIG_MAPS, job, uid, self.stop)
        self.thread = threading.Thread(target=self._listen)
        self.thread.start()

    def _listen(self) -> None:
        try:
            for event in self._events:
                self._heard.put(event)
        except Rejected as error:
            self.error = error

    def next(self) -> Event:
        return self._heard.get(timeout=SECONDS)

    def heard_nothing(self) -> bool:
        return self._heard.empty()


@pytest.fixture
def listen(study: StudyWatch) -> Iterator[Callable[..., Listener]]:
    listeners: list[Listener] = []

    def begin(job: str, uid: str = "") -> Listener:
        listeners.append(Listener(study, job, uid))
        return listeners[-1]

    yield begin
    for listener in listeners:
        listener.stop.set()
        listener.thread.join(SECONDS)
        assert not listener.thread.is_alive()


def make(client: Client, name: str) -> str:
    manifest = {"metadata": {"name": name, "labels": LABELS}, "data": {"a": "1"}}
    return str(client.create(CONFIG_MAPS, "ns", manifest)["metadata"]["uid"])


def names(event: Event) -> list[str]:
    assert isinstance(event, Listed)
    return [item["metadata"]["name"] for item in event.objects]


def test_each_hears_of_its_own_job_by_one_watch(
    server: FakeApiServer, client: Client, listen: Callable[..., Listener]
) -> None:
    uids = [make(client, name) for name in ("a", "b")]
    one, other = (listen(name, uid) for name, uid in zip("ab", uids, strict=True))
    assert (names(one.next()), names(other.next())) == (["a"], ["b"])
    client.patch(CONFIG_MAPS, "ns", "b", {"data": {"a": "2"}})
    client.delete(CONFIG_MAPS, "ns", "b")
    assert isinstance(other.next(), Modified)
    assert isinstance(other.next(), Deleted)
    assert one.heard_nothing()
    assert len(server.calls("GET", watch="true")) == 1


def test_who_comes_later_hears_of_what_is_there(
    client: Client, listen: Callable[..., Listener]
) -> None:
    first = listen("a")
    assert names(first.next()) == []
    uid = make(client, "a")
    assert isinstance(first.next(), Added)
    assert names(listen("a", uid).next()) == ["a"]


def test_what_was_just_made_is_waited_for_though_the_watch_is_behind(
    client: Client, listen: Callable[..., Listener]
) -> None:
    first = listen("other")
    first.next()
    late = listen("a", "not-made-yet")
    assert late.heard_nothing()
    make(client, "a")
    assert late.heard_nothing()  # it is another object of that name


def test_what_never_comes_is_not_waited_for_for_ever(
    client: Client, listen: Callable[..., Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_watch, "_BEHIND_SECONDS", 0.05)
    assert names(listen("a", "never").next()) == []


def test_one_who_stops_leaves_the_others_their_watch(
    client: Client, listen: Callable[..., Listener]
) -> None:
    one, other = listen("a"), listen("a")
    one.next()
    other.next()
    one.stop.set()
    one.thread.join(SECONDS)
    make(client, "a")
    assert isinstance(other.next(), Added)
    assert one.heard_nothing()


def test_closing_ends_everybody(study: StudyWatch, listen: Callable[..., Listener]) -> None:
    one = listen("a")
    one.next()
    study.close()
    one.stop.set()
    one.thread.join(SECONDS)
    assert not one.thread.is_alive()


def test_a_refused_watch_is_everybodys_error_also_of_who_comes_later(
    server: FakeApiServer, listen: Callable[..., Listener]
) -> None:
    server.fail(403, times=9, path="configmaps")
    for _ in range(2):
        listener = listen("a")
        listener.thread.join(SECONDS)
        assert isinstance(listener.error, Rejected)
