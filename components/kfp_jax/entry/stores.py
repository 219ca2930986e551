"""A job of a KFP task whose artifacts are in an object store: its places there, and its access."""

import base64
from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from kfp import dsl
from kfp_jax_store import is_remote

from kfp_jax.entry.place import OnCluster
from kfp_jax.errors import Forbidden, NotFound, SpecError
from kfp_jax.kube.resources import CONFIG_MAPS, SECRETS
from kfp_jax.spec import TrainSpec
from kfp_jax.store_access import (
    CONFIG_MAP,
    PROVIDERS,
    StoreAccess,
    access_to,
    store_uris,
    with_access,
)

if TYPE_CHECKING:
    from kfp_jax.kube.client import Client


def in_store(
    spec: TrainSpec,
    output: dsl.Artifact,
    cluster: OnCluster | None,
    environ: MutableMapping[str, str],
    *,
    inputs: Mapping[str, dsl.Artifact] | None = None,
) -> TrainSpec:
    """Returns the job with its output and inputs where its nodes can write and read them.

    On a volume that they share with this task, or on one machine, that is where the spec has them:
    KFP's path of the artifact. Else the nodes write to the artifact's URI by themselves; KFP finds
    nothing at the path, copies nothing, and records the URI.

    Args:
        spec: The job, with the folder of `output`, or one below it, as its output.
        output: One of the task's output artifacts, whose URI has the same folder.
        cluster: Where the job runs; None on this machine.
        environ: Of this process. It is given the access too: nobody sees there what was not there
            when the process was started, and on a cluster it starts no others.
        inputs: Parameters of the program that name an artifact.

    Raises:
        SpecError: How the store is reached cannot be found out.
        Forbidden: This account may not find it out.
    """
    if cluster is None:
        return spec
    uri = str(output.uri or "").rstrip("/")
    if is_remote(uri) and not cluster.backend.has_on_volume(spec):
        places = {name: artifact.uri.rstrip("/") for name, artifact in (inputs or {}).items()}
        parameters = {**spec.parameters, **{n: u for n, u in places.items() if is_remote(u)}}
        below = spec.output_uri.removeprefix(str(PurePath(output.path).parent))
        home = f"{uri.rpartition('/')[0]}{below}"
        spec = replace(spec, output_uri=home, parameters=parameters)
    uris = store_uris(spec, *(spec.parameters[name] for name in inputs or ()))
    if not uris:
        return spec
    access = access_to(uris, _providers(cluster.client))
    environ.update(_own(access.beside(environ), cluster.client))
    return with_access(spec, access)


def artifact_place(output_uri: str, artifact: dsl.Artifact) -> str:
    """Returns where a job that ran with this output has an artifact of its task."""
    return f"{output_uri.rstrip('/')}/{PurePath(artifact.path).name}"


def _providers(client: "Client") -> str:
    try:
        found = client.get(CONFIG_MAPS, client.namespace, CONFIG_MAP)
    except NotFound:
        return ""
    return str((found.get("data") or {}).get(PROVIDERS) or "")


def _own(access: StoreAccess, client: "Client") -> dict[str, str]:
    """Returns the variables by which this process reaches the store."""
    found = dict(access.variables)
    for name, reference in access.secrets.items():
        secret, _, key = reference.partition("/")
        found[name] = _secret(client, secret, key)
    return found


def _secret(client: "Client", name: str, key: str) -> str:
    where = f"Secret {name} in namespace {client.namespace}"
    try:
        data = client.get(SECRETS, client.namespace, name).get("data") or {}
    except Forbidden as error:
        raise Forbidden(
            f"This account may not get {where}, which the artifacts' store is reached with; have"
            " it bound to the Role kfp-jax-launcher of runtimes/manifests, with that secret's name"
            " among its resourceNames."
        ) from error
    except NotFound as error:
        raise SpecError(
            f"{where} is not there, which the artifacts' store is reached with; have it made, or"
            f" another named in the ConfigMap {CONFIG_MAP}."
        ) from error
    if key not in data:
        raise SpecError(
            f"{where} has no key {key}, which the artifacts' store is reached with; have it named"
            f" rightly in the ConfigMap {CONFIG_MAP}."
        )
    # Without the newline that `echo` leaves in a secret: no key ends with one.
    return base64.b64decode(data[key]).decode().strip()
