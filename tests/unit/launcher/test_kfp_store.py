"""The store of KFP's artifacts: what its ConfigMap says, what a job gets, what is read for us."""

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from fakes.api_server import FakeApiServer
from fakes.kube_client import make_client
from kfp_jax.errors import SpecError
from kfp_jax.kfp_store import (
    SecretRef,
    StoreAccess,
    access_of,
    find_access,
    own_variables,
    with_store,
)
from kfp_jax.kube.client import Client
from kfp_jax.pods import Pods
from kfp_jax.spec import TrainSpec

URI = "minio://mlpipeline/v2/artifacts/mnist/run/train/uuid"
OURS = SecretRef()
THEIRS = {"secretName": "s", "accessKeyKey": "id", "secretKeyKey": "key"}


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with FakeApiServer() as server:
        yield server


@pytest.fixture
def client(server: FakeApiServer) -> Iterator[Client]:
    client = make_client(server)
    yield client
    client.close()


@pytest.mark.parametrize(
    ("uri", "providers", "expected"),
    [
        (URI, {}, StoreAccess(secret=OURS)),
        ("s3://bucket/x", {}, StoreAccess()),
        (
            URI,
            {"minio": {"default": {"endpoint": "store:9000", "disableSSL": True, "region": "r"}}},
            StoreAccess("http://store:9000", "r", OURS),
        ),
        (
            "s3://bucket/x",
            {"s3": {"default": {"endpoint": "s3.example", "credentials": {"secretRef": THEIRS}}}},
            StoreAccess("https://s3.example", "", SecretRef("s", "id", "key")),
        ),
        (
            URI,
            {"minio": {"default": {"credentials": {"fromEnv": "true"}}}},
            StoreAccess(),
        ),
        (
            URI,
            {
                "minio": {
                    "default": {"endpoint": "http://one"},
                    "overrides": [
                        {"bucketName": "other", "endpoint": "http://two"},
                        {
                            "bucketName": "mlpipeline",
                            "keyPrefix": "v2/",
                            "endpoint": "http://three",
                        },
                    ],
                }
            },
            StoreAccess("http://three", "", OURS),
        ),
    ],
    ids=["kfps-own", "account", "endpoint", "secret", "from-env", "override"],
)
def test_kfps_own_words_say_where_the_store_is(
    uri: str, providers: dict[str, Any], expected: StoreAccess
) -> None:
    assert access_of(uri, yaml.safe_dump(providers) if providers else "") == expected


@pytest.mark.parametrize(
    "text", ["minio: [", "minio: [1]", "minio: {default: {credentials: {secretRef: {a: b}}}}"]
)
def test_what_kfp_would_not_read_either_is_named(text: str) -> None:
    with pytest.raises(SpecError, match="providers in the ConfigMap kfp-launcher"):
        access_of(URI, text)


def job(**more: Any) -> TrainSpec:
    return TrainSpec(name="train", program="a.b", output_uri=URI, **more)


def test_a_job_gets_the_keys_by_reference_and_what_its_author_set_stays() -> None:
    access = StoreAccess("http://store:9000", "r", OURS)
    spec = with_store(job(env={"AWS_REGION": "mine"}), access)
    assert spec.env == {"AWS_ENDPOINT_URL": "http://store:9000", "AWS_REGION": "mine"}
    assert spec.pods.secret_env == {
        "AWS_ACCESS_KEY_ID": "mlpipeline-minio-artifact/accesskey",
        "AWS_SECRET_ACCESS_KEY": "mlpipeline-minio-artifact/secretkey",
    }
    theirs = {"AWS_ACCESS_KEY_ID": "mine/id", "AWS_SECRET_ACCESS_KEY": "mine/key"}
    assert with_store(job(pods=Pods(secret_env=theirs)), access).pods.secret_env == theirs


def secret(**keys: str) -> dict[str, Any]:
    data = {name: b64encode(value.encode()).decode() for name, value in keys.items()}
    return {"metadata": {"name": "mlpipeline-minio-artifact"}, "data": data}


def test_this_process_reads_them_as_kfps_launcher_does(
    server: FakeApiServer, client: Client
) -> None:
    providers = "minio: {default: {endpoint: 'store:9000', disableSSL: true}}"
    config = {"metadata": {"name": "kfp-launcher"}, "data": {"providers": providers}}
    server.put("v1", "configmaps", config)
    server.put("v1", "secrets", secret(accesskey="id", secretkey="key"))
    access = find_access(client, URI)
    assert own_variables(client, access, {"AWS_ENDPOINT_URL": "http://mine"}) == {
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "key",
    }
    assert own_variables(client, access, {"AWS_ACCESS_KEY_ID": "mine"}) == {
        "AWS_ENDPOINT_URL": "http://store:9000"
    }


def test_keys_that_are_not_there_are_one_sentence(server: FakeApiServer, client: Client) -> None:
    access = find_access(client, URI)
    with pytest.raises(SpecError, match="give the variables AWS_ACCESS_KEY_ID"):
        own_variables(client, access, {})
    server.put("v1", "secrets", secret(accesskey="id"))
    with pytest.raises(SpecError, match="has no key 'secretkey'"):
        own_variables(client, access, {})
