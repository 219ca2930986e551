"""Which backend a name stands for."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

from kfp_jax.backends.base import Backend
from kfp_jax.backends.local import LocalBackend
from kfp_jax.errors import SpecError
from kfp_jax.kube.retry import Retry
from kfp_jax.manifests.identity import Owner

if TYPE_CHECKING:
    from kfp_jax.backends.cluster import ClusterBackend
    from kfp_jax.kube.client import Client

NAMES = ("auto", "local", "trainer", "jobset")
_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"  # every pod has it


@dataclass(frozen=True)
class Cluster:
    """Where jobs are on a cluster, and what they belong to.

    Attributes:
        context: A context of the kubeconfig; by default its current one.
        namespace: By default that of the context, or of the pod.
        labels: run, task, study, trial -> any text.
        owner: What the jobs are deleted with, or None.
    """

    context: str = ""
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    owner: Owner | None = None


def choose_backend(
    name: str,
    cluster: Cluster | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    warn: Callable[[str], None] = lambda _: None,
) -> Backend:
    """Returns the backend of that name.

    `auto` is Kubeflow Trainer, or JobSet where there is none or too old a one, for a launcher that
    runs in a pod; this machine for any other.

    Args:
        name: One of `NAMES`.
        cluster: Where on a cluster.
        environ: Where KUBECONFIG is looked up, and what tells that this is a pod.
        warn: Takes each warning of the API server.

    Raises:
        SpecError: There is none, or what it needs is not installed.
        ClusterError: No cluster is known, or it does not answer.
    """
    if is_local(name, environ=environ):
        return LocalBackend()
    cluster = cluster or Cluster()
    client = connect(cluster.context, environ=environ, warn=warn)
    return on_cluster(name, client, cluster)


def is_local(name: str, *, environ: Mapping[str, str] | None = None) -> bool:
    """Returns whether the backend of that name is this machine.

    Raises:
        SpecError: There is none.
    """
    environ = os.environ if environ is None else environ
    if name not in NAMES:
        raise SpecError(f"backend is {name!r:.60}; give one of {', '.join(NAMES)}.")
    return name == "local" or (name == "auto" and not environ.get(_IN_CLUSTER))


def connect(
    context: str = "",
    *,
    environ: Mapping[str, str] | None = None,
    warn: Callable[[str], None] = lambda _: None,
    retry: Retry | None = None,
) -> "Client":
    """Returns a client of the cluster that a context, KUBECONFIG or this pod names.

    Args:
        context: A context of the kubeconfig; "" for its current one.
        environ: Where KUBECONFIG is looked up, and what tells that this is a pod.
        warn: Takes each warning of the API server.
        retry: How long a call is tried.

    Raises:
        SpecError: What it needs is not installed.
        ClusterError: No cluster is known.
    """
    if find_spec("kubernetes") is None:
        raise SpecError(
            "A cluster needs more packages here; install them with: pip install 'kfp-jax[kube]'."
        )
    # Only now: both take most of a second, and a machine without clusters may lack them.
    from kfp_jax.kube.access import find_access
    from kfp_jax.kube.client import Client

    environ = os.environ if environ is None else environ
    return Client(find_access(environ, context=context), warn=warn, retry=retry)


def on_cluster(name: str, client: "Client", cluster: Cluster) -> "ClusterBackend":
    """Returns the backend `trainer`, `jobset` or, for `auto`, the first of these that works.

    Raises:
        SpecError: For `auto`, neither does.
    """
    from kfp_jax.backends.jobset import JobSetBackend
    from kfp_jax.backends.trainer import TrainerBackend
    from kfp_jax.kube.resources import JOBSETS

    trainer = TrainerBackend(
        client, namespace=cluster.namespace, labels=cluster.labels, owner=cluster.owner
    )
    jobset = JobSetBackend(
        client, namespace=cluster.namespace, labels=cluster.labels, owner=cluster.owner
    )
    if name != "auto":
        return trainer if name == "trainer" else jobset
    try:
        trainer.check_served()
    except SpecError as error:
        if not client.serves(JOBSETS):
            raise SpecError(
                "This cluster has neither a Kubeflow Trainer of 2.2 or newer nor JobSet; have one"
                " installed, or choose the backend local."
            ) from error
        return jobset
    return trainer
