import time

import pytest
from fakes.api_server import FakeApiServer
from fakes.clock import ManualClock
from fakes.kube_client import JOBS, TRAINJOBS, MakeClient
from kfp_jax.errors import ClusterError, Conflict, Forbidden, NotFound, Rejected, Throttled
from kfp_jax.errors import Unavailable as ServerUnavailable
from kfp_jax.kube import requests
from kfp_jax.kube.answers import Dropped, NotSent, Silent
from kfp_jax.kube.client import Client
from kfp_jax.kube.requests import PODS, Resource
from kfp_jax.kube.resources import EVENTS
from kfp_jax.kube.retry import ONCE, Retry
from kfp_jax.kube.stop import Stop

JOB = {"metadata": {"name": "j"}, "spec": {"suspend": False}}


def test_an_object_from_create_to_delete(server: FakeApiServer, client: Client) -> None:
    made = client.create(TRAINJOBS, "ns", JOB)
    assert client.get(TRAINJOBS, "ns", "j") == made
    patched = client.patch(TRAINJOBS, "ns", "j", {"metadata": {"labels": {"a": "b"}}, "spec": None})
    assert patched["metadata"]["labels"] == {"a": "b"}
    assert "spec" not in patched
    client.delete(TRAINJOBS, "ns", "j", uid=made["metadata"]["uid"])
    with pytest.raises(NotFound, match=r"get trainjobs\.trainer\.kubeflow\.org j in namespace ns"):
        client.get(TRAINJOBS, "ns", "j")
    create, patch = server.calls("POST")[0], server.calls("PATCH")[0]
    assert create.query == {"fieldValidation": "Strict"}
    assert patch.headers["Content-Type"] == "application/merge-patch+json"


def test_a_dry_run_stores_nothing(server: FakeApiServer, client: Client) -> None:
    client.create(TRAINJOBS, "ns", JOB, dry_run=True)
    assert server.calls("POST")[0].query == {"fieldValidation": "Strict", "dryRun": "All"}
    assert server.find(*JOBS, "j") is None


def test_a_generated_name(client: Client) -> None:
    made = client.create(TRAINJOBS, "ns", {"metadata": {"generateName": "j-"}})
    assert made["metadata"]["name"].startswith("j-")


def test_delete_spares_an_object_with_another_uid(server: FakeApiServer, client: Client) -> None:
    server.put(*JOBS, JOB)
    with pytest.raises(Conflict):
        client.delete(TRAINJOBS, "ns", "j", uid="of-before")
    assert server.find(*JOBS, "j")


def test_a_list_of_many_pages(server: FakeApiServer, client: Client) -> None:
    for number in range(1201):
        labels = {"odd": str(number % 2)}
        server.put("v1", "pods", {"metadata": {"name": f"p{number}", "labels": labels}})
    assert len(client.list(PODS, "ns").items) == 1201
    assert len(server.calls("GET", "/pods")) == 3
    assert len(client.list(PODS, "ns", labels="odd=1").items) == 600
    assert [p["metadata"]["name"] for p in client.list(PODS, "", fields="metadata.name=p7").items]


def test_a_page_that_expired_is_read_again_with_all(server: FakeApiServer, client: Client) -> None:
    for number in range(600):
        server.put("v1", "pods", {"metadata": {"name": f"p{number}"}})
    server.fail(410, path="continue=")
    assert len(client.list(PODS, "ns").items) == 600
    assert "limit" not in server.requests[-1].query


def test_what_the_server_has(server: FakeApiServer, client: Client) -> None:
    server.openapi["trainer.kubeflow.org/v1alpha1"] = {"components": {}}
    assert client.server_version() == "v1.36.2"
    assert client.versions("trainer.kubeflow.org") == ("v1alpha1",)
    assert client.versions("kueue.x-k8s.io") == ()
    assert client.serves(TRAINJOBS)
    assert client.serves(PODS)
    assert not client.serves(Resource("jobset.x-k8s.io", "v1alpha2", "jobsets"))
    assert client.openapi("trainer.kubeflow.org", "v1alpha1") == {"components": {}}
    assert client.openapi("jobset.x-k8s.io", "v1alpha2") == {}


def test_rights(server: FakeApiServer, client: Client) -> None:
    server.allowed = lambda asked: asked["verb"] == "get" and asked.get("subresource") == "log"
    assert client.may("get", PODS, "ns", subresource="log")
    assert not client.may("delete", TRAINJOBS, "ns")
    assert server.requests[-1].body["spec"]["resourceAttributes"] == {
        "verb": "delete",
        "group": "trainer.kubeflow.org",
        "version": "v1alpha1",
        "resource": "trainjobs",
        "namespace": "ns",
    }


def test_rights_as_the_server_lists_them(server: FakeApiServer, client: Client) -> None:
    server.rules = [
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"]},
        {"verbs": ["*"], "apiGroups": ["trainer.kubeflow.org"], "resources": ["*"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["events"], "resourceNames": ["one"]},
    ]
    rights = client.rights("ns")
    assert rights.allow("get", PODS, "log")
    assert rights.allow("delete", TRAINJOBS)
    assert not rights.allow("delete", PODS)
    assert not rights.allow("get", PODS, "exec")
    assert not rights.allow("get", EVENTS)
    assert server.requests[-1].body["spec"] == {"namespace": "ns"}


def test_warnings_are_handed_on(server: FakeApiServer, make_client: MakeClient) -> None:
    heard: list[str] = []
    server.warning = "runtime r is deprecated"
    make_client(warn=heard.append).create(TRAINJOBS, "ns", JOB)
    assert heard == ["runtime r is deprecated"]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_what_passes_is_ridden_through(server: FakeApiServer, client: Client, status: int) -> None:
    server.put(*JOBS, JOB)
    server.fail(status, times=3)
    assert client.get(TRAINJOBS, "ns", "j")
    assert len(server.requests) == 4


def test_broken_connections_are_ridden_through(server: FakeApiServer, client: Client) -> None:
    server.put(*JOBS, JOB)
    server.drop(times=3)
    assert client.get(TRAINJOBS, "ns", "j")


def test_a_restart_of_the_server_is_ridden_through(server: FakeApiServer, client: Client) -> None:
    server.put(*JOBS, JOB)
    client.get(TRAINJOBS, "ns", "j")
    server.down()
    server.up()
    assert client.get(TRAINJOBS, "ns", "j")


def test_retry_after_is_kept(server: FakeApiServer, make_client: MakeClient) -> None:
    clock = ManualClock()
    client = make_client(clock=clock, chance=lambda: 0.0)
    server.put(*JOBS, JOB)
    server.fail(429, retry_after="7")
    client.get(TRAINJOBS, "ns", "j")
    assert clock.time == pytest.approx(1007.05)


def test_one_try_ends_in_the_error_s_meaning(
    server: FakeApiServer, make_client: MakeClient
) -> None:
    client = make_client(retry=ONCE)
    server.fail(429, retry_after="7")
    with pytest.raises(Throttled) as throttled:
        client.get(TRAINJOBS, "ns", "j")
    assert throttled.value.retry_after == 7
    server.drop()
    with pytest.raises(Dropped):
        client.get(TRAINJOBS, "ns", "j")
    server.down()
    with pytest.raises(NotSent, match="no connection to it came about"):
        client.get(TRAINJOBS, "ns", "j")


def test_what_answers_may_be_no_api_server(server: FakeApiServer, make_client: MakeClient) -> None:
    server.fail(200, times=1, body=b"<html>log in</html>")
    with pytest.raises(ServerUnavailable, match="speaks no JSON"):
        make_client(retry=ONCE).server_version()


def test_tries_end(server: FakeApiServer, make_client: MakeClient) -> None:
    clock = ManualClock()
    client = make_client(clock=clock, retry=Retry(for_seconds=60))
    server.fail(503, times=1000)
    with pytest.raises(ServerUnavailable, match=r"could not list pods in namespace ns \(503: as"):
        client.list(PODS, "ns")
    assert 40 < clock.time - 1000 <= 60
    assert len(server.requests) < 20


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
def test_what_stays_is_not_tried_again(server: FakeApiServer, client: Client, status: int) -> None:
    server.fail(status, times=100)
    with pytest.raises(ClusterError):
        client.get(TRAINJOBS, "ns", "j")
    assert len(server.requests) == (2 if status == 401 else 1)


def test_a_create_whose_answer_was_lost_ends_in_a_conflict(
    server: FakeApiServer, client: Client
) -> None:
    server.lose_answer(method="POST")
    with pytest.raises(Conflict) as conflict:
        client.create(TRAINJOBS, "ns", JOB)
    assert conflict.value.reason == "AlreadyExists"
    assert server.find(*JOBS, "j")


def test_a_create_with_a_generated_name_is_sent_once(server: FakeApiServer, client: Client) -> None:
    server.lose_answer(method="POST")
    with pytest.raises(Dropped):
        client.create(TRAINJOBS, "ns", {"metadata": {"generateName": "j-"}})
    assert len(server.objects[JOBS]) == 1
    server.fail(429)  # then nothing was done
    client.create(TRAINJOBS, "ns", {"metadata": {"generateName": "j-"}})
    assert len(server.objects[JOBS]) == 2


def test_a_rotated_token_is_read_again_once(server: FakeApiServer, make_client: MakeClient) -> None:
    tokens = iter(["token-1", "token-2"])
    client = make_client(lambda: next(tokens))
    server.put(*JOBS, JOB)
    client.get(TRAINJOBS, "ns", "j")
    server.token = "token-2"
    assert client.get(TRAINJOBS, "ns", "j")
    assert client.get(TRAINJOBS, "ns", "j")
    assert len(server.requests) == 4


def test_a_refused_token_is_an_error_without_the_token(
    server: FakeApiServer, client: Client
) -> None:
    server.token = "another"
    with pytest.raises(Forbidden, match="401: Unauthorized") as refused:
        client.get(TRAINJOBS, "ns", "j")
    assert "token-1" not in str(refused.value)


def test_a_stream_is_stopped_at_once(server: FakeApiServer, client: Client) -> None:
    server.add_pod("p")
    server.start("p")
    request = requests.pod_log("ns", "p", "node", follow=True, previous=False, since="")
    stop = Stop()
    with client.stream(request, silence=30, stop=stop) as pieces:
        server.log("p", "hello\n")
        assert next(pieces).endswith(b" hello\n")
        begun = time.monotonic()
        stop.set()
        assert list(pieces) == []
    assert time.monotonic() - begun < 0.2


def test_a_silent_stream_is_noticed(server: FakeApiServer, client: Client) -> None:
    server.add_pod("p")
    server.start("p")
    request = requests.pod_log("ns", "p", "node", follow=True, previous=False, since="")
    begun = time.monotonic()
    with (
        pytest.raises(Silent, match=r"nothing came for 0\.05 s"),
        client.stream(request, silence=0.05, stop=Stop()) as pieces,
    ):
        list(pieces)
    assert time.monotonic() - begun < 1


def test_a_stream_reads_a_rotated_token_again(
    server: FakeApiServer, make_client: MakeClient
) -> None:
    tokens = iter(["token-1", "token-2"])
    client = make_client(lambda: next(tokens))
    server.token = "token-2"
    server.add_pod("p")
    server.start("p")
    server.log("p", "hello\n")
    request = requests.pod_log("ns", "p", "node", follow=False, previous=False, since="")
    with client.stream(request, silence=5, stop=Stop()) as pieces:
        assert b"".join(pieces).endswith(b" hello\n")


def test_a_container_that_has_not_started(server: FakeApiServer, client: Client) -> None:
    server.add_pod("p")
    request = requests.pod_log("ns", "p", "node", follow=True, previous=False, since="")
    with (
        pytest.raises(Rejected, match="waiting to start"),
        client.stream(request, silence=5, stop=Stop()) as pieces,
    ):
        list(pieces)
