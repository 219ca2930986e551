"""How the artifacts' store is reached follows from KFP's ConfigMap, and never shows a key."""

from typing import Any

import pytest
import yaml
from fakes.jobs import job
from kfp_jax.errors import SpecError
from kfp_jax.store_access import StoreAccess, access_to, store_uris, with_access

OWN = StoreAccess(
    {"AWS_ENDPOINT_URL": "http://seaweedfs.kubeflow:9000"},
    {
        "AWS_ACCESS_KEY_ID": "mlpipeline-minio-artifact/accesskey",
        "AWS_SECRET_ACCESS_KEY": "mlpipeline-minio-artifact/secretkey",
    },
)
NAMED = {"secretName": "keys", "accessKeyKey": "id", "secretKeyKey": "secret"}
DEFAULT = {
    "endpoint": "store.team:9000",
    "region": "eu-1",
    "disableSSL": True,
    "credentials": {"fromEnv": False, "secretRef": NAMED},
}
NAMED_KEYS = {"AWS_ACCESS_KEY_ID": "keys/id", "AWS_SECRET_ACCESS_KEY": "keys/secret"}
THEIRS = StoreAccess(
    {"AWS_ENDPOINT_URL": "http://store.team:9000", "AWS_REGION": "eu-1"}, NAMED_KEYS
)
SPECIAL = {
    "bucketName": "b",
    "keyPrefix": "/special/",
    "endpoint": "other:443",
    "disableSSL": False,
    "credentials": {"fromEnv": True},
}


def told(**providers: Any) -> str:
    return yaml.safe_dump(providers)


CASES: dict[str, tuple[str, str, StoreAccess]] = {
    "nothing is told": ("minio://mlpipeline/v2", "", OWN),
    "of another scheme": ("minio://mlpipeline/v2", told(s3={"default": DEFAULT}), OWN),
    "the cloud's own identity": ("s3://b/k", "", StoreAccess()),
    "Google's own identity": ("gs://b/k", "", StoreAccess()),
    "a store by its secret": ("s3://b/k", told(s3={"default": DEFAULT}), THEIRS),
    "KFP's spelling": ("minio://b/k", told(minio={"default": DEFAULT}), THEIRS),
    "JSON": ("s3://b/k", '{"s3": {"default": {"credentials": {"fromEnv": true}}}}', StoreAccess()),
    "from the environment": (
        "s3://b/k",
        told(s3={"default": {**DEFAULT, "credentials": {"fromEnv": True}}}),
        StoreAccess(THEIRS.variables),
    ),
    "TLS by default": (
        "s3://b/k",
        told(s3={"default": {"endpoint": "x", "credentials": {"fromEnv": True}}}),
        StoreAccess({"AWS_ENDPOINT_URL": "https://x"}),
    ),
    "Amazon's address follows from the region": (
        "s3://b/k",
        told(s3={"default": {**DEFAULT, "endpoint": "s3.amazonaws.com"}}),
        StoreAccess({"AWS_REGION": "eu-1"}, NAMED_KEYS),
    ),
    "a folder of its own": (
        "s3://b/special/k",
        told(s3={"default": DEFAULT, "overrides": [SPECIAL]}),
        StoreAccess({"AWS_ENDPOINT_URL": "https://other:443", "AWS_REGION": "eu-1"}),
    ),
    "a folder that only begins alike": (
        "s3://b/special-not/k",
        told(s3={"default": DEFAULT, "Overrides": [SPECIAL]}),
        THEIRS,
    ),
    "another bucket": (
        "s3://c/special/k",
        told(s3={"default": DEFAULT, "overrides": [SPECIAL]}),
        THEIRS,
    ),
    "Google by a secret": (
        "gs://b/k",
        told(
            gs={"default": {"credentials": {"secretRef": {"secretName": "g", "tokenKey": "json"}}}}
        ),
        StoreAccess(secrets={"GOOGLE_SERVICE_ACCOUNT_KEY": "g/json"}),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_config_map_says_how_a_store_is_reached(case: str) -> None:
    uri, providers, access = CASES[case]
    assert access_to([uri], providers) == access


UNCLEAR = {
    "no YAML": "s3: [",
    "no mapping": "- s3",
    "a scheme that is none": told(s3="x"),
    "no default": told(s3={"overrides": [SPECIAL]}),
    "no credentials": told(s3={"default": {"endpoint": "x"}}),
    "no secret": told(s3={"default": {"credentials": {"fromEnv": False}}}),
    "half a secret": told(s3={"default": {"credentials": {"secretRef": {"secretName": "x"}}}}),
    "overrides that are no list": told(s3={"default": DEFAULT, "overrides": {"b": 1}}),
    "an override without credentials": told(
        s3={"default": DEFAULT, "overrides": [{"bucketName": "b"}]}
    ),
}


@pytest.mark.parametrize("case", UNCLEAR)
def test_what_kfp_would_not_understand_is_said_in_one_sentence(case: str) -> None:
    with pytest.raises(SpecError, match=r"^providers in the ConfigMap kfp-launcher ") as caught:
        access_to(["s3://b/special"], UNCLEAR[case])
    assert str(caught.value).count(". ") == 0
    assert "\n" not in str(caught.value)


def test_a_job_reaches_one_s3_store_and_one_of_googles() -> None:
    providers = told(s3={"default": DEFAULT})
    both = access_to(["s3://b/k", "gs://b/k", "s3://b/l"], providers)
    assert both == THEIRS
    with pytest.raises(SpecError, match="s3://b/k and minio://b/k are reached in two ways"):
        access_to(["s3://b/k", "minio://b/k"], providers)


def test_a_job_names_secrets_and_no_keys() -> None:
    spec = with_access(job(output_uri="minio://b/out"), OWN)
    assert spec.env["AWS_ENDPOINT_URL"] == "http://seaweedfs.kubeflow:9000"
    assert spec.pods.secret_env == OWN.secrets


@pytest.mark.parametrize(
    "pods", [{"secret_env": {"AWS_ACCESS_KEY_ID": "mine/id", "AWS_SECRET_ACCESS_KEY": "mine/key"}}]
)
def test_what_the_author_sets_wins(pods: dict[str, Any]) -> None:
    env = {"AWS_ENDPOINT_URL_S3": "http://mine", "AWS_DEFAULT_REGION": "here"}
    spec = with_access(job(output_uri="minio://b/out", env=env, pods=pods), THEIRS)
    assert spec.env == env
    assert spec.pods.secret_env == pods["secret_env"]


def test_an_identity_of_the_pods_gets_no_key_beside_it() -> None:
    env = {"AWS_WEB_IDENTITY_TOKEN_FILE": "/token"}
    spec = with_access(job(output_uri="minio://b/out", env=env), THEIRS)
    assert spec.env == {**env, **THEIRS.variables}
    assert spec.pods.secret_env == {}


def test_all_places_of_a_job_count_once() -> None:
    spec = job(output_uri="s3://b/out", dataset_uri="s3://b/data", shared_uri="/data")
    uris = store_uris(spec, "s3://b/model", 3, "s3://b/out")
    assert uris == ("s3://b/out", "s3://b/out/checkpoints", "s3://b/data", "s3://b/model")
