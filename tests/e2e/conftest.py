"""What end-to-end tests share: a real cluster, reached by KUBECONFIG alone. See README.md."""

import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kfp_jax.errors import NotFound
from kfp_jax.kube.access import find_access
from kfp_jax.kube.client import Client
from kfp_jax.kube.requests import Resource
from kfp_jax.kube.resources import NAMESPACES, PODS
from kfp_jax.manifests.environment import NODE

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
SHARED = Path("/tmp/kfp-jax-e2e")  # cluster/kustomization.yaml mounts it
ACCOUNT = "pipeline-runner"
ACCOUNTS = Resource("", "v1", "serviceaccounts")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(300))


def kubectl(*arguments: str, text: str | None = None) -> str:
    """Runs kubectl and returns what it prints."""
    command = ["kubectl", *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def until(what: str, found: Callable[[], Any], *, seconds: float = 90) -> Any:
    """Returns what `found` returns once that is true."""
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.2)
    return value


@dataclass(frozen=True)
class Place:
    """A namespace of its own for one test, and a folder that test and pods see under one path."""

    client: Client
    namespace: str
    folder: Path

    def create(self, resource: Resource, manifest: dict[str, Any], **options: Any) -> Any:
        """Makes an object here, whatever namespace it names."""
        here = manifest | {"metadata": manifest["metadata"] | {"namespace": self.namespace}}
        return self.client.create(resource, self.namespace, here, **options)

    def get(self, resource: Resource, name: str) -> Any:
        return self.client.get(resource, self.namespace, name)

    def is_gone(self, resource: Resource, name: str) -> bool:
        try:
            self.get(resource, name)
        except NotFound:
            return True
        return False

    def pods(self, labels: str = "") -> list[Any]:
        return list(self.client.list(PODS, self.namespace, labels=labels).items)

    def log(self, pod: str, container: str = NODE) -> str:
        return kubectl("logs", "-n", self.namespace, pod, "-c", container)

    def story(self) -> str:
        """Returns what a person would look at after a failure."""
        return kubectl("get", "events,pods,trainjobs,jobsets", "-n", self.namespace)


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    """The administrator's access to the cluster, with our runtimes installed."""
    if not os.environ.get("KUBECONFIG"):
        pytest.fail("KUBECONFIG is not set; it names the cluster, see tests/e2e/README.md")
    if not shutil.which("kubectl"):
        pytest.fail("kubectl is not on the PATH; install it, see tests/e2e/README.md")
    kubectl("apply", "--server-side", "--force-conflicts", "-k", str(HERE / "cluster"))
    client = Client(find_access(os.environ))
    if not client.versions("argoproj.io"):
        kubectl("apply", "--server-side", "-f", str(HERE / "cluster" / "workflow-crd.yaml"))
    yield client
    client.close()


@pytest.fixture(scope="session")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what we ship for kustomize, as a platform engineer has it; tests may change it."""
    return shutil.copytree(
        ROOT / "runtimes" / "manifests", tmp_path_factory.mktemp("shipped") / "manifests"
    )


@pytest.fixture
def place(client: Client, manifests: Path) -> Iterator[Place]:
    """A fresh namespace with the launcher's account and rights; all is removed afterwards."""
    name = f"kfp-jax-e2e-{secrets.token_hex(4)}"
    folder = SHARED / name
    SHARED.mkdir(exist_ok=True)
    for path in (SHARED, folder):
        path.mkdir(exist_ok=True)
        path.chmod(0o777)  # the pods run as another user
    umask = os.umask(0)  # for what the test itself makes there
    client.create(NAMESPACES, "", {"metadata": {"name": name}})
    place = Place(client, name, folder)
    try:
        place.create(ACCOUNTS, {"metadata": {"name": ACCOUNT}})
        kubectl("apply", "--server-side", "-k", str(launcher_overlay(manifests, name)))
        yield place
    finally:
        os.umask(umask)
        client.delete(NAMESPACES, "", name)
        shutil.rmtree(folder, ignore_errors=True)


def launcher_overlay(manifests: Path, namespace: str, *, overlay: str = "standalone") -> Path:
    """Returns an overlay with a launcher's rights in a namespace, made as the README says."""
    shipped = manifests / "overlays" / overlay / "launcher"
    made = shutil.copytree(shipped, shipped.parent / namespace, dirs_exist_ok=True)
    file = made / "kustomization.yaml"
    file.write_text(re.sub(r"namespace: .*", f"namespace: {namespace}", file.read_text()))
    return made
