"""A job as a TrainJob of Kubeflow Trainer 2.2 or newer."""

from collections.abc import Mapping
from typing import Any

from kfp_jax.errors import SpecError
from kfp_jax.manifests import environment
from kfp_jax.manifests.dialect import Dialect
from kfp_jax.manifests.identity import (
    NO_SIDECAR,
    PREFIX,
    Identity,
    labels,
    metadata,
    queue_labels,
)
from kfp_jax.manifests.jobset import backstop
from kfp_jax.manifests.pod import (
    CONTAINER_SECURITY,
    POD_SECURITY,
    SHM,
    check_folders,
    flavor,
    mounts,
    present,
    pull_secrets,
    read_only_paths,
    resources,
    volumes,
)
from kfp_jax.manifests.runtime import (
    API_VERSION,
    GROUP,
    NAMESPACED_KIND,
    RuntimeRef,
    check_runtime,
    ref_of,
)
from kfp_jax.manifests.template import check_pod_names, node_container
from kfp_jax.manifests.tpu import check_slice
from kfp_jax.pods import Resources
from kfp_jax.spec import TrainSpec

PATCH_MANAGER = f"{PREFIX}/launcher"


def trainjob(
    spec: TrainSpec, identity: Identity, *, runtime: Mapping[str, Any], dialect: Dialect
) -> dict[str, Any]:
    """Returns the TrainJob to create.

    Args:
        spec: What to train.
        identity: Who the job is.
        runtime: The runtime that it refers to: of `own_runtime`, as the server has it, or of
            `assumed_runtime`.
        dialect: Of the server.

    Raises:
        SpecError: The job could not work on this runtime or server.
    """
    check_slice(spec)
    pod = check_runtime(runtime)
    ref = ref_of(runtime)
    own = ref == RuntimeRef(NAMESPACED_KIND, identity.name)
    container = node_container(pod)
    check_pod_names(identity.name, runtime.get("spec", {}).get("template", {}), spec.num_nodes)
    patch = {} if own else _pod_patch(spec, pod)
    if "spec" in runtime:
        check_folders(spec, mount_paths(spec, runtime), _read_only(spec, pod))
    trainer: dict[str, Any] = {
        # Without this block the JAX plugin sets nothing at all.
        "numNodes": spec.num_nodes,
        "image": spec.pods.image,
        "command": _command(spec, dialect),
        "env": environment.shared_env(spec, identity),
    }
    if not own and spec.pods.resources != Resources():
        trainer["resourcesPerNode"] = resources(spec.pods.resources, container.get("resources", {}))
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainJob",
        "metadata": metadata(identity, spec, more_labels=queue_labels(spec)),
        "spec": present(
            {
                "runtimeRef": {"apiGroup": GROUP, "kind": ref.kind, "name": ref.name},
                "trainer": present(trainer),
                "runtimePatches": [] if own else [_runtime_patch(identity, patch)],
                "activeDeadlineSeconds": backstop(spec),
            }
        ),
    }


def _command(spec: TrainSpec, dialect: Dialect) -> list[str]:
    command = environment.command(spec)
    for item in command:
        if len(item) > dialect.max_argument:
            raise SpecError(
                f"command argument {item!r:.40} has {len(item):,} characters, but Trainer {dialect}"
                f" takes at most {dialect.max_argument:,}; put it into a file."
            )
    return command


def _runtime_patch(identity: Identity, pod_patch: Mapping[str, Any]) -> dict[str, Any]:
    pod = {
        "metadata": {"labels": {**labels(identity), **NO_SIDECAR}},
        **present({"spec": pod_patch}),
    }
    node = {"name": environment.NODE, "template": {"spec": {"template": pod}}}
    return {
        "manager": PATCH_MANAGER,
        "trainingRuntimeSpec": {
            "template": {
                # Trainer gives the JobSet and the pods none of the TrainJob's labels.
                "metadata": {"labels": labels(identity)},
                "spec": {"replicatedJobs": [node]},
            }
        },
    }


def _pod_patch(spec: TrainSpec, pod: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the nodes have beyond the runtime's pod."""
    pods = spec.pods
    container = node_container(pod)
    shm = all(item.get("mountPath") != SHM for item in container.get("volumeMounts", ()))
    # A runtime that chose its security, a privileged one say, knows why.
    silent = not pod.get("securityContext") and not container.get("securityContext")
    present_tolerations = pod.get("tolerations", [])
    wanted = [*flavor(pods).tolerations, *pods.tolerations]
    tolerations = [dict(item) for item in wanted if item not in present_tolerations]
    return present(
        {
            "serviceAccountName": pods.service_account,
            "imagePullSecrets": pull_secrets(pods),
            "securityContext": dict(POD_SECURITY) if silent else None,
            "nodeSelector": dict(pods.node_selector),
            # This list is replaced whole, not merged.
            "tolerations": [*present_tolerations, *tolerations] if tolerations else None,
            "affinity": dict(pods.affinity),
            "volumes": volumes(pods.volumes, shm=shm),
            "containers": _container_patch(mounts(pods.volumes, shm=shm), silent=silent),
        }
    )


def _container_patch(places: list[dict[str, Any]], *, silent: bool) -> list[dict[str, Any]]:
    patch = present(
        {
            "securityContext": dict(CONTAINER_SECURITY) if silent else None,
            "volumeMounts": places,
        }
    )
    return [{"name": environment.NODE, **patch}] if patch else []


def _read_only(spec: TrainSpec, pod: Mapping[str, Any]) -> list[str]:
    """Returns where the nodes can only read a volume, the runtime's or the job's over it."""
    given = spec.pods.volumes
    places = [*node_container(pod).get("volumeMounts", ()), *mounts(given, shm=False)]
    return read_only_paths(
        {item["mountPath"]: item for item in places}.values(),
        [*pod.get("volumes", ()), *volumes(given, shm=False)],
    )


def mount_paths(spec: TrainSpec, runtime: Mapping[str, Any]) -> list[str]:
    """Returns where the nodes have volumes, as far as the runtime could be read."""
    places = node_container(check_runtime(runtime)).get("volumeMounts", ())
    return [*(item["mountPath"] for item in places), *(i.mount_path for i in spec.pods.volumes)]
