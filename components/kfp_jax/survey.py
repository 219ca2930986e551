"""Collects what `doctor` judges: this machine, and a cluster as one account sees it."""

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeVar

from kfp_jax.backends.pod_status import condition, line
from kfp_jax.doctor import ClusterFacts, MachineFacts, Manifest
from kfp_jax.errors import ClusterError, Forbidden, NotFound
from kfp_jax.kube.requests import Resource
from kfp_jax.kube.resources import (
    ACCOUNTS,
    CLUSTER_RUNTIMES,
    CONFIG_MAPS,
    JOBSETS,
    LIMIT_RANGES,
    LOCAL_QUEUES,
    NAMESPACES,
    NETWORK_POLICIES,
    QUOTAS,
    TRAINJOBS,
)
from kfp_jax.kube.retry import Retry
from kfp_jax.manifests import rights
from kfp_jax.manifests.dialect import schema_fields
from kfp_jax.manifests.pod import FLAVORS
from kfp_jax.manifests.runtime import shipped_name

if TYPE_CHECKING:
    from kfp_jax.kube.client import Client

T = TypeVar("T")

_POLICY = "kfp-jax-nodes"
_OURS, _VERSION = "app.kubernetes.io/part-of=kfp-jax", "app.kubernetes.io/version"
_INSTALLED = (
    CLUSTER_RUNTIMES,
    *(
        Resource("rbac.authorization.k8s.io", "v1", plural)
        for plural in ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
    ),
    NETWORK_POLICIES,
)

_IMPORT_SECONDS = 60
_SYSTEM_NAMESPACE = "kubeflow-system"
_KFP_NAMESPACE = "kubeflow"
_PATIENCE = Retry(for_seconds=5.0)


def survey_machine() -> MachineFacts:
    """Returns what this machine is; JAX is imported in a process of its own."""
    jax, error = _installed("jax"), ""
    if jax:
        command = [sys.executable, "-c", "import jax"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_IMPORT_SECONDS, check=False
        )
        error = (done.stderr.strip().splitlines() or [""])[-1] if done.returncode else ""
    return MachineFacts(
        python=platform.python_version(),
        cores=len(os.sched_getaffinity(0)),
        jax=jax,
        jax_error=error,
        kfp=_installed("kfp"),
    )


def survey_cluster(client: "Client", namespace: str, account: str = "") -> ClusterFacts:
    """Returns what a cluster is; a server that is silent is a fact, too.

    Args:
        client: To the server.
        namespace: Where jobs would be.
        account: The service account whose rights count; by default those of the client.
    """
    try:
        kubernetes = client.server_version(retry=_PATIENCE)
        there, labels = _namespace(client, namespace)
        queues = _queues(client, namespace)
        return ClusterFacts(
            server=client.server,
            namespace=namespace,
            version=kubernetes,
            trainjob_fields=_fields(client, TRAINJOBS, "TrainJob"),
            trainer_version=_trainer_version(client),
            jobset_fields=_fields(client, JOBSETS, "JobSet"),
            runtimes=_runtimes(client),
            account=account,
            account_there=not account or _is_there(client, ACCOUNTS, namespace, account),
            denied=_denied(client, namespace, account, queued="queues" in queues),
            **queues,
            namespace_there=there,
            namespace_labels=labels,
            quotas=_listed(client, QUOTAS, namespace),
            limit_ranges=_listed(client, LIMIT_RANGES, namespace),
            policies=_policies(client, namespace),
            installed=_installed_objects(client, namespace),
            kfp_retries=_kfp_retries(client),
        )
    except ClusterError as error:
        return ClusterFacts(server=client.server, namespace=namespace, unreachable=str(error))


def _fields(client: "Client", resource: Resource, kind: str) -> frozenset[str] | None:
    if not client.serves(resource):
        return None
    return schema_fields(client.openapi(resource.group, resource.version), kind)


def _trainer_version(client: "Client") -> str:
    read = _readable(lambda: client.get(CONFIG_MAPS, _SYSTEM_NAMESPACE, "kubeflow-trainer-public"))
    return str((read or {}).get("data", {}).get("kubeflow_trainer_version", ""))


def _runtimes(client: "Client") -> dict[str, Manifest | None] | None:
    found: dict[str, Manifest | None] = {}
    for kind in FLAVORS:
        name = shipped_name(kind)
        try:
            found[name] = client.get(CLUSTER_RUNTIMES, "", name)
        except NotFound:
            found[name] = None
        except Forbidden:
            return None
    return found


def _denied(
    client: "Client", namespace: str, account: str, *, queued: bool
) -> frozenset[tuple[str, str, str]]:
    denied = set()
    for right in (*rights.LAUNCHER, *((rights.QUEUE,) if queued else ())):
        for group, resource, verb in right.calls():
            plural, _, subresource = resource.partition("/")
            kind = Resource(group, "*", plural)
            more = {"name": right.name, "subresource": subresource, "account": account}
            if not client.may(verb, kind, namespace, **more):
                denied.add((group, resource, verb))
    return frozenset(denied)


def _queues(client: "Client", namespace: str) -> dict[str, Any]:
    versions = client.versions(LOCAL_QUEUES.group)
    if not versions:
        return {}
    kind = Resource(LOCAL_QUEUES.group, versions[0], LOCAL_QUEUES.plural)
    found = _listed(client, kind, namespace)
    queues = {item["metadata"]["name"]: _inactive(item.get("status", {})) for item in found or ()}
    return {"queues": queues, "queues_readable": found is not None}


def _inactive(status: Mapping[str, Any]) -> str:
    """Returns why a queue admits nothing, or ""."""
    stopped = condition(status, "Active", "False")
    return line(stopped.get("message")) if stopped else ""


def _policies(client: "Client", namespace: str) -> bool | None:
    found = _listed(client, NETWORK_POLICIES, namespace)
    return None if found is None else any(item["metadata"]["name"] == _POLICY for item in found)


def _installed_objects(client: "Client", namespace: str) -> tuple[tuple[str, str, str], ...]:
    found = []
    for kind in _INSTALLED:
        where = "" if kind.plural.startswith("cluster") else namespace
        for item in _listed(client, kind, where, labels=_OURS) or ():
            metadata = item["metadata"]
            found.append((kind.plural, metadata["name"], metadata["labels"].get(_VERSION, "")))
    return tuple(found)


def _is_there(client: "Client", kind: Resource, namespace: str, name: str) -> bool:
    try:
        client.get(kind, namespace, name)
    except NotFound:
        return False
    except Forbidden:  # then it may be
        return True
    return True


def _namespace(client: "Client", namespace: str) -> tuple[bool, Mapping[str, str] | None]:
    """Returns whether the namespace is there, and its labels where the account may read them."""
    try:
        return True, client.get(NAMESPACES, "", namespace)["metadata"].get("labels", {})
    except NotFound:
        return False, {}
    except Forbidden:  # an account of the namespace may not look at it from outside
        return True, None


def _kfp_retries(client: "Client") -> bool:
    read = _readable(
        lambda: client.get(CONFIG_MAPS, _KFP_NAMESPACE, "workflow-controller-configmap")
    )
    defaults = str((read or {}).get("data", {}).get("workflowDefaults", ""))
    return "retryStrategy" in defaults and "OnError" in defaults


def _listed(
    client: "Client", resource: Resource, namespace: str, *, labels: str = ""
) -> tuple[Manifest, ...] | None:
    listing = _readable(lambda: client.list(resource, namespace, labels=labels))
    return listing.items if listing else None


def _readable(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (Forbidden, NotFound):
        return None


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
