"""pvc://CLAIM/path: a folder of a job on a claim, which its pods then mount. Pure."""

import re
from dataclasses import replace
from typing import Any, Final

from kfp_jax.errors import SpecError
from kfp_jax.pods import Pods, Volume
from kfp_jax.spec import CLAIM_SCHEME, TrainSpec

_MOUNTED: Final = "/mnt/kfp-jax"
_CLAIM = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def on_claims(spec: TrainSpec) -> TrainSpec:
    """Returns the job with each pvc:// URI as the folder that its pods see, and the claims mounted.

    A claim that `pods` mounts anyway is not mounted twice.

    Raises:
        SpecError: A URI names no claim, or a folder above it.
    """
    pods = spec.pods
    folders: dict[str, Any] = {}
    for name in ("output_uri", "checkpoint_uri", "dataset_uri", "shared_uri"):
        uri = getattr(spec, name)
        if uri.startswith(CLAIM_SCHEME):
            claim, path = _parts(name, uri)
            root, pods = _mounted(claim, pods)
            folders[name] = f"{root}/{path}".rstrip("/")
    return replace(spec, pods=pods, **folders) if folders else spec


def _parts(name: str, uri: str) -> tuple[str, str]:
    claim, _, path = uri.removeprefix(CLAIM_SCHEME).partition("/")
    path = path.strip("/")
    odd = path and any(part in ("", ".", "..") for part in path.split("/"))
    if not _CLAIM.fullmatch(claim) or odd:
        raise SpecError(
            f"{name} {uri!r:.200} is not a folder on a claim; write pvc://claim/folder, without"
            " empty parts, '.' or '..'."
        )
    return claim, path


def _mounted(claim: str, pods: Pods) -> tuple[str, Pods]:
    """Returns where the pods see the whole claim, and the pods, which mount it there."""
    source = {"persistentVolumeClaim": {"claimName": claim}}
    for volume in pods.volumes:
        named = volume.source.get("persistentVolumeClaim", {}).get("claimName")
        if named == claim and not volume.sub_path and not volume.read_only:
            return volume.mount_path.rstrip("/"), pods
    known = [volume.name for volume in pods.volumes]
    name = next(n for i in range(len(known) + 1) if (n := f"kfp-jax-claim-{i}") not in known)
    made = Volume(name=name, mount_path=f"{_MOUNTED}/{claim}", source=source)
    return made.mount_path, replace(pods, volumes=(*pods.volumes, made))
