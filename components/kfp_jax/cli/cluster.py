"""What the commands share that look at a cluster."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from kfp_jax.backends.base import Backend
from kfp_jax.backends.choice import Cluster, choose_backend, connect, on_cluster
from kfp_jax.doctor import CLUSTER
from kfp_jax.errors import ClusterError
from kfp_jax.kube.retry import Retry
from kfp_jax.manifests.identity import STUDY

if TYPE_CHECKING:
    from kfp_jax.kube.client import Client

_PATIENCE = Retry(for_seconds=15.0)  # a person waits


@contextmanager
def connected(context: str, namespace: str) -> "Iterator[tuple[Client, str]]":
    """Gives a client of the cluster and the namespace to look at.

    Args:
        context: A context of the kubeconfig; "" for its current one.
        namespace: "" for that of the context, or of the pod.

    Raises:
        SpecError: What a cluster needs is not installed.
        ClusterError: No cluster is known.
    """
    client = connect(context, warn=_warn, retry=_PATIENCE)
    try:
        yield client, namespace or client.namespace
    finally:
        client.close()


def place(
    backend: str, namespace: str, context: str, *, study: str = "", asked: bool = True
) -> Backend:
    """Returns the backend of that name, with its jobs in that place.

    Args:
        backend: One of `choice.NAMES`.
        namespace: "" for that of the context.
        context: "" for the current one.
        study: Whose trials the jobs will be, or "".
        asked: Whether the cluster will be; else none need be known.

    Raises:
        SpecError: There is none, or what it needs is not installed.
        ClusterError: No cluster is known, or it does not answer.
    """
    labels = {STUDY: study} if study else {}
    cluster = Cluster(context=context, namespace=namespace, labels=labels)
    if not asked and backend in CLUSTER and not knows_cluster(context):
        from kfp_jax.kube.client import Client
        from kfp_jax.kube.session import Access

        access = Access("https://unknown", namespace or "default", authorization=lambda: "")
        return on_cluster(backend, Client(lambda: access), cluster)
    chosen = choose_backend(backend, cluster, warn=_warn)
    if chosen.name == "local" and (namespace or context):
        note("The job stays on this machine: --namespace and --context are of no use.")
    return chosen


def knows_cluster(context: str) -> bool:
    """Returns whether some kubeconfig, or the pod that this runs in, names a cluster."""
    if find_spec("kubernetes") is None:
        return False
    from kfp_jax.kube.access import find_access

    try:
        find_access(os.environ, context=context)
    except ClusterError:
        return False
    return True


def note(text: str) -> None:
    """Writes a sentence beside the results."""
    sys.stderr.write(f"{text}\n")


def _warn(text: str) -> None:
    note(f"The API server warns: {text}")
