"""What end-to-end tests share: a real cluster, reached by KUBECONFIG alone. See README.md."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from e2e.jobs import left_in
from e2e.mnist import mnist, preparation
from e2e.places import (
    ACCOUNT,
    POD_SECURITY_LEVEL,
    ROOT,
    SHARED,
    Place,
    claim,
    kubectl,
    launcher_overlay,
    until,
    volume,
)
from kfp_jax.backends.local import LocalBackend
from kfp_jax.errors import NotFound
from kfp_jax.kube.access import find_access
from kfp_jax.kube.client import Client
from kfp_jax.kube.requests import Resource
from kfp_jax.kube.resources import CLAIMS, NAMESPACES
from kfp_jax.launch import launch
from kfp_jax.status import Outcome, Phase

HERE = Path(__file__).parent
ACCOUNTS = Resource("", "v1", "serviceaccounts")
VOLUMES = Resource("", "v1", "persistentvolumes")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(300))


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


@pytest.fixture(scope="session")
def shared() -> Iterator[Path]:
    """A folder of this session's own that tests and pods see under one path; any user writes."""
    folder = SHARED / f"session-{secrets.token_hex(4)}"
    umask = os.umask(0)
    SHARED.mkdir(exist_ok=True)
    folder.mkdir()
    yield folder
    os.umask(umask)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def dataset(shared: Path) -> Path:
    """MNIST's examples that come with the package, prepared."""
    outcome = launch(preparation(shared / "prepared"), LocalBackend())
    assert outcome.phase is Phase.SUCCEEDED, outcome.message
    return shared / "prepared" / "dataset"


@pytest.fixture(scope="session")
def local_outcome(shared: Path, dataset: Path) -> Outcome:
    """What the training gives on this machine, with two processes."""
    outcome = launch(mnist(shared / "local", dataset), LocalBackend())
    assert outcome.phase is Phase.SUCCEEDED, outcome.message
    return outcome


@pytest.fixture
def nothing_is_left(place: Place) -> Iterator[None]:
    """Holds a test to this: after it nothing of its jobs is in the namespace."""
    yield
    until("nothing is left", lambda: not left_in(place))


@pytest.fixture
def place(client: Client, manifests: Path, shared: Path) -> Iterator[Place]:
    """A fresh namespace with the launcher's account and rights; it is removed afterwards."""
    name = f"kfp-jax-e2e-{secrets.token_hex(4)}"
    folder = shared / name
    folder.mkdir()
    labels = {POD_SECURITY_LEVEL: "restricted"}
    client.create(NAMESPACES, "", {"metadata": {"name": name, "labels": labels}})
    place = Place(client, name, folder)
    try:
        client.create(VOLUMES, "", volume(name))
        place.create(CLAIMS, claim(name))
        place.create(ACCOUNTS, {"metadata": {"name": ACCOUNT}})
        kubectl("apply", "--server-side", "-k", str(launcher_overlay(manifests, name)))
        yield place
    finally:
        client.delete(NAMESPACES, "", name)
        with suppress(NotFound):
            client.delete(VOLUMES, "", name)
