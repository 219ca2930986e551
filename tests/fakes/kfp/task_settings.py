"""What is set on a task, and which of it is for the job that the task launches."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from fakes.kfp.ir import DriverError, Json
from fakes.kfp.values import normal, text

_PLATFORM = {
    "configMapAsEnv", "emptyDirMounts", "fieldPathAsEnv", "imagePullPolicy", "nodeAffinity",
    "nodeSelector", "podMetadata", "pvcMount", "secretAsEnv", "secretAsVolume", "securityContext",
    "tolerations", "activeDeadlineSeconds",
}  # fmt: skip
_FIELDS = (
    "RESOURCES",
    "ENV",
    "KUBERNETES_AFFINITY",
    "KUBERNETES_TOLERATIONS",
    "KUBERNETES_NODE_SELECTOR",
    "KUBERNETES_VOLUMES",
)


@dataclass(frozen=True)
class Settings:
    """What is set on a task: what its pod gets, or the job that it launches."""

    resources: Json = field(default_factory=dict)
    env: tuple[Json, ...] = ()
    affinity: Json | None = None
    tolerations: tuple[Json, ...] = ()
    node_selector: Json | None = None
    volumes: tuple[Json, ...] = ()
    mounts: tuple[Json, ...] = ()

    def only(self, fields: set[str]) -> "Settings":
        """Returns what of this belongs to fields of a TaskConfig."""
        nothing = Settings()
        names = {
            "RESOURCES": ("resources",),
            "ENV": ("env",),
            "KUBERNETES_AFFINITY": ("affinity",),
            "KUBERNETES_TOLERATIONS": ("tolerations",),
            "KUBERNETES_NODE_SELECTOR": ("node_selector",),
            "KUBERNETES_VOLUMES": ("volumes", "mounts"),
        }
        dropped = [name for key in _FIELDS if key not in fields for name in names[key]]
        return replace(self, **{name: getattr(nothing, name) for name in dropped})

    def task_config(self) -> Json:
        """Returns the TaskConfig as a component gets it: what is unset is null, but not all."""
        return {
            "affinity": self.affinity,
            "tolerations": list(self.tolerations) or None,
            "nodeSelector": self.node_selector,
            "env": list(self.env),
            "volumes": list(self.volumes) or None,
            "volumeMounts": list(self.mounts) or None,
            "resources": self.resources,
        }


Resolve = Callable[[Json], Any]
"""From an input's source in a spec to its value in the scope of the task."""


def settings_of(container: Json, platform: Json, inputs: Json, resolve: Resolve) -> Settings:
    """Returns all that is set on a task.

    Args:
        container: Its executor's container.
        platform: Of the same executor, by `kfp.kubernetes`.
        inputs: Its input parameters, which resources may name.
        resolve: Reads what the platform settings name.
    """
    unknown = set(platform) - _PLATFORM
    if unknown:
        raise DriverError(f"the double leaves out {', '.join(sorted(unknown))}")
    volumes, mounts = _volumes(platform, resolve)
    return Settings(
        resources=_resources(container.get("resources", {}), inputs),
        env=(*container.get("env", ()), *_variables(platform, resolve)),
        affinity=_affinity(platform),
        tolerations=tuple(platform.get("tolerations", ())),
        node_selector=platform.get("nodeSelector", {}).get("labels"),
        volumes=tuple(volumes),
        mounts=tuple(mounts),
    )


def passed_on(component: Json, settings: Settings) -> tuple[Settings, Settings]:
    """Returns what the task's own pod gets of its settings, and what goes into its TaskConfig."""
    passthroughs = component.get("taskConfigPassthroughs", ())
    passed = {item["field"] for item in passthroughs}
    both = {item["field"] for item in passthroughs if item.get("applyToTask")}
    return settings.only(set(_FIELDS) - passed | both), settings.only(passed)


def _resources(given: Json, inputs: Json) -> Json:
    def amount(name: str) -> str:
        return filled(str(given.get(name, "")), inputs)

    limits = {"cpu": amount("resourceCpuLimit"), "memory": amount("resourceMemoryLimit")}
    requests = {"cpu": amount("resourceCpuRequest"), "memory": amount("resourceMemoryRequest")}
    device = given.get("accelerator", {})
    if device:
        limits[filled(device["resourceType"], inputs)] = filled(device["resourceCount"], inputs)
    found = {
        "limits": {key: value for key, value in limits.items() if value},
        "requests": {key: value for key, value in requests.items() if value},
    }
    return {key: value for key, value in found.items() if value}


def filled(template: str, inputs: Json) -> str:
    return re.sub(
        r"\{\{\$\.inputs\.parameters\['([^']+)'\]\}\}",
        lambda found: text(inputs[found[1]]),
        template,
    )


def _named(source: Json, name: str, resolve: Resolve) -> str:
    """Returns the name of a secret and the like, which may be a parameter."""
    if parameter := source.get(f"{name}Parameter"):
        return str(resolve(parameter))
    return str(source[name])


def _variables(platform: Json, resolve: Resolve) -> list[Json]:
    found: list[Json] = []
    for kind, name, key, reference in (
        ("secretAsEnv", "secretName", "secretKey", "secretKeyRef"),
        ("configMapAsEnv", "configMapName", "configMapKey", "configMapKeyRef"),
    ):
        for source in platform.get(kind, ()):
            where = _named(source, name, resolve)
            found += [
                {
                    "name": item["envVar"],
                    "valueFrom": {reference: {"name": where, "key": item[key]}},
                }
                for item in source["keyToEnv"]
            ]
    found += [
        {"name": item["name"], "valueFrom": {"fieldRef": {"fieldPath": item["fieldPath"]}}}
        for item in platform.get("fieldPathAsEnv", ())
    ]
    return found


def _volumes(platform: Json, resolve: Resolve) -> tuple[list[Json], list[Json]]:
    volumes: list[Json] = []
    mounts: list[Json] = []
    for claim in platform.get("pvcMount", ()):
        name = (
            str(resolve(claim["pvcNameParameter"]))
            if "pvcNameParameter" in claim
            else str(claim["constant"])
        )
        mount = {"name": name, "mountPath": claim["mountPath"]}
        mounts.append(mount | ({"subPath": claim["subPath"]} if claim.get("subPath") else {}))
        volumes.append({"name": name, "persistentVolumeClaim": {"claimName": name}})
    for secret in platform.get("secretAsVolume", ()):
        name = _named(secret, "secretName", resolve)
        mounts.append({"name": name, "mountPath": secret["mountPath"]})
        optional = bool(secret.get("optional"))
        volumes.append({"name": name, "secret": {"secretName": name, "optional": optional}})
    return volumes, mounts


def _affinity(platform: Json) -> Json | None:
    terms = [
        {
            "matchExpressions": [
                {key: item[key] for key in ("key", "operator", "values") if key in item}
                for item in term["matchExpressions"]
            ]
        }
        for term in platform.get("nodeAffinity", ())
    ]
    if not terms:
        return None
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


def with_task_config(given: Json, component: Json, passed: Settings) -> Json:
    """Returns the executor input with the TaskConfig, where the component takes one."""
    parameters = component.get("inputDefinitions", {}).get("parameters", {})
    names = [key for key, item in parameters.items() if item["parameterType"] == "TASK_CONFIG"]
    if not names:
        return given
    values = given["inputs"].get("parameterValues", {})
    config = {name: normal(passed.task_config()) for name in names}
    inputs = {**given["inputs"], "parameterValues": {**values, **config}}
    return {**given, "inputs": inputs}
