from collections.abc import Iterator, Mapping
from typing import ClassVar

import pytest
from contract.backend_contract import BackendContract
from fakes.cluster import FakeCluster, make_server
from fakes.kube_client import make_client
from kfp_jax.backends.base import Backend
from kfp_jax.backends.trainer import TrainerBackend
from kfp_jax.clock import SystemClock
from kfp_jax.pods import Pods


class TestTrainerBackend(BackendContract):
    labels: ClassVar[Mapping[str, str]] = {}
    impossible = {"pods": Pods(runtime="no-such-runtime")}, "no-such-runtime is not on this cluster"

    @pytest.fixture
    def backend(self) -> Iterator[Backend]:
        with make_server() as server, FakeCluster(server):
            client = make_client(server, clock=SystemClock())
            backend = TrainerBackend(client, labels=self.labels)
            yield backend
            backend.close()
            client.close()


class TestTrainerBackendOfAStudy(TestTrainerBackend):
    """Its jobs share their watches."""

    labels: ClassVar[Mapping[str, str]] = {"study": "lr-sweep"}
