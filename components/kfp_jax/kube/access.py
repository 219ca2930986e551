"""Which API server, and as whom: from a kubeconfig, or from the pod that this runs in.

A kubeconfig with its certificates, tokens and credential plugins is read by the official client, of
which no other part is used: importing it takes most of a second and 45 MB, so that a launcher in a
pod, which needs two files and two variables, does without.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfp_jax.errors import ClusterError
from kfp_jax.kube.session import Access

if TYPE_CHECKING:
    from kubernetes.client import Configuration

# Where Kubernetes mounts it, and how it tells the server's address.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SERVICE_HOST, SERVICE_PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
_KUBECONFIG = "~/.kube/config"
_TOKEN_SECONDS = 60.0


def find_access(
    environ: Mapping[str, str],
    *,
    kubeconfig: str = "",
    context: str = "",
    service_account: Path = SERVICE_ACCOUNT,
) -> Callable[[], Access]:
    """Returns what reads the access to a cluster, now and whenever credentials have expired.

    As kubectl chooses: the given kubeconfig, that of KUBECONFIG, the one in the home folder, else
    the service account of the pod.

    Args:
        environ: Where KUBECONFIG is looked up, and what tells that this is a pod.
        kubeconfig: A file; several, separated as in KUBECONFIG, are merged.
        context: A context of it; by default its current one.
        service_account: The folder that a pod's account is mounted at.

    Raises:
        ClusterError: There is neither.
    """
    named = kubeconfig or environ.get("KUBECONFIG", "")
    if named or context or Path(_KUBECONFIG).expanduser().exists():
        return partial(_from_kubeconfig, named or _KUBECONFIG, context)
    if environ.get(SERVICE_HOST):
        return partial(_from_pod, environ, service_account)
    raise ClusterError(
        "No cluster is known: KUBECONFIG is not set, ~/.kube/config is not there, and this is no"
        " pod with a service account; set KUBECONFIG."
    )


def _from_kubeconfig(files: str, context: str) -> Access:
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException, list_kube_config_contexts, load_kube_config

    configuration = Configuration()
    contexts: Any
    current: Any
    try:
        contexts, current = list_kube_config_contexts(files)
        load_kube_config(files, context or None, configuration)
    except (ConfigException, OSError) as error:
        raise ClusterError(
            f"The kubeconfig {files} cannot be used: {str(error).rstrip('.')}; mend it or name"
            " another with KUBECONFIG."
        ) from error
    chosen = next((item for item in contexts if item["name"] == context), current)
    return _access(configuration, chosen["context"].get("namespace") or "default")


def _from_pod(environ: Mapping[str, str], folder: Path) -> Access:
    token, authority = MountedToken(folder / "token"), folder / "ca.crt"
    host, port = environ[SERVICE_HOST], environ.get(SERVICE_PORT) or "443"
    try:
        token.read()
        authority.read_bytes()
        namespace = (folder / "namespace").read_text().strip()
    except OSError as error:
        raise ClusterError(
            f"The pod's service account cannot be used: {error}; mount its token or set KUBECONFIG."
        ) from error
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace,
        authorization=lambda: f"Bearer {token.read()}",
        tls={"ca_certs": str(authority), "cert_reqs": "CERT_REQUIRED"},
    )


class MountedToken:
    """A token in a file, which the kubelet renews long before the old one expires."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._token = ""
        self._until = float("-inf")

    def read(self) -> str:
        """Returns the token, read anew once a minute.

        Raises:
            OSError: It never could be read.
        """
        now = self._clock()
        if now >= self._until:
            try:
                self._token = self._path.read_text().strip()
            except OSError:
                if not self._token:
                    raise
            self._until = now + _TOKEN_SECONDS
        return self._token


def _access(configuration: "Configuration", namespace: str) -> Access:
    tls: dict[str, Any] = {
        "ca_certs": configuration.ssl_ca_cert,
        "cert_file": configuration.cert_file,
        "key_file": configuration.key_file,
        "server_hostname": configuration.tls_server_name,
        "cert_reqs": "CERT_REQUIRED" if configuration.verify_ssl else "CERT_NONE",
    }
    return Access(
        server=configuration.host,
        namespace=namespace,
        # Reads a mounted token anew every minute, and asks a plugin again before its one expires.
        authorization=lambda: configuration.get_api_key_with_prefix("authorization") or "",
        tls={key: value for key, value in tls.items() if value},
    )
