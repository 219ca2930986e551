"""What an administrator does: install, look, upgrade, remove; and nothing stays behind.

These change what the whole cluster has, and put back what the other tests run with.
"""

import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from e2e.places import ROOT, kubectl, require_kueue, until
from kfp_jax import __version__
from kfp_jax.kube.client import Client

HERE = Path(__file__).parent
MARK = "app.kubernetes.io/part-of=kfp-jax"
CLUSTER_KINDS = "clustertrainingruntimes,clusterroles,clusterrolebindings"
KINDS = "roles,rolebindings,networkpolicies"
# Overlay, its namespace as we ship it, the account that it binds.
OVERLAYS = {
    "standalone": ("kubeflow", "pipeline-runner"),
    "multi-user": ("kubeflow-user-example-com", "default-editor"),
    "standalone-queued": ("kubeflow", "pipeline-runner"),
    "multi-user-queued": ("kubeflow-user-example-com", "default-editor"),
}
OLD = "0.0.9"
DROPPED = """
apiVersion: rbac.authorization.k8s.io/v1
kind: {kind}
metadata: {{name: kfp-jax-of-old{namespace}}}
rules: []
"""


@pytest.fixture
def empty(client: Client, tmp_path: Path) -> Iterator[Path]:
    """A cluster without anything of ours, and a copy of what we ship."""
    removed(CLUSTER_KINDS)
    yield Path(shutil.copytree(ROOT / "runtimes" / "manifests", tmp_path / "manifests"))
    kubectl("apply", "--server-side", "--force-conflicts", "-k", str(HERE / "cluster"))


@pytest.fixture
def namespace(empty: Path) -> Iterator[str]:
    """A namespace that refuses what is not restricted, with both accounts."""
    name = f"kfp-jax-e2e-{secrets.token_hex(4)}"
    kubectl("create", "namespace", name)
    kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    for account in ("pipeline-runner", "default-editor"):
        kubectl("create", "serviceaccount", account, "-n", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


def removed(kinds: str, *where: str) -> None:
    kubectl("delete", kinds, "-l", MARK, *where)


def there(namespace: str, *, without: str = "") -> list[str]:
    """Returns what is there of ours: of the cluster, and of the namespace."""
    selector = MARK + (f",app.kubernetes.io/version!={without}" if without else "")
    found = kubectl("get", CLUSTER_KINDS, "-l", selector, "-o", "name").split()
    kinds = f"{KINDS},localqueues" if "localqueues" in kubectl("api-resources") else KINDS
    return sorted(
        [*found, *kubectl("get", kinds, "-l", selector, "-n", namespace, "-o", "name").split()]
    )


def of_namespace(manifests: Path, overlay: str, namespace: str) -> Path:
    """Returns the overlay for another namespace, changed as its page says."""
    shipped, _ = OVERLAYS[overlay]
    for file in (manifests / "overlays").glob("*/launcher/kustomization.yaml"):
        text = re.sub(
            rf"namespace: {shipped}$", f"namespace: {namespace}", file.read_text(), flags=re.M
        )
        file.write_text(text)
    return manifests / "overlays" / overlay


def doctor(namespace: str, account: str) -> tuple[int, str]:
    command = [
        sys.executable, "-c", "from kfp_jax.cli import main; main()", "doctor",
        "--backend", "trainer", "--namespace", namespace, "--account", account,
    ]  # fmt: skip
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_one_command_installs_all_that_doctor_asks_for_and_one_removes_it(
    client: Client, empty: Path, namespace: str, overlay: str
) -> None:
    if overlay.endswith("-queued"):
        require_kueue(client)
    made = of_namespace(empty, overlay, namespace)
    account = OVERLAYS[overlay][1]
    before = there(namespace)
    code, told = doctor(namespace, account)
    assert code != 0
    assert f"account {account} may not" in told
    assert before == []

    kubectl("apply", "--server-side", "-k", str(made))
    code, told = doctor(namespace, account)
    assert code == 0, told
    lines = told.splitlines()
    bad = [line for line in lines if line.strip().startswith(("problem", "note"))]
    if overlay.endswith("-queued"):  # the ClusterQueue is the platform's
        bad = [line for line in bad if "training admits no job: Can't submit" not in line]
    assert bad == [], told
    assert f"account {account} may do all that a launcher does" in told
    assert "only training pods reach training pods" in told
    assert "restricted, which admits our pods" in told

    kubectl("delete", "-k", str(made))
    assert until("all is gone", lambda: there(namespace) == before)
    code, told = doctor(namespace, account)
    assert code != 0


def test_an_upgrade_leaves_nothing_of_the_version_before(
    empty: Path, namespace: str, tmp_path: Path
) -> None:
    old = Path(shutil.copytree(empty, tmp_path / "old"))
    older = of_namespace(old, "standalone", namespace)
    for file in old.rglob("*.yaml"):
        file.write_text(file.read_text().replace(f":{__version__}", f":{OLD}"))
    version = old / "components" / "version" / "kustomization.yaml"
    version.write_text(version.read_text().replace(f"version: {__version__}", f"version: {OLD}"))
    # That version had two objects which this one has not.
    for folder, kind in (("runtimes", "ClusterRole"), ("rbac", "Role")):
        base = old / "base" / folder
        (base / "old.yaml").write_text(DROPPED.format(kind=kind, namespace=""))
        file = base / "kustomization.yaml"
        text = yaml.safe_load(file.read_text())
        file.write_text(yaml.safe_dump(text | {"resources": [*text["resources"], "old.yaml"]}))
    kubectl("apply", "--server-side", "-k", str(older))
    _, told = doctor(namespace, "pipeline-runner")
    assert "runtime kfp-jax-cpu" in told
    assert f"of another version than this {__version__}, image kfp-jax/trainer-cpu:{OLD}" in told

    kubectl("apply", "--server-side", "-k", str(of_namespace(empty, "standalone", namespace)))
    _, told = doctor(namespace, "pipeline-runner")
    assert f"kfp-jax-of-old is left from version {OLD}" in told
    assert "kubectl delete clusterroles kfp-jax-of-old\n" in told
    assert f"kubectl delete roles kfp-jax-of-old -n {namespace}\n" in told

    rest = f"{MARK},app.kubernetes.io/version!={__version__}"
    kubectl("delete", CLUSTER_KINDS, "-l", rest)
    kubectl("delete", KINDS, "-l", rest, "-n", namespace)
    code, told = doctor(namespace, "pipeline-runner")
    assert code == 0
    assert "note" not in told
    assert not any("of-old" in name for name in there(namespace))

    kubectl("delete", "-k", str(empty / "overlays" / "standalone"))
    assert until("all is gone", lambda: there(namespace) == [])
