import signal
import time
from collections.abc import Iterator
from types import FrameType

import pytest
from fakes.api_server import FakeApiServer
from fakes.kube_client import JOBS, TRAINJOBS, MakeClient
from kfp_jax.errors import Conflict
from kfp_jax.kube.client import Client
from kfp_jax.kube.ready import ReadyDelete
from kfp_jax.kube.retry import ONCE


@pytest.fixture
def uid(server: FakeApiServer) -> str:
    return str(server.put(*JOBS, {"metadata": {"name": "j"}})["metadata"]["uid"])


@pytest.fixture
def ready(server: FakeApiServer, client: Client, uid: str) -> Iterator[ReadyDelete]:
    with ReadyDelete(client, TRAINJOBS, "ns", "j", uid=uid, warm_every=0.05) as ready:
        server.wait_for(lambda: bool(server.calls("GET", "/version")))
        yield ready


def test_nothing_is_deleted_unless_asked(server: FakeApiServer, client: Client, uid: str) -> None:
    with ReadyDelete(client, TRAINJOBS, "ns", "j", uid=uid):
        pass
    assert server.find(*JOBS, "j")


def test_one_delete_over_the_connection_that_is_open(
    server: FakeApiServer, ready: ReadyDelete
) -> None:
    server.wait_for(lambda: len(server.calls("GET", "/version")) >= 3)
    ready.send()
    ready.send()
    assert ready.wait(5)
    assert server.find(*JOBS, "j") is None
    assert len(server.calls("DELETE")) == 1
    assert server.accepted == 1


def test_a_signal_handler_may_send_while_its_thread_calls(
    server: FakeApiServer, client: Client, ready: ReadyDelete
) -> None:
    def handle(number: int, frame: FrameType | None) -> None:
        ready.send()

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        for number in range(20):
            client.server_version()
            if number == 10:
                signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ready.wait(5)
    assert server.find(*JOBS, "j") is None


def test_what_is_gone_already_counts_as_deleted(server: FakeApiServer, ready: ReadyDelete) -> None:
    server.remove(*JOBS, "j")
    ready.send()
    assert ready.wait(5)


def test_another_object_of_that_name_is_spared(server: FakeApiServer, ready: ReadyDelete) -> None:
    server.remove(*JOBS, "j")
    server.put(*JOBS, {"metadata": {"name": "j"}})
    ready.send()
    assert not ready.wait(5)
    assert isinstance(ready.error, Conflict)
    assert server.find(*JOBS, "j")


def test_a_server_that_does_not_answer(
    server: FakeApiServer, make_client: MakeClient, uid: str
) -> None:
    server.down()
    with ReadyDelete(make_client(retry=ONCE), TRAINJOBS, "ns", "j", uid=uid) as ready:
        begun = time.monotonic()
        ready.send()
        assert not ready.wait(5)
        assert time.monotonic() - begun < 4
        assert ready.error
