import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.api_server import FakeApiServer
from fakes.clock import FastClock, ManualClock
from kfp_jax.errors import ClusterError
from kfp_jax.kube.access import MountedToken, find_access
from kfp_jax.kube.client import Client
from kfp_jax.kube.requests import PODS


def kubeconfig(folder: Path, server: str, user: dict[str, Any], **cluster: Any) -> str:
    contexts = [
        {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
        {"name": "two", "context": {"cluster": "c", "user": "u"}},
    ]
    document = {
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": contexts,
    }
    file = folder / "config"
    file.write_text(yaml.safe_dump(document))
    return str(file)


def test_contexts_and_namespaces(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, "https://api:6443", {"token": "t"})
    access = find_access({"KUBECONFIG": file})()
    assert (access.server, access.namespace) == ("https://api:6443", "team")
    assert access.authorization() == "Bearer t"
    assert find_access({}, kubeconfig=file, context="two")().namespace == "default"


def test_certificates(tmp_path: Path) -> None:
    (tmp_path / "client.crt").write_text("certificate")
    user = {
        "client-certificate": "client.crt",
        "client-key-data": base64.b64encode(b"key").decode(),
    }
    authority = base64.b64encode(b"authority").decode()
    file = kubeconfig(
        tmp_path,
        "https://api:6443",
        user,
        **{"certificate-authority-data": authority, "tls-server-name": "kubernetes"},
    )
    tls = find_access({"KUBECONFIG": file})().tls
    assert Path(tls["ca_certs"]).read_text() == "authority"
    assert Path(tls["cert_file"]) == tmp_path / "client.crt"
    assert Path(tls["key_file"]).read_text() == "key"
    assert tls["server_hostname"] == "kubernetes"
    assert tls["cert_reqs"] == "CERT_REQUIRED"


def test_a_credential_plugin_is_asked_again_when_refused(
    tmp_path: Path, server: FakeApiServer
) -> None:
    answer = tmp_path / "answer.json"

    def plugin_gives(token: str) -> None:
        api = "client.authentication.k8s.io/v1"
        status = {"token": token}
        answer.write_text(
            json.dumps({"apiVersion": api, "kind": "ExecCredential", "status": status})
        )

    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "cat",
        "args": [str(answer)],
    }
    plugin_gives("token-1")
    file = kubeconfig(tmp_path, server.url, {"exec": plugin})
    client = Client(find_access({"KUBECONFIG": file}), clock=FastClock())
    client.list(PODS, "team")
    server.token = "token-2"
    plugin_gives("token-2")
    client.list(PODS, "team")
    assert len(server.requests) == 3
    client.close()


def test_the_account_of_the_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, content in {"token": "t", "ca.crt": "authority", "namespace": "team\n"}.items():
        (tmp_path / name).write_text(content)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    access = find_access(environ, service_account=tmp_path)()
    assert (access.server, access.namespace) == ("https://[fd00::1]:443", "team")
    assert access.authorization().casefold() == "bearer t"
    assert access.tls == {"ca_certs": str(tmp_path / "ca.crt"), "cert_reqs": "CERT_REQUIRED"}


def test_a_mounted_token_is_read_anew_each_minute(tmp_path: Path) -> None:
    clock, file = ManualClock(), tmp_path / "token"
    token = MountedToken(file, clock.now)
    with pytest.raises(FileNotFoundError):
        token.read()
    file.write_text("one\n")
    assert token.read() == "one"
    file.write_text("two")
    clock.sleep(59)
    assert token.read() == "one"
    clock.sleep(1)
    assert token.read() == "two"
    file.unlink()  # while it is being replaced
    clock.sleep(60)
    assert token.read() == "two"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param("", "cannot be used", id="empty"),
        pytest.param("contexts: []\ncurrent-context: x\n", "x", id="no-such-context"),
        pytest.param(None, "cannot be used", id="no-file"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used(tmp_path: Path, content: str | None, said: str) -> None:
    file = tmp_path / "config"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ClusterError, match=said):
        find_access({"KUBECONFIG": str(file)})()


def test_no_cluster_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ClusterError, match="set KUBECONFIG"):
        find_access({})


def test_an_account_without_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(ClusterError, match="service account cannot be used"):
        find_access(environ, service_account=tmp_path)()
