"""The store that KFP keeps artifacts in: where it is, and by which secret.

KFP's own launcher reads both from the API server with the rights of the task's account: so may we.
The pods of a job get the secret by reference.
"""

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import yaml

from kfp_jax.errors import Forbidden, NotFound, SpecError
from kfp_jax.kube.resources import CONFIG_MAPS, SECRETS
from kfp_jax.spec import TrainSpec

if TYPE_CHECKING:
    from kfp_jax.kube.client import Client

CONFIG_MAP = "kfp-launcher"
_KEY_ID, _SECRET_KEY = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
_ENDPOINT, _REGION = "AWS_ENDPOINT_URL", "AWS_REGION"


@dataclass(frozen=True)
class SecretRef:
    """A secret with the two keys to a store."""

    name: str = "mlpipeline-minio-artifact"
    key_id: str = "accesskey"
    secret_key: str = "secretkey"


@dataclass(frozen=True)
class StoreAccess:
    """What is needed beyond a URI; what is empty is left to the standard variables.

    Attributes:
        endpoint: Its address.
        region: Its region.
        secret: Where its keys are.
    """

    endpoint: str = ""
    region: str = ""
    secret: SecretRef | None = None


def access_of(uri: str, providers: str) -> StoreAccess:
    """Returns how a store is reached.

    Args:
        uri: Of an artifact.
        providers: The value of `providers` in the ConfigMap kfp-launcher, or "".

    Raises:
        SpecError: It is no YAML of the form that KFP reads.
    """
    scheme, _, place = uri.partition("://")
    bucket, _, key = place.partition("/")
    # KFP's own store has a secret of a fixed name; for others it counts on the account's identity.
    access = StoreAccess(secret=SecretRef() if scheme == "minio" else None)
    try:
        provider = (yaml.safe_load(providers) or {}).get(scheme) or {}
        chosen = dict(provider.get("default") or {})
        for override in provider.get("overrides") or ():
            if override.get("bucketName") == bucket and key.startswith(
                override.get("keyPrefix") or ""
            ):
                chosen |= override
                break
        return _configured(access, chosen)
    except (yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        raise SpecError(
            f"providers in the ConfigMap {CONFIG_MAP} is not what KFP reads: {error}; see object"
            " store credentials in KFP's documentation."
        ) from error


def _configured(access: StoreAccess, chosen: Mapping[str, Any]) -> StoreAccess:
    endpoint = str(chosen.get("endpoint") or "")
    if endpoint and "://" not in endpoint:
        plain = str(chosen.get("disableSSL", False)).lower() == "true"
        endpoint = f"{'http' if plain else 'https'}://{endpoint}"
    credentials = chosen.get("credentials") or {}
    secret = access.secret
    if str(credentials.get("fromEnv", False)).lower() == "true":
        secret = None
    elif reference := credentials.get("secretRef"):
        secret = SecretRef(
            reference["secretName"], reference["accessKeyKey"], reference["secretKeyKey"]
        )
    return StoreAccess(endpoint, str(chosen.get("region") or ""), secret)


def with_store(spec: TrainSpec, access: StoreAccess) -> TrainSpec:
    """Returns a job whose pods reach the store; what its author has set stays."""
    theirs = {**spec.env, **spec.pods.secret_env}
    found = {_ENDPOINT: access.endpoint, _REGION: access.region}
    env = {name: value for name, value in found.items() if value and name not in theirs}
    pods = spec.pods
    if access.secret and _KEY_ID not in theirs:
        name = access.secret.name
        keys = {
            _KEY_ID: f"{name}/{access.secret.key_id}",
            _SECRET_KEY: f"{name}/{access.secret.secret_key}",
        }
        pods = replace(pods, secret_env={**keys, **pods.secret_env})
    return replace(spec, env={**env, **spec.env}, pods=pods)


def find_access(client: "Client", uri: str) -> StoreAccess:
    """Returns how a store is reached, by what this namespace's KFP was told."""
    try:
        config = client.get(CONFIG_MAPS, client.namespace, CONFIG_MAP)
    except (Forbidden, NotFound):
        return access_of(uri, "")
    return access_of(uri, (config.get("data") or {}).get("providers", ""))


def own_variables(
    client: "Client", access: StoreAccess, environ: Mapping[str, str]
) -> dict[str, str]:
    """Returns the variables that this process needs in addition to reach the store.

    Raises:
        SpecError: The secret with the keys cannot be read.
    """
    found = {_ENDPOINT: access.endpoint, _REGION: access.region}
    if access.secret and not environ.get(_KEY_ID):
        found |= _keys(client, access.secret)
    return {name: value for name, value in found.items() if value and not environ.get(name)}


def _keys(client: "Client", secret: SecretRef) -> dict[str, str]:
    try:
        data = client.get(SECRETS, client.namespace, secret.name).get("data") or {}
        return {
            _KEY_ID: b64decode(data[secret.key_id]).decode(),
            _SECRET_KEY: b64decode(data[secret.secret_key]).decode(),
        }
    except (Forbidden, NotFound) as error:
        raise SpecError(
            f"The keys to the artifacts' store are not to be had: {error}; give the variables"
            f" {_KEY_ID} and {_SECRET_KEY} to the task by kubernetes.use_secret_as_env."
        ) from error
    except KeyError as error:
        raise SpecError(
            f"Secret {secret.name} in namespace {client.namespace} has no key {error}; it should"
            " hold the keys to the artifacts' store."
        ) from error
