"""A job as a JobSet, for clusters without Kubeflow Trainer: the same nodes and environment."""

import math
from collections.abc import Mapping
from typing import Any

from kfp_jax.errors import SpecError
from kfp_jax.manifests import environment
from kfp_jax.manifests.identity import (
    Identity,
    labels,
    metadata,
    queue_labels,
)
from kfp_jax.manifests.pod import (
    check_folders,
    flavor,
    pod_template,
    present,
    read_only_paths,
)
from kfp_jax.manifests.template import (
    check_pod_names,
    check_template,
    jobset_template,
    node_container,
    patched,
)
from kfp_jax.manifests.tpu import check_slice
from kfp_jax.spec import TrainSpec

API_VERSION = "jobset.x-k8s.io/v1alpha2"
# Only after a launcher that was killed: it deletes what it has read.
KEPT_SECONDS = 24 * 3600
# The launcher keeps the deadline and says why; the cluster's clock is for when there is none left.
# A TrainJob's runs over all restarts, a JobSet's for each anew.
BACKSTOP_SECONDS = 300


def jobset(spec: TrainSpec, identity: Identity) -> dict[str, Any]:
    """Returns the JobSet to create.

    Raises:
        SpecError: The job could not work as a JobSet.
    """
    template, node = _template(spec, identity)
    check_pod_names(identity.name, template, spec.num_nodes)
    mounts = node_container(node)["volumeMounts"]
    check_folders(spec, _mounts(node), read_only_paths(mounts, node["volumes"]))
    return {
        "apiVersion": API_VERSION,
        "kind": "JobSet",
        "metadata": _merged(metadata(identity, spec, more_labels=queue_labels(spec)), template),
        "spec": {"ttlSecondsAfterFinished": KEPT_SECONDS, **template["spec"]},
    }


def mount_paths(spec: TrainSpec, identity: Identity) -> list[str]:
    """Returns where the nodes have volumes.

    Raises:
        SpecError: The job could not work as a JobSet.
    """
    return _mounts(_template(spec, identity)[1])


def _mounts(pod: Mapping[str, Any]) -> list[str]:
    return [item["mountPath"] for item in node_container(pod)["volumeMounts"]]


def _template(spec: TrainSpec, identity: Identity) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Returns metadata and spec of the JobSet, and the pod spec of its nodes."""
    if spec.pods.runtime:
        raise SpecError(
            f"runtime {spec.pods.runtime} belongs to a TrainJob, and a JobSet has none; leave"
            " runtime empty or choose the backend trainer."
        )
    check_slice(spec)
    kind = flavor(spec.pods)
    env = [
        *environment.process_env(spec, identity),
        *environment.jax_env(spec, kind.env),
        *environment.shared_env(spec, identity),
    ]
    pod = pod_template(
        spec.pods,
        kind,
        labels=labels(identity),
        container={
            "command": environment.command(spec),
            "env": env,
            "ports": [{"containerPort": environment.PORT}],
        },
    )
    job = {
        "completionMode": "Indexed",
        "completions": spec.num_nodes,
        "parallelism": spec.num_nodes,
        "activeDeadlineSeconds": backstop(spec),
    }
    made = jobset_template(kind, pod, labels={}, max_restarts=spec.max_restarts, job=present(job))
    template = patched({"template": made}, spec.pods.patch, ("template",))["template"]
    return template, check_template(template, "patch")


def backstop(spec: TrainSpec) -> int | None:
    """Returns after how many seconds the cluster itself ends a job, or None for never."""
    deadline = spec.limits.deadline
    return math.ceil(deadline) + BACKSTOP_SECONDS if deadline else None


def _merged(own: dict[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """Returns our metadata with the template's labels and annotations, ours winning."""
    theirs = template.get("metadata", {})
    return own | {key: {**theirs.get(key, {}), **own[key]} for key in ("labels", "annotations")}
