import json

import pytest
from fakes.kube_client import TRAINJOBS
from kfp_jax.errors import (
    ClusterError,
    Conflict,
    Forbidden,
    NotFound,
    Rejected,
    Throttled,
    Unavailable,
)
from kfp_jax.kube import answers, requests
from kfp_jax.kube.answers import Expired
from kfp_jax.kube.requests import Request
from kfp_jax.kube.retry import Retry

REQUEST = requests.create(TRAINJOBS, "ns", {"metadata": {"name": "j"}}, dry_run=False)
RBAC = (
    'trainjobs.trainer.kubeflow.org is forbidden: User "system:serviceaccount:ns:default" cannot'
    ' create resource "trainjobs" in API group "trainer.kubeflow.org" in the namespace "ns"'
)
WEBHOOK = 'admission webhook "v.x.org" denied the request: spec.runtimeRef: must be created before'
QUOTA = 'trainjobs "j" is forbidden: exceeded quota: q, requested: 1, used: 5, limited: 5'


def status(code: int, reason: str, message: str, **more: object) -> bytes:
    document = {"kind": "Status", "code": code, "reason": reason, "message": message, **more}
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("code", "body", "kind", "said"),
    [
        pytest.param(400, status(400, "BadRequest", 'strict decoding error: unknown field "x"'),
                     Rejected, 'unknown field "x"', id="unknown-field"),
        pytest.param(401, status(401, "Unauthorized", "Unauthorized"), Forbidden, "log in again",
                     id="token"),
        pytest.param(403, status(403, "Forbidden", RBAC), Forbidden, "cannot create", id="rbac"),
        pytest.param(403, b"<html>proxy</html>", Forbidden, "(403)", id="refused-by-a-proxy"),
        pytest.param(403, status(403, "Forbidden", WEBHOOK), Rejected, "must be created before",
                     id="webhook"),
        pytest.param(403, status(403, "Forbidden", QUOTA), Rejected, "exceeded quota", id="quota"),
        pytest.param(404, status(404, "NotFound", 'trainjobs "j" not found'), NotFound,
                     "check its name", id="object"),
        pytest.param(404, b"404 page not found\n", NotFound, "install what serves", id="kind"),
        pytest.param(409, status(409, "AlreadyExists", 'trainjobs "j" already exists'), Conflict,
                     "use another name", id="exists"),
        pytest.param(409, status(409, "Conflict", "uid mismatch"), Conflict, "look at the object",
                     id="uid"),
        pytest.param(410, status(410, "Expired", "too old"), Expired, "list again", id="expired"),
        pytest.param(422, status(422, "Invalid", "spec: Invalid value"), Rejected,
                     "spec: Invalid value", id="cel"),
        pytest.param(429, b"", Throttled, "later", id="throttled"),
        pytest.param(500, status(500, "InternalError", 'failed calling webhook "w"'), Unavailable,
                     "webhooks", id="webhook-down"),
        pytest.param(503, b"upstream connect error", Unavailable, "(503)", id="behind-a-proxy"),
    ],
)  # fmt: skip
def test_what_an_answer_means(code: int, body: bytes, kind: type[ClusterError], said: str) -> None:
    error = answers.error(REQUEST, code, {}, body)
    assert type(error) is kind
    assert said in str(error)
    assert str(error).startswith(
        "The API server could not create trainjobs.trainer.kubeflow.org j in namespace ns ("
    )
    assert str(error).endswith(".")
    assert "\n" not in str(error)


def test_only_a_status_is_quoted_and_not_at_any_length() -> None:
    leaky = answers.error(REQUEST, 500, {}, b'{"token": "secret"}')
    assert "secret" not in str(leaky)
    long = answers.error(REQUEST, 500, {}, status(500, "", "x" * 10_000))
    assert len(str(long)) < 1000


def test_how_long_the_server_wants_to_be_left_alone() -> None:
    assert answers.error(REQUEST, 429, {"Retry-After": "3"}, b"").retry_after == 3
    details = status(429, "TooManyRequests", "", details={"retryAfterSeconds": 5})
    assert answers.error(REQUEST, 429, {}, details).retry_after == 5
    assert answers.error(REQUEST, 429, {"Retry-After": "Wed, 21 Oct"}, b"").retry_after == 0


@pytest.mark.parametrize(
    ("request_", "url"),
    [
        pytest.param(requests.get(requests.PODS, "ns", "p"), "/api/v1/namespaces/ns/pods/p",
                     id="core"),
        pytest.param(requests.get(TRAINJOBS, "ns", "j"),
                     "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ns/trainjobs/j", id="group"),
        pytest.param(requests.list_page(TRAINJOBS, "", "a=b,c=d", "", paged=True, token=""),
                     "/apis/trainer.kubeflow.org/v1alpha1/trainjobs"
                     "?labelSelector=a%3Db%2Cc%3Dd&limit=500", id="all-namespaces"),
        pytest.param(requests.get(requests.PODS, "ns", "../secrets/x"),
                     "/api/v1/namespaces/ns/pods/..%2Fsecrets%2Fx", id="a-name-stays-a-name"),
    ],
)  # fmt: skip
def test_paths(request_: Request, url: str) -> None:
    assert request_.url == url


def test_pauses_double_up_to_the_longest_and_keep_to_what_is_asked() -> None:
    retry = Retry(first=0.1, most=10)
    assert [retry.pause(tries, 1.0) for tries in (0, 1, 2, 20, 5000)] == [0.1, 0.2, 0.4, 10, 10]
    assert retry.pause(0, 0.0) == 0.05
    assert retry.pause(0, 0.0, retry_after=3) > 3
