"""What we send and what we ship is taken by a real API server, with every field known to it."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.places import ROOT, Place, kubectl, launcher_overlay, require_kueue
from kfp_jax.kube.requests import Resource
from kfp_jax.kube.resources import JOBSETS, RUNTIMES, TRAINJOBS

GOLDEN = sorted((ROOT / "tests" / "golden" / "manifests").glob("*.yaml"))
KINDS = {"TrainJob": TRAINJOBS, "TrainingRuntime": RUNTIMES, "JobSet": JOBSETS}
OVERLAYS = ("standalone", "multi-user", "standalone-queued", "multi-user-queued")


def kind_of(manifest: dict[str, Any]) -> Resource:
    kind = KINDS[manifest["kind"]]
    assert manifest["apiVersion"] == f"{kind.group}/{kind.version}"
    return kind


@pytest.mark.parametrize("file", GOLDEN, ids=lambda path: path.stem)
def test_a_golden_manifest_is_accepted(place: Place, file: Path) -> None:
    *before, job = yaml.safe_load_all(file.read_text())
    for runtime in before:  # a TrainJob is refused while its runtime is not there
        place.create(kind_of(runtime), runtime, dry_run=True)
        place.create(kind_of(runtime), runtime)
    stored = place.create(kind_of(job), job, dry_run=True)
    assert stored["metadata"]["name"] == job["metadata"]["name"]
    assert place.is_gone(kind_of(job), job["metadata"]["name"])


def dry_run(overlay: Path) -> str:
    return kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict",
        "-k", str(overlay),
    )  # fmt: skip


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_is_accepted(place: Place, manifests: Path, name: str) -> None:
    if name.endswith("-queued"):
        require_kueue(place.client)
    said = dry_run(manifests / "base" / "runtimes")
    assert all(f"kfp-jax-{name} " in said for name in ("cpu", "cuda", "tpu", "view-runtimes"))
    said = dry_run(launcher_overlay(manifests, place.namespace, overlay=name))
    assert "role.rbac.authorization.k8s.io/kfp-jax-launcher " in said
    assert "rolebinding.rbac.authorization.k8s.io/kfp-jax-launcher " in said
    assert "networkpolicy.networking.k8s.io/kfp-jax-nodes " in said
    assert ("localqueue.kueue.x-k8s.io/training " in said) == name.endswith("-queued")


def test_a_gang_is_accepted(place: Place, manifests: Path) -> None:
    overlay = manifests / "overlays" / place.namespace
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text(
        "resources: [../../base/runtimes]\ncomponents: [../../components/gang]\n"
    )
    assert "serverside-applied (server dry run)" in dry_run(overlay)
