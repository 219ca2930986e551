import json
from collections.abc import Iterator

import pytest
from fakes.api_server import FakeApiServer
from fakes.kube_client import make_client
from kfp_jax.kfp_task import Task, enter_task
from kfp_jax.kube.client import Client
from kfp_jax.manifests.identity import Owner

HERE = {"KFP_POD_NAME": "p"}
POD = {
    "metadata": {
        "name": "p",
        "labels": {"pipeline/runid": "run-1"},
        "ownerReferences": [
            {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "w", "uid": "u"}
        ],
    },
}


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with FakeApiServer() as server:
        yield server


@pytest.fixture
def client(server: FakeApiServer) -> Iterator[Client]:
    client = make_client(server)
    yield client
    client.close()


def test_outside_of_kfp_there_is_no_task(server: FakeApiServer, client: Client) -> None:
    assert enter_task(client, {}, 7) == Task()
    assert not server.requests


def test_a_job_goes_with_the_runs_workflow(server: FakeApiServer, client: Client) -> None:
    server.put("v1", "pods", POD)
    owner = Owner("argoproj.io/v1alpha1", "Workflow", "w", "u")
    assert enter_task(client, HERE, 7) == Task({"run": "run-1"}, owner)


def test_terminate_tells_the_launcher_alone(server: FakeApiServer, client: Client) -> None:
    server.put("v1", "pods", POD)
    enter_task(client, HERE, 7)
    pod = server.find("v1", "pods", "p")
    assert pod is not None
    command = json.loads(pod["metadata"]["annotations"]["workflows.argoproj.io/kill-cmd-main"])
    assert command == ["sh", "-c", "kill -$0 7 || kill -$0 1", "%d"]


def test_what_may_not_be_is_said_once(server: FakeApiServer, client: Client) -> None:
    server.put("v1", "pods", POD)
    server.fail(403, method="PATCH", message='User "u" cannot patch resource "pods"')
    (note,) = enter_task(client, HERE, 7).notes
    assert "a second to end its job" in note
    server.fail(403, method="GET", message='User "u" cannot get resource "pods"')
    (note,) = enter_task(client, HERE, 7).notes
    assert "belong to no run" in note
