"""What Kubernetes' Pod Security Standards refuse of a pod, as far as jobs come near it. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

ENFORCED = "pod-security.kubernetes.io/enforce"
PRIVILEGED, BASELINE, RESTRICTED = "privileged", "baseline", "restricted"

_VOLUMES = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral"),
    *("persistentVolumeClaim", "projected", "secret"),
}
_SECCOMP = ("RuntimeDefault", "Localhost")
# What a container may have again after it has dropped all.
_CAPABILITY = "NET_BIND_SERVICE"

Pod = Mapping[str, Any]


def refusal(pod: Pod, level: str) -> str:
    """Returns why a namespace of that level refuses a pod of this spec, or ""."""
    if level == PRIVILEGED:
        return ""
    found = [*_baseline(pod), *(_restricted(pod) if level == RESTRICTED else ())]
    return found[0] if found else ""


def _baseline(pod: Pod) -> Iterator[str]:
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(name):
            yield f"its pods have {name}"
    for volume in pod.get("volumes", ()):
        if "hostPath" in volume:
            yield f"volume {volume['name']} is a hostPath; use a PersistentVolumeClaim"
    for container in _containers(pod):
        name, security = container["name"], container.get("securityContext", {})
        if security.get("privileged"):
            yield f"container {name} is privileged"
        if any(port.get("hostPort") for port in container.get("ports", ())):
            yield f"container {name} has a port of its machine"


def _restricted(pod: Pod) -> Iterator[str]:
    for volume in pod.get("volumes", ()):
        kinds = volume.keys() - {"name"}
        if not kinds <= _VOLUMES:
            yield f"volume {volume['name']} is of kind {', '.join(kinds)}"
    for container in _containers(pod):
        name, own = container["name"], container.get("securityContext", {})
        both = {**pod.get("securityContext", {}), **own}
        capabilities = own.get("capabilities", {})
        if both.get("runAsNonRoot") is not True or both.get("runAsUser") == 0:
            yield f"container {name} may run as root"
        if own.get("allowPrivilegeEscalation") is not False:
            yield f"container {name} may get more rights than it starts with"
        if "ALL" not in capabilities.get("drop", ()) or {*capabilities.get("add", ())} - {
            _CAPABILITY
        }:
            yield f"container {name} does not drop all capabilities"
        if both.get("seccompProfile", {}).get("type") not in _SECCOMP:
            yield f"container {name} has no seccompProfile"


def _containers(pod: Pod) -> Iterator[Mapping[str, Any]]:
    for kind in ("initContainers", "containers"):
        yield from pod.get(kind) or ()
