"""What goes wrong in a job's pods is told in one sentence, and nothing stays behind."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from e2e.jobs import BACKENDS
from e2e.mnist import PODS
from e2e.places import Place
from kfp_jax.kube.resources import QUOTAS
from kfp_jax.launch import launch
from kfp_jax.manifests.pod import CONTAINER_SECURITY, CPU
from kfp_jax.pods import Resources, Volume
from kfp_jax.spec import Limits, TrainSpec
from kfp_jax.status import Outcome, Phase

pytestmark = pytest.mark.usefixtures("nothing_is_left")

EAT = "import os; x = []\nwhile True: x.append(bytearray(os.urandom(1 << 20)) * 16)"
# A shell heeds SIGTERM while it waits, and not while something runs in front of it.
WAIT = "trap 'exit 143' TERM; sleep 100 & wait"
# Process 1 alone does it; the others wait.
ONE = f'[ "$JAX_PROCESS_ID" = 1 ] || {{ {WAIT}; }};'

SIDECAR = {
    "name": "proxy",
    "image": CPU.image,
    "command": ["sh", "-c", WAIT],
    "resources": {"requests": {"cpu": "10m"}},
    "securityContext": dict(CONTAINER_SECURITY),
}


def beside(container: dict[str, Any]) -> dict[str, Any]:
    """Returns a patch that puts a container into the pods."""
    pod = {"spec": {"template": {"spec": {"containers": [container]}}}}
    return {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": pod}]}}}


@pytest.fixture(params=BACKENDS)
def run(place: Place, request: pytest.FixtureRequest) -> Callable[..., Outcome]:
    """Runs a shell script on two nodes and returns how it ended."""

    def run(script: str, *, pods: dict[str, Any] | None = None, **more: Any) -> Outcome:
        given: dict[str, Any] = {
            "name": "drill",
            "command": ("sh", "-c", script),
            "num_nodes": 2,
            "output_uri": str(place.folder / "out"),
            "pods": replace(PODS, **(pods or {})),
        }
        backend = BACKENDS[request.param](place.client, namespace=place.namespace)
        return launch(TrainSpec(**{**given, **more}), backend)

    return run


@pytest.mark.parametrize(
    ("script", "more", "reason", "said"),
    [
        pytest.param(f"{ONE} exit 7", {}, "exit", "process 1 exited with code 7", id="exit"),
        pytest.param(
            f"{ONE} python3 -c '{EAT}'",
            {"pods": {"resources": Resources(memory="64Mi", memory_limit="128Mi")}},
            "out-of-memory",
            "was killed (OOMKilled)",
            id="out-of-memory",
        ),
        pytest.param(
            f"{ONE} sh -c 'kill -KILL $$'; exit $?", {}, "killed", "process 1", id="killed"
        ),
        pytest.param(f"{ONE} no-such-command", {}, "not-started", "not found", id="not-found"),
        pytest.param(
            "", {"command": ("/no/such/program",)}, "not-started",
            "could not be started", id="no-such-program",
        ),
        pytest.param(
            "", {"pods": {"image": "registry.invalid/nothing:1"}, "limits": Limits(start=8)},
            "start-timeout", "registry.invalid/nothing:1", id="no-image",
        ),
        pytest.param(
            "", {"pods": {"image": "Not-An-Image"}}, "start-timeout",
            "has no valid name", id="no-image-name",
        ),
        pytest.param(
            "", {"pods": {"resources": Resources(cpu="500")}, "limits": Limits(start=6)},
            "start-timeout", "Insufficient cpu", id="no-room",
        ),
        pytest.param(
            "", {"pods": {"secret_env": {"A": "no-such-secret/key"}}, "limits": Limits(start=8)},
            "start-timeout", "no-such-secret", id="no-secret",
        ),
        pytest.param(
            "echo done", {"pods": {"patch": beside(SIDECAR)}, "limits": Limits(stall=5)},
            "stalled", "its training is done, but container proxy still runs", id="sidecar",
        ),
        pytest.param(
            f"{ONE} exit 7", {"pods": {"patch": beside(SIDECAR)}}, "exit",
            "process 1 exited with code 7", id="exit-beside-a-sidecar",
        ),
        pytest.param(WAIT, {"limits": Limits(deadline=4)}, "deadline", "4 s", id="deadline"),
        pytest.param(WAIT, {"limits": Limits(stall=4)}, "stalled", "wrote a line", id="stall"),
    ],
)  # fmt: skip
def test_the_reason_is_told(
    run: Callable[..., Outcome], script: str, more: dict[str, Any], reason: str, said: str
) -> None:
    outcome = run(script, **more)
    assert outcome.phase is Phase.FAILED
    assert (outcome.reason, said in outcome.message) == (reason, True), outcome.message


def test_a_quota_that_leaves_no_room(place: Place, run: Callable[..., Outcome]) -> None:
    place.create(QUOTAS, {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "1"}}})
    outcome = run(WAIT, limits=Limits(start=12))
    assert "the namespace's quota leaves no room for it" in outcome.message
    assert "small" in outcome.message


def test_pods_that_the_namespace_refuses(place: Place, run: Callable[..., Outcome]) -> None:
    machine = Volume(name="machine", mount_path="/machine", source={"hostPath": {"path": "/"}})
    pods = {"volumes": (*PODS.volumes, machine)}
    outcome = run(WAIT, pods=pods, limits=Limits(start=12))
    assert "the cluster refuses its pods" in outcome.message
    assert "hostPath" in outcome.message
