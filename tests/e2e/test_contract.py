"""Both cluster backends keep the same promises on a real cluster as on the fake one."""

from dataclasses import replace
from typing import Any

import pytest
from contract.backend_contract import BackendContract
from e2e.mnist import PODS
from e2e.places import Place
from kfp_jax.backends.base import Backend
from kfp_jax.backends.jobset import JobSetBackend
from kfp_jax.backends.trainer import TrainerBackend
from kfp_jax.pods import Pods

# A shell as process 1 does not heed SIGTERM, and 30 s are long in a test.
_SOON: dict[str, Any] = {
    "template": {
        "spec": {
            "replicatedJobs": [
                {
                    "name": "node",
                    "template": {
                        "spec": {"template": {"spec": {"terminationGracePeriodSeconds": 2}}}
                    },
                }
            ]
        }
    }
}


class TestTrainerOnACluster(BackendContract):
    pods = replace(PODS, patch=_SOON)
    impossible = {"pods": Pods(runtime="no-such-runtime")}, "no-such-runtime is not on this cluster"

    @pytest.fixture
    def backend(self, place: Place) -> Backend:
        return TrainerBackend(place.client, namespace=place.namespace)


class TestJobSetOnACluster(BackendContract):
    pods = replace(PODS, patch=_SOON)
    impossible = {"pods": Pods(runtime="a-runtime")}, "a JobSet has none"

    @pytest.fixture
    def backend(self, place: Place) -> Backend:
        return JobSetBackend(place.client, namespace=place.namespace)
