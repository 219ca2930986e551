"""The pod of a task, as driver and Argo's template make it together."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fakes.kfp.ir import Json
from fakes.kfp.task_settings import Settings, filled
from fakes.kfp.values import to_json

LAUNCHER = "/kfp-launcher"
# Folders that every task may write to, whoever it runs as.
SCRATCH = ("/gcs", "/s3", "/minio", "/.local", "/.cache", "/.config", "/var/run/argo")


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
        "image": filled(container["image"], given["inputs"].get("parameterValues", {})),
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
