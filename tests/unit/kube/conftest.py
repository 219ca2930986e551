from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fakes import kube_client
from fakes.api_server import FakeApiServer
from kfp_jax.kube.client import Client


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with FakeApiServer(kube_client.JOBS) as server:
        yield server


@pytest.fixture
def make_client(server: FakeApiServer) -> Iterator[Callable[..., Client]]:
    made: list[Client] = []

    def make(*arguments: Any, **more: Any) -> Client:
        made.append(kube_client.make_client(server, *arguments, **more))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(make_client: Callable[..., Client]) -> Client:
    return make_client()
