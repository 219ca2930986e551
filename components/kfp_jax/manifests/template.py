"""The JobSet behind a job: a JobSet's own spec, and what a TrainJob's runtime holds as template."""

from collections.abc import Iterator, Mapping
from typing import Any

from kfp_jax.checks import known_keys, mapping
from kfp_jax.errors import SpecError
from kfp_jax.manifests.environment import NODE
from kfp_jax.manifests.identity import check_name
from kfp_jax.manifests.merge import strategic_merge
from kfp_jax.manifests.pod import Flavor, present
from kfp_jax.spec import check_not_reserved
from kfp_jax.status import FINAL_EXITS

STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
STEP = {STEP_LABEL: "trainer"}


def jobset_template(
    kind: Flavor,
    pod: Mapping[str, Any],
    *,
    labels: Mapping[str, str],
    max_restarts: int,
    job: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns metadata and spec of a JobSet that starts all nodes once, or again all together.

    Args:
        kind: The accelerator.
        pod: Pod template of a node.
        labels: Of the JobSet.
        max_restarts: How often all nodes are started again after a failure.
        job: What the Job has beside what is the same for each.
    """
    again = {"podFailurePolicy": _FINAL_POLICY} if max_restarts else {}
    spec: dict[str, Any] = {
        "replicatedJobs": [
            {
                "name": NODE,
                "template": {
                    "metadata": {"labels": dict(STEP)},
                    # One failed pod fails the Job at once; a new pod alone could not join.
                    "spec": {"backoffLimit": 0, **again, **job, "template": pod},
                },
            }
        ]
    }
    if max_restarts:
        spec["failurePolicy"] = _restart_policy(max_restarts)
    metadata = present({"labels": dict(labels), "annotations": dict(kind.annotations)})
    return present({"metadata": metadata, "spec": spec})


def patched(
    manifest: Mapping[str, Any], patch: Mapping[str, Any], known: tuple[str, ...]
) -> dict[str, Any]:
    """Returns a runtime's spec with the user's patch over it.

    Args:
        manifest: What we made.
        patch: `Pods.patch`.
        known: The keys that the patch may have here.

    Raises:
        SpecError: The patch cannot be merged, or would set what is ours to set.
    """
    known_keys("patch", patch, known)
    template = mapping("patch template", patch.get("template", {}))
    known_keys("patch template", template, ("metadata", "spec"))
    meta = mapping("patch template metadata", template.get("metadata", {}))
    known_keys("patch template metadata", meta, ("labels", "annotations"))
    for name in _env_names(patch):
        check_not_reserved("patch", name)
    return strategic_merge(manifest, patch)


def check_template(template: Mapping[str, Any], whose: str) -> Mapping[str, Any]:
    """Returns the pod spec of the nodes, if they can find each other.

    Args:
        template: Metadata and spec of a JobSet.
        whose: What holds it, for the message.

    Raises:
        SpecError: The nodes would not start, or wait for process 0 under another name than its own.
    """
    spec = template.get("spec", {})
    jobs = {job.get("name"): job for job in spec.get("replicatedJobs", ())}
    if NODE not in jobs:
        raise SpecError(f"{whose} has no replicated job {NODE!r}, it has {_names(jobs)}; add one.")
    pod = _pod_spec(jobs[NODE])
    containers = [item.get("name") for item in pod.get("containers", ())]
    if NODE not in containers:
        raise SpecError(
            f"{whose} has no container {NODE!r} in replicated job {NODE!r}, it has"
            f" {_names(containers)}; name the training container {NODE!r}."
        )
    for name, job in jobs.items():
        _check_images(name, _pod_spec(job), whose)
    replicas = jobs[NODE].get("replicas", 1)
    if replicas != 1:
        raise SpecError(
            f"{whose} has {replicas} replicas of {NODE!r}, which would all be process 0 to N-1; set"
            " replicas to 1 and give num_nodes."
        )
    network = spec.get("network", {})
    if network.get("subdomain") or network.get("enableDNSHostnames") is False:
        raise SpecError(
            f"{whose} sets network.subdomain or switches off enableDNSHostnames, and then the nodes"
            " cannot find process 0; leave network as it is."
        )
    return pod


def _check_images(step: Any, pod: Mapping[str, Any], whose: str) -> None:
    """Refuses a container that a patch made by naming it wrongly: it could never start.

    Raises:
        SpecError: One has no image; that of the nodes may come with the job.
    """
    for kind in ("containers", "initContainers"):
        found = pod.get(kind, ())
        for item in found:
            if not item.get("image") and (step, item.get("name")) != (NODE, NODE):
                others = _names(i.get("name") for i in found if i is not item)
                raise SpecError(
                    f"{whose} has a container {item.get('name')!r} without an image in replicated"
                    f" job {step!r}, beside {others}; name one of these, or give it an image."
                )


def node_container(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the training container of a pod spec, or an empty one."""
    found = [item for item in pod.get("containers", ()) if item.get("name") == NODE]
    return found[0] if found else {}


def check_pod_names(name: str, template: Mapping[str, Any], num_nodes: int) -> None:
    """Refuses a job's name from which the names of its pods could not be made.

    Raises:
        SpecError: It is too long or no DNS label.
    """
    spec = template.get("spec", {})
    jobs = spec.get("replicatedJobs", ())
    counts = {job["name"]: _job_spec(job).get("parallelism", 1) for job in jobs}
    check_name(name, {**counts, NODE: num_nodes}, coordinator="coordinator" in spec)


# Names the container, so that a sidecar's exit code counts for nothing.
_FINAL_POLICY: Mapping[str, Any] = {
    "rules": [
        {
            "action": "FailJob",
            "onExitCodes": {
                "containerName": NODE,
                "operator": "In",
                "values": sorted(FINAL_EXITS),
            },
        }
    ]
}


def _restart_policy(max_restarts: int) -> dict[str, Any]:
    return {
        "maxRestarts": max_restarts,
        # The old process 0 is gone before the new one listens under its name.
        "restartStrategy": "BlockingRecreate",
        "rules": [
            {
                "name": "sameEndAgain",
                "action": "FailJobSet",
                "onJobFailureReasons": ["PodFailurePolicy", "DeadlineExceeded"],
            }
        ],
    }


def _env_names(patch: Any) -> Iterator[str]:
    """Yields the names of all variables that a patch sets, wherever."""
    if isinstance(patch, Mapping):
        for key, value in patch.items():
            if key == "env" and isinstance(value, list):
                yield from (str(i.get("name")) for i in value if isinstance(i, Mapping))
            yield from _env_names(value)
    elif isinstance(patch, list):
        for item in patch:
            yield from _env_names(item)


def _job_spec(job: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = job.get("template", {}).get("spec", {})
    return found


def _pod_spec(job: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = _job_spec(job).get("template", {}).get("spec", {})
    return found


def _names(found: Any) -> str:
    return ", ".join(str(name) for name in found) or "none"
