"""Which API server, and as whom: from a kubeconfig, or from the pod that this runs in.

The official client reads both, with certificates, tokens and credential plugins; no other part of
it is used. Importing it takes most of a second, so nothing imports this file before it is needed.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from kubernetes.client import Configuration
from kubernetes.config import (
    ConfigException,
    list_kube_config_contexts,
    load_kube_config,
)
from kubernetes.config.incluster_config import (
    SERVICE_HOST_ENV_NAME,
    SERVICE_TOKEN_FILENAME,
    InClusterConfigLoader,
)

from kfp_jax.errors import ClusterError
from kfp_jax.kube.session import Access

SERVICE_ACCOUNT = Path(SERVICE_TOKEN_FILENAME).parent
_KUBECONFIG = "~/.kube/config"


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
    if environ.get(SERVICE_HOST_ENV_NAME):
        return partial(_from_pod, environ, service_account)
    raise ClusterError(
        "No cluster is known: KUBECONFIG is not set, ~/.kube/config is not there, and this is no"
        " pod with a service account; set KUBECONFIG."
    )


def _from_kubeconfig(files: str, context: str) -> Access:
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
    configuration = Configuration()
    try:
        InClusterConfigLoader(folder / "token", folder / "ca.crt", environ=environ).load_and_set(
            configuration
        )
        namespace = (folder / "namespace").read_text().strip()
    except (ConfigException, OSError) as error:
        raise ClusterError(
            f"The pod's service account cannot be used: {str(error).rstrip('.')}; mount its token"
            " or set KUBECONFIG."
        ) from error
    return _access(configuration, namespace)


def _access(configuration: Configuration, namespace: str) -> Access:
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
