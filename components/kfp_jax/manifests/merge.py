"""Kubernetes' strategic merge, as far as pods, Jobs and JobSets need it."""

from collections.abc import Mapping
from typing import Any

from kfp_jax.errors import SpecError

# Lists whose items have a name. Every other list, tolerations among them, is replaced whole.
_KEYS = {
    "containers": "name",
    "env": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ports": "containerPort",
    "replicatedJobs": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
_DIRECTIVE = "$patch"


def strategic_merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `base` with `patch` merged over it; neither is changed.

    A null removes a key. `{"$patch": "delete"}` in an item of a named list removes that item, and
    `{"$patch": "replace"}` in a mapping takes the patch's mapping as it is.

    Raises:
        SpecError: An item of a named list lacks its key, or a directive is unknown.
    """
    directive = patch.get(_DIRECTIVE, "merge")
    if directive not in ("merge", "replace"):
        raise SpecError(
            f"patch holds {_DIRECTIVE}: {directive!r:.40}; give replace, or delete in an item of a"
            " list."
        )
    merged = {} if directive == "replace" else dict(base)
    for key, value in patch.items():
        if key == _DIRECTIVE:
            continue
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge_value(key, merged.get(key), value)
    return merged


def _merge_value(key: str, base: Any, patch: Any) -> Any:
    if isinstance(patch, Mapping):
        return strategic_merge(base if isinstance(base, Mapping) else {}, patch)
    if isinstance(patch, list) and key in _KEYS:
        return _merge_list(key, base if isinstance(base, list) else [], patch)
    return patch


def _merge_list(key: str, base: list[Any], patch: list[Any]) -> list[Any]:
    name = _KEYS[key]
    merged = {item[name]: item for item in base}
    for item in patch:
        if not isinstance(item, Mapping) or name not in item:
            raise SpecError(f"patch has an item without {name} in {key}: {item!r:.60}; name it.")
        if item.get(_DIRECTIVE) == "delete":
            merged.pop(item[name], None)
        else:
            merged[item[name]] = strategic_merge(merged.get(item[name], {}), item)
    return list(merged.values())
