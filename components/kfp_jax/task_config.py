"""What a pipeline's author has set on a launching task, for the pods of its job. Pure.

KFP hands it over as a `TaskConfig`: fragments of a pod, as Kubernetes writes them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kfp_jax.errors import SpecError
from kfp_jax.images import PREFIX_VARIABLE
from kfp_jax.pods import Pods, Resources, Volume

_FIELDS = (
    "affinity",
    "tolerations",
    "node_selector",
    "env",
    "volumes",
    "volume_mounts",
    "resources",
)


@dataclass(frozen=True)
class JobSettings:
    """What a job gets from its task.

    Attributes:
        pods: What its pods are.
        env: More variables for every process.
    """

    pods: Pods = field(default_factory=Pods)
    env: Mapping[str, str] = field(default_factory=dict)


def job_settings(task_config: object, pods: Mapping[str, Any]) -> JobSettings:
    """Returns the settings of a job; what was set on the task wins over `pods`.

    Args:
        task_config: KFP's, or anything with its attributes; all None on one machine.
        pods: JSON of `kfp_jax.pods.Pods`.

    Raises:
        SpecError: A value is wrong, or has no place in a job.
    """
    base = Pods.from_json(pods)
    given = {name: getattr(task_config, name, None) or None for name in _FIELDS}
    env, secrets = _variables(given["env"] or ())
    volumes = _volumes(given["volumes"] or (), given["volume_mounts"] or ())
    return JobSettings(
        replace(
            base,
            resources=_resources(given["resources"] or {}, base.resources),
            node_selector={**base.node_selector, **(given["node_selector"] or {})},
            tolerations=(*base.tolerations, *(given["tolerations"] or ())),
            affinity=given["affinity"] or base.affinity,
            volumes=(*base.volumes, *volumes),
            secret_env={**base.secret_env, **secrets},
        ),
        env,
    )


def _resources(given: Mapping[str, Any], base: Resources) -> Resources:
    limits, requests = (dict(given.get(name) or {}) for name in ("limits", "requests"))
    cpu_limit, memory_limit = (str(limits.pop(name, "")) for name in ("cpu", "memory"))
    cpu, memory = (str(requests.pop(name, "")) for name in ("cpu", "memory"))
    for name, count in requests.items():
        if limits.setdefault(name, count) != count:
            raise SpecError(
                f"The task asks for {count} {name} and limits it to {limits[name]}; give one"
                " number: a device is not shared."
            )
    return replace(
        base,
        cpu=cpu or cpu_limit or base.cpu,
        memory=memory or memory_limit or base.memory,
        cpu_limit=cpu_limit or base.cpu_limit,
        memory_limit=memory_limit or base.memory_limit,
        accelerators=limits or base.accelerators,
    )


def _variables(items: Iterable[Mapping[str, Any]]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns variables with their values, and those from secrets as "secret/key"."""
    values: dict[str, str] = {}
    secrets: dict[str, str] = {}
    for item in items:
        name, source = item["name"], item.get("valueFrom") or {}
        if name == PREFIX_VARIABLE:  # ours, and of use to the task alone
            continue
        if not source:
            values[name] = item.get("value") or ""
        elif reference := source.get("secretKeyRef"):
            secrets[name] = f"{reference['name']}/{reference['key']}"
        elif "fieldRef" not in source:  # of the task's pod, and meant for that
            raise SpecError(
                f"Variable {name} of the task comes from {', '.join(source)}; a job takes values"
                " and secrets."
            )
    return values, secrets


def _volumes(
    volumes: Iterable[Mapping[str, Any]], mounts: Iterable[Mapping[str, Any]]
) -> list[Volume]:
    sources = {
        item["name"]: {key: value for key, value in item.items() if key != "name"}
        for item in volumes
    }
    found = []
    for mount in mounts:
        name = mount["name"]
        if name not in sources:
            raise SpecError(f"The task mounts volume {name}, which it does not have.")
        found.append(
            Volume(
                name=name,
                mount_path=mount["mountPath"],
                source=sources[name],
                sub_path=mount.get("subPath") or "",
                read_only=bool(mount.get("readOnly")),
            )
        )
    return found
