"""Where an end-to-end test works, and how it looks at the cluster."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp_jax.errors import NotFound
from kfp_jax.kube.client import Client
from kfp_jax.kube.requests import Resource
from kfp_jax.kube.resources import NAMESPACES, PODS
from kfp_jax.manifests.environment import NODE

ROOT = Path(__file__).parents[2]
SHARED = Path("/tmp/kfp-jax-e2e")  # cluster/kustomization.yaml mounts it
ACCOUNT = "pipeline-runner"
CLAIM = "shared"  # in each place: SHARED, as no hostPath is admitted there
POD_SECURITY_LEVEL = "pod-security.kubernetes.io/enforce"


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

    def admit(self, level: str) -> None:
        """Sets the Pod Security Standard of the namespace, "restricted" from its start."""
        changes = {"metadata": {"labels": {POD_SECURITY_LEVEL: level}}}
        self.client.patch(NAMESPACES, "", self.namespace, changes)

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


def account(place: Place, name: str, folder: Path) -> str:
    """Returns a kubeconfig of a service account, with a real token."""
    token = kubectl("create", "token", name, "-n", place.namespace).strip()
    config = yaml.safe_load(kubectl("config", "view", "--raw", "--minify"))
    config["users"][0]["user"] = {"token": token}
    path = folder / f"kubeconfig-{name}"
    path.write_text(yaml.safe_dump(config))
    return str(path)


def require_kueue(client: Client) -> None:
    """Skips a test where there is no Kueue; in CI it fails."""
    if client.versions("kueue.x-k8s.io"):
        return
    message = "this cluster has no Kueue; start it with one, see tests/e2e/README.md"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def volume(namespace: str) -> dict[str, Any]:
    """Returns the volume of a place's claim: the folder that tests and pods see."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": namespace, "name": CLAIM},
            "hostPath": {"path": str(SHARED)},
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
        },
    }


def claim(namespace: str) -> dict[str, Any]:
    """Returns the claim of that volume."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "",
            "volumeName": namespace,
        },
    }


def launcher_overlay(manifests: Path, namespace: str, *, overlay: str = "standalone") -> Path:
    """Returns an overlay with a launcher's rights in a namespace, made as the README says."""
    shipped = manifests / "overlays" / overlay / "launcher"
    made = shutil.copytree(shipped, shipped.parent / namespace, dirs_exist_ok=True)
    file = made / "kustomization.yaml"
    file.write_text(re.sub(r"namespace: .*", f"namespace: {namespace}", file.read_text()))
    return made
