"""What the commands share that look at a cluster."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from kfp_jax.errors import ClusterError, SpecError
from kfp_jax.kube.retry import Retry

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
    if find_spec("kubernetes") is None:
        raise SpecError(
            "A cluster needs more packages; install them with: pip install 'kfp-jax[kube]'."
        )
    # Only now: both take most of a second.
    from kfp_jax.kube.access import find_access
    from kfp_jax.kube.client import Client

    access = find_access(os.environ, context=context)
    client = Client(access, retry=_PATIENCE, warn=_warn)
    try:
        yield client, namespace or client.namespace
    finally:
        client.close()


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
