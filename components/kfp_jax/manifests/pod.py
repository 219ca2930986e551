"""The pod of a node: what TrainJobs and JobSets share."""

import posixpath
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kfp_jax import quantities
from kfp_jax.errors import SpecError
from kfp_jax.images import image
from kfp_jax.manifests.environment import NODE
from kfp_jax.manifests.identity import NO_SIDECAR
from kfp_jax.pods import Pods, Resources, Volume
from kfp_jax.spec import TrainSpec

SHM = "/dev/shm"  # between GPUs NCCL needs more than the 64 MiB of a container
TPU = "google.com/tpu"

# Both together are what the "restricted" Pod Security Standard asks for.
POD_SECURITY: Mapping[str, Any] = {
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
# Without any request a pod is the first that a full machine evicts. No limits: those who know what
# their program needs say so.
DEFAULT_REQUESTS: Mapping[str, str] = {"cpu": "1", "memory": "2Gi"}

# Whatever the mount says.
_READ_ONLY_KINDS = {"configMap", "downwardAPI", "image", "projected", "secret"}
_SECRET_LIKE = ("_TOKEN", "_KEY", "PASSWORD", "_SECRET")


@dataclass(frozen=True)
class Flavor:
    """What a kind of accelerator needs.

    Attributes:
        name: cpu, cuda or tpu; also the end of our image's and runtime's name.
        env: JAX_PLATFORMS, by which our runtime knows what was asked for: a program that does not
            find it fails, and does not train on CPU for a day.
        tolerations: Of the taint by which such machines keep other pods away.
        annotations: Of the JobSet.
    """

    name: str
    env: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def image(self) -> str:
        """Our image for it."""
        return image(f"trainer-{self.name}")


CPU = Flavor("cpu", {})
CUDA = Flavor(
    "cuda",
    {"JAX_PLATFORMS": "cuda,cpu"},
    ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},),
)
TPU_SLICE = Flavor(
    "tpu",
    {"JAX_PLATFORMS": "tpu,cpu"},
    ({"key": TPU, "operator": "Exists", "effect": "NoSchedule"},),
    # All hosts of one slice, and no other job's: a slice is a node pool on GKE.
    {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"},
)
FLAVORS = (CPU, CUDA, TPU_SLICE)


def flavor(pods: Pods) -> Flavor:
    """Returns the kind of accelerator that the pods ask for."""
    names = pods.resources.accelerators
    if TPU in names:
        return TPU_SLICE
    return CUDA if any(name.startswith("nvidia.com/") for name in names) else CPU


def pod_template(
    pods: Pods, kind: Flavor, *, labels: Mapping[str, str], container: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the pod template of a node.

    Args:
        pods: What is asked for.
        kind: The accelerator.
        labels: Of the pods, beside ours.
        container: What the node's container has beside what follows from `pods`.
    """
    return {
        "metadata": {"labels": {**labels, **NO_SIDECAR}},
        "spec": present(
            {
                "restartPolicy": "Never",  # one process alone cannot join the others again
                "serviceAccountName": pods.service_account,
                # The nodes have nothing to ask of the API server.
                "automountServiceAccountToken": False,
                "imagePullSecrets": pull_secrets(pods),
                "securityContext": dict(POD_SECURITY),
                "nodeSelector": dict(pods.node_selector),
                "tolerations": [dict(i) for i in (*kind.tolerations, *pods.tolerations)],
                "affinity": dict(pods.affinity),
                "containers": [
                    present(
                        {
                            "name": NODE,
                            "image": pods.image or kind.image,
                            **container,
                            "resources": resources(pods.resources, {"requests": DEFAULT_REQUESTS}),
                            "securityContext": dict(CONTAINER_SECURITY),
                            # For programs that do not write the termination log themselves.
                            "terminationMessagePolicy": "FallbackToLogsOnError",
                            "volumeMounts": mounts(pods.volumes, shm=True),
                        }
                    )
                ],
                "volumes": volumes(pods.volumes, shm=True),
            }
        ),
    }


def resources(asked: Resources, base: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what is asked for over what is there, requests and limits apart.

    The whole, because Trainer 2.2 replaces the runtime's by it where 2.3 merges.
    """
    requests = {**base.get("requests", {}), **asked.requests()}
    limits = {**base.get("limits", {}), **asked.limits()}
    return present({"requests": _canonical(requests), "limits": _canonical(limits)})


def _canonical(amounts: Mapping[str, Any]) -> dict[str, str]:
    return {name: quantities.canonical(str(amount)) for name, amount in amounts.items()}


def volumes(given: Sequence[Volume], *, shm: bool) -> list[dict[str, Any]]:
    """Returns the pod's volumes, each once however often it is mounted."""
    found = {item.name: {"name": item.name, **item.source} for item in given}
    return [*found.values(), *_shm({"emptyDir": {"medium": "Memory"}}, given, wanted=shm)]


def mounts(given: Sequence[Volume], *, shm: bool) -> list[dict[str, Any]]:
    """Returns where the container sees the volumes."""
    found = [
        present(
            {
                "name": item.name,
                "mountPath": item.mount_path,
                "subPath": item.sub_path,
                "readOnly": item.read_only or None,
            }
        )
        for item in given
    ]
    return [*found, *_shm({"mountPath": SHM}, given, wanted=shm)]


def pull_secrets(pods: Pods) -> list[dict[str, str]]:
    """Returns the references to the secrets for the image registry."""
    return [{"name": name} for name in pods.image_pull_secrets]


def present(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the mapping without what was not asked for: "", None, {} and []. Not deeper ones."""
    return {key: value for key, value in values.items() if value not in ("", None, {}, [])}


def is_on_volume(path: str, mount_paths: Iterable[str]) -> bool:
    """Returns whether a folder of the nodes is on one of the volumes that are mounted there."""
    return _root_of(path, mount_paths) is not None


def _root_of(path: str, mount_paths: Iterable[str]) -> str | None:
    """Returns which of these a folder is on: the deepest, as it hides the others there."""
    folder = f"{_collapsed(path)}/"
    roots = [root for root in mount_paths if folder.startswith(f"{_collapsed(root)}/")]
    return max(roots, key=lambda root: len(_collapsed(root)), default=None)


def _collapsed(path: str) -> str:
    return posixpath.normpath(f"/{path.lstrip('/')}").rstrip("/")


def read_only_paths(
    mounts: Iterable[Mapping[str, Any]], volumes: Iterable[Mapping[str, Any]]
) -> list[str]:
    """Returns where a container can only read a volume.

    Args:
        mounts: The container's.
        volumes: The pod's; those that are not among them may be written to.
    """
    named = {item["name"]: item for item in volumes}
    return [
        item["mountPath"]
        for item in mounts
        if item.get("readOnly") or _only_read(named.get(item["name"], {}))
    ]


def _only_read(volume: Mapping[str, Any]) -> bool:
    return any(
        kind in _READ_ONLY_KINDS or (isinstance(source, Mapping) and bool(source.get("readOnly")))
        for kind, source in volume.items()
    )


def check_folders(
    spec: TrainSpec, mount_paths: Sequence[str], read_only: Collection[str] = ()
) -> None:
    """Refuses folders that are lost with the pod. The user's own command writes where it likes.

    Args:
        spec: Names the folders.
        mount_paths: Where volumes are mounted in the nodes.
        read_only: Which of these the nodes can only read.

    Raises:
        SpecError: A folder is relative, or the results are on no volume, or on one that cannot be
            written to.
    """
    if spec.command:
        return
    folders = {
        "output_uri": spec.output_uri,
        "checkpoint_uri": spec.checkpoints,
        "shared_uri": spec.shared_uri,
        "dataset_uri": spec.dataset_uri,
    }
    for name, uri in folders.items():
        path = uri.removeprefix("file://")
        if not path or "://" in path:
            continue
        if not path.startswith("/"):
            raise SpecError(
                f"{name} {uri!r:.80} is relative to this machine's folder; on a cluster give an"
                " absolute path on a volume, or a URI."
            )
        if name == "dataset_uri":
            continue  # an image may bring data along; what is written into it goes with the pod
        root = _root_of(path, mount_paths)
        if root in read_only:
            raise SpecError(
                f"{name} {uri!r:.80} is on the volume at {root}, which the nodes can only read;"
                " give a folder on one that they can write to."
            )
        if root is None:
            roots = ", ".join(f"{root.rstrip('/')}/" for root in mount_paths)
            raise SpecError(
                f"{name} {uri!r:.80} is on no volume of the nodes, so it would be lost with them;"
                f" mount one there, or give a folder of {roots or 'an object store'}."
            )


def warnings(spec: TrainSpec) -> list[str]:
    """Returns what may not be meant, one sentence each."""
    return [
        f"env {name} looks like a secret, and everybody who may read the job sees it; give it by"
        " secret_env."
        for name in spec.env
        if name.upper().endswith(_SECRET_LIKE)
    ]


def _shm(item: Mapping[str, Any], given: Sequence[Volume], *, wanted: bool) -> list[dict[str, Any]]:
    theirs = any(volume.mount_path.rstrip("/") == SHM for volume in given)
    return [{"name": "kfp-jax-shm", **item}] if wanted and not theirs else []
