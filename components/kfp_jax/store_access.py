"""How the object store of a URI is reached: what KFP is told of it, for the pods of a job. Pure.

KFP's administrators say it in the ConfigMap `kfp-launcher`; without that it is KFP's own store. The
credentials stay where they are: a job's manifest names the secret and the key in it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kfp_jax_store import KFP_ENDPOINT, Location, is_remote, location

from kfp_jax.errors import SpecError
from kfp_jax.spec import TrainSpec

CONFIG_MAP: Final = "kfp-launcher"
PROVIDERS: Final = "providers"
ROOT, DEFAULT_ROOT = "defaultPipelineRoot", "minio://mlpipeline/v2/artifacts"
DEFAULT_SECRET: Final = "mlpipeline-minio-artifact"
"""What KFP makes in each namespace for its own store."""

ACCESS_KEY, SECRET_KEY = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
GOOGLE_KEY = "GOOGLE_SERVICE_ACCOUNT_KEY"
ENDPOINT, ENDPOINT_S3 = "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"
REGION = "AWS_REGION"

# Who sets one of them has chosen who the job is, and a key beside it would be another's.
_IDENTITIES: Final = frozenset(
    {
        ACCESS_KEY,
        SECRET_KEY,
        "AWS_SESSION_TOKEN",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        GOOGLE_KEY,
        "GOOGLE_APPLICATION_CREDENTIALS",
    }
)
# Other addresses of Amazon's, as of a private network, are not those that follow from a region.
_AMAZONS: Final = re.compile(r"(https://)?s3([.-][a-z0-9-]+)?\.amazonaws\.com")
# One choice says no less than the other.
_SAME: Final = {ENDPOINT: {ENDPOINT, ENDPOINT_S3}, REGION: {REGION, "AWS_DEFAULT_REGION"}}


@dataclass(frozen=True)
class StoreAccess:
    """How stores are reached.

    Attributes:
        variables: What any process may know: address and region.
        secrets: Variable -> "secret/key".
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)

    def beside(self, chosen: Iterable[str]) -> "StoreAccess":
        """Returns what is left to be set where these variables are set by somebody else."""
        names = {*chosen}
        variables = {
            name: value
            for name, value in self.variables.items()
            if not names & _SAME.get(name, {name})
        }
        return StoreAccess(variables, {} if names & _IDENTITIES else self.secrets)


def store_uris(spec: TrainSpec, *more: object) -> tuple[str, ...]:
    """Returns all that a job has in object stores, each once.

    Args:
        spec: The job.
        more: What its parameters name besides; what is no URI of a store counts for nothing.
    """
    places = (spec.output_uri, spec.checkpoints, spec.dataset_uri, spec.shared_uri, *more)
    return tuple(dict.fromkeys(str(uri) for uri in places if is_remote(str(uri))))


def access_to(uris: Iterable[str], providers: str) -> StoreAccess:
    """Returns how these folders of stores are reached.

    Args:
        uris: Folders of stores, of which one may be S3 and one Google's.
        providers: `PROVIDERS` in the ConfigMap, YAML or JSON; "" where there is none.

    Raises:
        SpecError: The ConfigMap says nothing that could be followed, or two stores speak S3: the
            variables can name only one.
    """
    told = _parsed(providers)
    found: dict[str, tuple[str, StoreAccess]] = {}
    for uri in uris:
        where = location(uri)
        access = _google(where, told) if where.scheme == "gs" else _s3(where, told)
        kind = "gs" if where.scheme == "gs" else "s3"
        first, known = found.setdefault(kind, (uri, access))
        if known != access:
            raise SpecError(
                f"{first} and {uri} are reached in two ways by the ConfigMap {CONFIG_MAP}, but a"
                " job can use one; keep all that it reads and writes in one store, or name address"
                " and secret in the job's env and secret_env."
            )
    merged = StoreAccess()
    for _, access in found.values():
        merged = StoreAccess(
            {**merged.variables, **access.variables}, {**merged.secrets, **access.secrets}
        )
    return merged


def with_access(spec: TrainSpec, access: StoreAccess) -> TrainSpec:
    """Returns the job with what its pods need; what it sets by itself wins."""
    rest = access.beside({*spec.env, *spec.pods.secret_env})
    pods = replace(spec.pods, secret_env={**rest.secrets, **spec.pods.secret_env})
    return replace(spec, env={**rest.variables, **spec.env}, pods=pods)


def _parsed(text: str) -> Mapping[str, Any]:
    import yaml  # only here: most jobs are told nothing

    try:
        told = yaml.safe_load(text) if text.strip() else {}
    except yaml.YAMLError as error:
        line = str(error).partition("\n")[0]
        raise _unclear(f"is not YAML ({line})") from error
    return _mapping(told, "it")


def _s3(where: Location, told: Mapping[str, Any]) -> StoreAccess:
    default, override = _rules(where, told)
    if default is None:
        return _kfps_own() if where.scheme == "minio" else StoreAccess()
    name = where.scheme
    rule = {**default, **{key: value for key, value in override.items() if value not in (None, "")}}
    secrets: dict[str, str] = {}
    if reference := _secret(rule, name):
        secrets = {
            ACCESS_KEY: _key(reference, "accesskeykey", name),
            SECRET_KEY: _key(reference, "secretkeykey", name),
        }
    variables = {
        ENDPOINT: _address(str(rule.get("endpoint") or ""), plain=rule.get("disablessl") is True),
        REGION: str(rule.get("region") or ""),
    }
    return StoreAccess({key: value for key, value in variables.items() if value}, secrets)


def _google(where: Location, told: Mapping[str, Any]) -> StoreAccess:
    default, override = _rules(where, told)
    reference = _secret({**(default or {}), **override}, "gs") if default is not None else {}
    return StoreAccess(secrets={GOOGLE_KEY: _key(reference, "tokenkey", "gs")} if reference else {})


def _kfps_own() -> StoreAccess:
    return StoreAccess(
        {ENDPOINT: KFP_ENDPOINT},
        {ACCESS_KEY: f"{DEFAULT_SECRET}/accesskey", SECRET_KEY: f"{DEFAULT_SECRET}/secretkey"},
    )


def _rules(
    where: Location, told: Mapping[str, Any]
) -> tuple[Mapping[str, Any] | None, Mapping[str, Any]]:
    """Returns what holds for a scheme, None for nothing, and what for this folder wins over it."""
    provider = _mapping(told.get(where.scheme), where.scheme)
    if not provider:
        return None, {}
    default = _mapping(provider.get("default"), f"{where.scheme}.default")
    if not default.get("credentials"):
        raise _unclear(f"has no {where.scheme}.default.credentials")
    overrides = provider.get("overrides") or []
    if not isinstance(overrides, list):
        raise _unclear(f"has {where.scheme}.overrides that are no list")
    for item in overrides:
        override = _mapping(item, f"{where.scheme}.overrides")
        prefix = str(override.get("keyprefix") or "").strip("/")
        fits = not prefix or f"{where.key}/".startswith(f"{prefix}/")
        if override.get("bucketname") == where.bucket and fits:
            if not override.get("credentials"):
                raise _unclear(f"has {where.scheme}.overrides without credentials")
            return default, override
    return default, {}


def _secret(rule: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Returns the reference to the secret, {} where the pods have an identity of their own."""
    credentials = _mapping(rule.get("credentials"), f"{name} credentials")
    if credentials.get("fromenv") is True:
        return {}
    reference = _mapping(credentials.get("secretref"), f"{name} secretRef")
    if not reference.get("secretname"):
        raise _unclear(f"has {name} credentials with neither fromEnv nor a secretRef")
    return reference


def _key(reference: Mapping[str, Any], key: str, name: str) -> str:
    if not reference.get(key):
        raise _unclear(f"has a {name} secretRef that does not name all of its keys")
    return f"{reference['secretname']}/{reference[key]}"


def _address(endpoint: str, *, plain: bool) -> str:
    """Returns an endpoint as a URL; "" for Amazon's, which follows from the region."""
    if not endpoint or _AMAZONS.fullmatch(endpoint.rstrip("/")):
        return ""
    if "://" in endpoint:
        return endpoint.rstrip("/")
    return f"{'http' if plain else 'https'}://{endpoint.rstrip('/')}"


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    """Returns a mapping with its names in lower case: KFP minds no case in them."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _unclear(f"has no mapping for {what}")
    return {str(name).lower(): item for name, item in value.items()}


def _unclear(what: str) -> SpecError:
    return SpecError(
        f"{PROVIDERS} in the ConfigMap {CONFIG_MAP} {what}, so the artifacts' store is not known;"
        " have it mended by who looks after Kubeflow Pipelines."
    )
