"""The pod of a task, as driver and Argo's template make it together."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fakes.kfp.ir import DriverError, Json
from fakes.kfp.values import normal, text, to_json

LAUNCHER = "/kfp-launcher"
# Folders that every task may write to, whoever it runs as.
SCRATCH = ("/gcs", "/s3", "/minio", "/.local", "/.cache", "/.config", "/var/run/argo")
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
class Site:
    """What an administrator's cluster adds to every task's pod.

    Attributes:
        workflow: The run's Workflow object, which owns the pods.
        account: The pods' service account.
        launcher: ConfigMap with the launcher's files.
        store: Secret that tells the launcher of its object store; else artifacts are in a volume.
        minio: Volume that artifacts are in where there is no store; {"emptyDir": {}} by default.
        user: Whom the containers run as; by default whom the image says.
        read_only_root: Whether a policy takes the root file system from them.
    """

    workflow: Mapping[str, Any]
    account: str = "pipeline-runner"
    launcher: str = "kfp-launcher"
    store: str = ""
    minio: Mapping[str, Any] = field(default_factory=lambda: {"emptyDir": {}})
    user: int | None = None
    read_only_root: bool = False


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
        return _filled(str(given.get(name, "")), inputs)

    limits = {"cpu": amount("resourceCpuLimit"), "memory": amount("resourceMemoryLimit")}
    requests = {"cpu": amount("resourceCpuRequest"), "memory": amount("resourceMemoryRequest")}
    device = given.get("accelerator", {})
    if device:
        limits[_filled(device["resourceType"], inputs)] = _filled(device["resourceCount"], inputs)
    found = {
        "limits": {key: value for key, value in limits.items() if value},
        "requests": {key: value for key, value in requests.items() if value},
    }
    return {key: value for key, value in found.items() if value}


def _filled(template: str, inputs: Json) -> str:
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


def pod(
    name: str,
    run: str,
    root: str,
    site: Site,
    component: Json,
    container: Json,
    platform: Json,
    own: Settings,
    given: Json,
) -> Json:
    """Returns the manifest of a task's pod.

    Args:
        name: The pod's.
        run: The run's id.
        root: Where the run's artifacts are.
        site: What the cluster adds.
        component: The task's component.
        container: Its executor's container.
        platform: Of the same executor, by `kfp.kubernetes`.
        own: The settings that are the pod's own.
        given: The executor input.
    """
    owner = site.workflow
    workflow = owner["metadata"]["name"]
    empty = platform.get("emptyDirMounts", ())
    scratch = [
        {"name": f"scratch-{number}", **(site.minio if path == "/minio" else {"emptyDir": {}})}
        for number, path in enumerate(SCRATCH)
    ]
    volumes = [
        *scratch,
        {"name": "kfp-launcher", "configMap": {"name": site.launcher}},
        *([{"name": "kfp-store", "secret": {"secretName": site.store}}] if site.store else ()),
        *({"name": item["volumeName"], "emptyDir": {}} for item in empty),
        *own.volumes,
    ]
    mounts = [
        *({"name": f"scratch-{n}", "mountPath": path} for n, path in enumerate(SCRATCH)),
        {"name": "kfp-launcher", "mountPath": LAUNCHER},
        *([{"name": "kfp-store", "mountPath": f"{LAUNCHER}-store"}] if site.store else ()),
        *({"name": item["volumeName"], "mountPath": item["mountPath"]} for item in empty),
        *own.mounts,
    ]
    command = [
        "python3", f"{LAUNCHER}/argoexec.py", "python3", f"{LAUNCHER}/launch.py",
        "--run_id", run, "--pipeline_root", root,
        "--executor_input", to_json(given), "--component_spec", to_json(component), "--",
    ]  # fmt: skip
    main = {
        "name": "main",
        "image": _filled(container["image"], given["inputs"].get("parameterValues", {})),
        "command": command,
        "args": [*container["command"], *container.get("args", ())],
        "env": [*_argo_variables(name), *own.env],
        "resources": own.resources,
        "volumeMounts": mounts,
        "securityContext": _security(platform, site),
    }
    if policy := platform.get("imagePullPolicy"):
        main["imagePullPolicy"] = policy
    spec: Json = {
        "restartPolicy": "Never",
        "serviceAccountName": site.account,
        "containers": [main],
        "volumes": volumes,
        "tolerations": list(own.tolerations),
        "nodeSelector": own.node_selector or {},
        "affinity": own.affinity or {},
        "enableServiceLinks": False,
    }
    if deadline := platform.get("activeDeadlineSeconds"):
        spec["activeDeadlineSeconds"] = int(deadline)
    metadata = platform.get("podMetadata", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {
                **metadata.get("labels", {}),
                "pipeline/runid": run,
                "pipelines.kubeflow.org/v2_component": "true",
                "workflows.argoproj.io/workflow": workflow,
            },
            "annotations": {
                **metadata.get("annotations", {}),
                "workflows.argoproj.io/node-name": f"{workflow}.{name}",
            },
            "ownerReferences": [
                {
                    "apiVersion": owner["apiVersion"],
                    "kind": owner["kind"],
                    "name": workflow,
                    "uid": owner["metadata"]["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": spec,
    }


def _argo_variables(name: str) -> list[Json]:
    fields = [
        {
            "name": f"KFP_POD_{key.upper()}",
            "valueFrom": {"fieldRef": {"fieldPath": f"metadata.{key}"}},
        }
        for key in ("name", "uid")
    ]
    return [
        *fields,
        {"name": "ARGO_NODE_ID", "value": name},
        {"name": "ARGO_DEADLINE", "value": "0001-01-01T00:00:00Z"},
        {"name": "ARGO_PROGRESS_FILE", "value": "/var/run/argo/progress"},
    ]


def _security(platform: Json, site: Site) -> Json:
    """Returns the main container's; what an administrator set is not for a task to change."""
    said = platform.get("securityContext", {})
    asked = {
        key: int(said[key]) if key != "runAsNonRoot" else said[key]
        for key in ("runAsUser", "runAsGroup", "runAsNonRoot")
        if key in said
    }
    return {
        **asked,
        **({"runAsUser": site.user} if site.user is not None else {}),
        **({"readOnlyRootFilesystem": True} if site.read_only_root else {}),
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
