"""A client of the fake API server, in fast time."""

from collections.abc import Callable
from typing import Any

from fakes.api_server import FakeApiServer
from fakes.clock import FastClock
from kfp_jax.kube.client import Client
from kfp_jax.kube.requests import Resource
from kfp_jax.kube.session import Access

JOBS = ("trainer.kubeflow.org/v1alpha1", "trainjobs")
TRAINJOBS = Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs")
MakeClient = Callable[..., Client]


def make_client(
    server: FakeApiServer, token: Callable[[], str] = lambda: "token-1", **more: Any
) -> Client:
    """Returns a client; `token` is what a mounted file holds when the access is read."""

    def load() -> Access:
        value = token()
        return Access(server.url, "ns", lambda: f"Bearer {value}")

    return Client(load, **{"clock": FastClock(), **more})
