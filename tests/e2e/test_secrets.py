"""A secret is with the processes that need it and nowhere else, while they run and afterwards."""

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from e2e.jobs import BACKENDS
from e2e.mnist import PODS, SMALL
from e2e.places import Place, kubectl, until
from kfp_jax.kube.requests import Resource
from kfp_jax.pods import Pods

SECRETS = Resource("", "v1", "secrets")
# All that a launcher or a controller makes of a job.
KINDS = (
    "trainjobs,trainingruntimes,jobsets,jobs,pods,services,configmaps,events,controllerrevisions"
)


def with_it(name: str, value: str) -> list[str]:
    """Returns the command lines of processes, here and in pods, whose file in /proc has it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if value.encode() in (folder / name).read_bytes():
                found.append((folder / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:  # it has ended, or is not ours to look at
            continue
    return found


def files_with(folder: Path, value: str) -> list[str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return [str(path) for path in files if value.encode() in path.read_bytes()]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("epochs", [1, 0], ids=["succeeds", "fails"])
def test_a_secret_is_in_no_object_no_command_line_no_log_and_no_file(
    place: Place, dataset: Path, backend: str, epochs: int
) -> None:
    value = secrets.token_hex(20)
    place.create(SECRETS, {"metadata": {"name": "hub"}, "stringData": {"token": value}})
    pods = Pods(resources=PODS.resources, volumes=PODS.volumes, secret_env={"HUB": "hub/token"})
    asked = {
        "volumes": [
            {"name": v.name, "mount_path": v.mount_path, "source": v.source} for v in pods.volumes
        ],
        "resources": {"cpu": "200m", "memory": "256Mi", "memory_limit": "2Gi"},
        "secret_env": dict(pods.secret_env),
    }
    output = place.folder / "out"
    parameters = {**SMALL, "epochs": epochs, "channels": [8]}
    command = [
        sys.executable, "-c", "from kfp_jax.cli import main; main()", "run",
        "--backend", backend, "--namespace", place.namespace,
        "--program", "kfp_jax_runtime.mnist", "--nodes", "2", "--dataset", str(dataset),
        "--pods", json.dumps(asked), "--output", str(output), "--json",
    ]  # fmt: skip
    for name, item in parameters.items():
        command += ["-p", f"{name}={json.dumps(item)}"]
    launcher = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ
    )
    try:
        # The test is worth something: the program does have it.
        until("the program has it", lambda: with_it("environ", value), seconds=60)
        objects = kubectl("get", KINDS, "-n", place.namespace, "-o", "yaml")
        assert with_it("cmdline", value) == []
        assert value not in objects
        assert "secretKeyRef" in objects
        told, _ = launcher.communicate(timeout=120)
    finally:
        launcher.kill()
        launcher.wait()
    assert (launcher.returncode == 0) == (epochs == 1), told
    assert (output / "result.json").exists()
    assert value not in told
    assert files_with(place.folder, value) == []
    assert value not in kubectl("get", KINDS, "-n", place.namespace, "-o", "yaml")
