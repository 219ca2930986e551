"""What a job's pods are on a cluster: image, resources, place, volumes. JSON both ways."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from kfp_jax import quantities
from kfp_jax.checks import (
    as_text,
    json_object,
    known_keys,
    listed,
    mapping,
    needed_keys,
    text,
    whole,
)
from kfp_jax.errors import SpecError

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL)
_DNS_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_EXTENDED_RESOURCE = re.compile(rf"{_LABEL}(\.{_LABEL})*/[A-Za-z0-9]([-\w.]{{0,61}}[A-Za-z0-9])?")
_RUNTIME = re.compile(
    rf"((Cluster)?TrainingRuntime/)?{_LABEL}(\.{_LABEL})*",
)
_SECRET_KEY = re.compile(rf"{_LABEL}(\.{_LABEL})*/[-\w.]+")
_VOLUME_NEEDS = ("name", "mount_path", "source")
_VOLUMES = (
    '[{"name": "data", "mount_path": "/data", "source": {"persistentVolumeClaim":'
    ' {"claimName": "data"}}}]'
)
_TOLERATION = ("key", "operator", "value", "effect", "tolerationSeconds")
MAX_IMAGE = 500  # what a TrainJob takes


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What one node asks for. What is not asked for is left to the runtime.

    Attributes:
        cpu: Cores, such as "4" or "500m".
        memory: Bytes with a unit, such as "16Gi".
        cpu_limit: Most cores; by default `cpu`.
        memory_limit: Most memory; by default `memory`.
        accelerators: Device resources and their number, such as {"nvidia.com/gpu": 4}.
    """

    cpu: str = ""
    memory: str = ""
    cpu_limit: str = ""
    memory_limit: str = ""
    accelerators: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("cpu", "cpu_limit"):
            object.__setattr__(self, name, quantities.cpu(name, getattr(self, name)))
        for name in ("memory", "memory_limit"):
            object.__setattr__(self, name, quantities.memory(name, getattr(self, name)))
        for name in ("cpu", "memory"):
            _check_limit(name, getattr(self, name), getattr(self, f"{name}_limit"))
        counts = {}
        for name, count in mapping("accelerators", self.accelerators).items():
            if not _EXTENDED_RESOURCE.fullmatch(name):
                raise SpecError(
                    f"accelerators names {name!r:.60}; give the device's full resource name, for"
                    " example nvidia.com/gpu or google.com/tpu."
                )
            counts[name] = whole(f"accelerators {name}", count, 1, 10_000)
        object.__setattr__(self, "accelerators", counts)

    def requests(self) -> dict[str, str]:
        """Returns what is asked for, as Kubernetes names it."""
        return _present({"cpu": self.cpu, "memory": self.memory}) | self._devices()

    def limits(self) -> dict[str, str]:
        """Returns the most that may be used; devices cannot be shared, so theirs is the request."""
        limits = {
            "cpu": self.cpu_limit or self.cpu,
            "memory": self.memory_limit or self.memory,
        }
        return _present(limits) | self._devices()

    def _devices(self) -> dict[str, str]:
        return {name: str(count) for name, count in self.accelerators.items()}


@dataclass(frozen=True, kw_only=True)
class Volume:
    """One place at which every node sees a volume. Two places of one volume are two of these.

    Attributes:
        name: The volume's name, the same for each of its places.
        mount_path: Absolute path of the folder in the node.
        source: What it is, as Kubernetes writes it: one key, such as
            {"persistentVolumeClaim": {"claimName": "data"}}.
        sub_path: Folder within the volume, or "".
        read_only: Whether the nodes may only read it.
    """

    name: str
    mount_path: str
    source: Mapping[str, Any]
    sub_path: str = ""
    read_only: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _DNS_LABEL.fullmatch(self.name):
            raise SpecError(f"Volume name {self.name!r:.80} is not valid; use a-z, 0-9 and dashes.")
        path = self.mount_path
        if not isinstance(path, str) or not re.fullmatch(r"/[^:\0]+", path) or ".." in path:
            raise SpecError(
                f"Volume {self.name} has mount_path {path!r:.80}; give an absolute path without"
                " ':' and '..'."
            )
        text(f"sub_path of volume {self.name}", self.sub_path)
        if not isinstance(self.read_only, bool):
            raise SpecError(
                f"read_only of volume {self.name} is {self.read_only!r:.80}; give true or false."
            )
        source = json_object(f"source of volume {self.name}", self.source)
        if len(source) != 1:
            raise SpecError(
                f"Volume {self.name} has {len(source)} sources; give one, for example"
                ' {"persistentVolumeClaim": {"claimName": "data"}}.'
            )
        object.__setattr__(self, "source", source)


@dataclass(frozen=True, kw_only=True)
class Pods:
    """What the pods of a job are on a cluster; jobs on one machine make no use of it.

    Attributes:
        image: Container image with the program; by default ours for the accelerator.
        resources: What each node asks for.
        node_selector: Labels that a machine must have.
        tolerations: Taints that are no hindrance, as Kubernetes writes them.
        affinity: Kubernetes' affinity.
        volumes: What is mounted where.
        secret_env: Variables from secrets: name -> "secret/key".
        service_account: Account of the pods.
        image_pull_secrets: Names of the secrets for the image registry.
        queue: Kueue's local queue that must admit the job.
        priority: Kueue's WorkloadPriorityClass, by which jobs in its queue go before others.
        runtime: A TrainJob's runtime, "name" or "TrainingRuntime/name"; by default ours.
        patch: Anything else: a strategic-merge patch of the spec of a TrainingRuntime, that is
            {"template": {"spec": {"replicatedJobs": [{"name": "node", ...}]}}}.
    """

    image: str = ""
    resources: Resources = field(default_factory=Resources)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    affinity: Mapping[str, Any] = field(default_factory=dict)
    volumes: tuple[Volume, ...] = ()
    secret_env: Mapping[str, str] = field(default_factory=dict)
    service_account: str = ""
    image_pull_secrets: tuple[str, ...] = ()
    queue: str = ""
    priority: str = ""
    runtime: str = ""
    patch: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.fullmatch(rf"\S{{0,{MAX_IMAGE}}}", text("image", self.image)):
            raise SpecError(
                f"image {self.image!r:.80} is not valid; give a name of at most {MAX_IMAGE}"
                " characters without spaces."
            )
        selector = mapping("node_selector", self.node_selector)
        selector = {name: as_text(value) for name, value in selector.items()}
        object.__setattr__(self, "node_selector", selector)
        object.__setattr__(self, "tolerations", _tolerations(self.tolerations))
        object.__setattr__(self, "affinity", json_object("affinity", self.affinity))
        object.__setattr__(self, "volumes", listed("volumes", self.volumes, _VOLUMES))
        secrets = listed("image_pull_secrets", self.image_pull_secrets, '["registry"]')
        object.__setattr__(self, "image_pull_secrets", secrets)
        object.__setattr__(self, "patch", json_object("patch", self.patch))
        _check_volumes(self.volumes)
        _check_secrets(mapping("secret_env", self.secret_env))
        for name in self.image_pull_secrets:
            _check_object_name("image_pull_secrets", name)
        _check_object_name("service_account", self.service_account)
        _check_object_name("queue", self.queue)
        _check_object_name("priority", self.priority)
        if self.priority and not self.queue:
            raise SpecError(f"priority {self.priority} is that of a queue; give queue, too.")
        if text("runtime", self.runtime) and not _RUNTIME.fullmatch(self.runtime):
            raise SpecError(
                f"runtime {self.runtime!r:.80} is not valid; give the name of a"
                " ClusterTrainingRuntime, or TrainingRuntime/name for one of the namespace."
            )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Returns the value whose fields `data` holds.

        Raises:
            SpecError: A key is unknown or a value is wrong.
        """
        known_keys("pods", mapping("pods", data), (item.name for item in fields(cls)))
        resources = mapping("resources", data.get("resources", {}))
        known_keys("resources", resources, (item.name for item in fields(Resources)))
        given = listed("volumes", data.get("volumes", ()), _VOLUMES)
        volumes = [mapping("volume", item) for item in given]
        for item in volumes:
            known_keys("volume", item, (known.name for known in fields(Volume)))
            needed_keys(f"Volume {item.get('name', '')!r:.80}", item, _VOLUME_NEEDS)
        return cls(
            **{
                **data,
                "resources": Resources(**resources),
                "volumes": tuple(Volume(**item) for item in volumes),
            }
        )


def _check_limit(name: str, request: str, limit: str) -> None:
    if request and limit and (quantities.amount(request) or 0) > (quantities.amount(limit) or 0):
        raise SpecError(
            f"{name} is {request} but {name}_limit is {limit}; give a limit of at least {request}."
        )


def _tolerations(values: Any) -> tuple[dict[str, Any], ...]:
    given = listed("tolerations", values, '[{"key": "spot", "operator": "Exists"}]')
    return tuple(_toleration(item) for item in given)


def _toleration(value: Any) -> dict[str, Any]:
    # KFP's TaskConfig names every key, null where it was not set.
    toleration = {
        key: item for key, item in mapping("toleration", value).items() if item is not None
    }
    known_keys("toleration", toleration, _TOLERATION)
    return json_object("toleration", toleration)


def _check_volumes(volumes: tuple[Volume, ...]) -> None:
    sources: dict[str, Any] = {}
    places: dict[str, str] = {}
    for volume in volumes:
        if sources.setdefault(volume.name, volume.source) != volume.source:
            raise SpecError(
                f"Volume {volume.name} is given with two sources; give each its own name."
            )
        path = volume.mount_path.rstrip("/")
        if path in places:
            raise SpecError(
                f"Volumes {places[path]} and {volume.name} are both mounted at {path}; give each"
                " a path of its own."
            )
        places[path] = volume.name


def _check_secrets(secrets: Mapping[str, Any]) -> None:
    for name, value in secrets.items():
        if not isinstance(value, str) or not _SECRET_KEY.fullmatch(value):
            # Whoever puts the secret itself here must not find it in a log.
            raise SpecError(
                f"secret_env {name} is not a reference to a secret; write secret/key, the names of"
                " a Secret and of a key in it."
            )


def _check_object_name(what: str, name: Any) -> None:
    if not isinstance(name, str) or (name and not _DNS_NAME.fullmatch(name)):
        raise SpecError(f"{what} {name!r:.80} is not valid; give a name of a-z, 0-9, '-' and '.'.")


def _present(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}
