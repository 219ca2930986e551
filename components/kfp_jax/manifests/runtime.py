"""The runtimes of TrainJobs: ours that are installed, ours made for one job, and other people's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kfp_jax.errors import SpecError
from kfp_jax.manifests import environment
from kfp_jax.manifests.identity import MANAGED_BY, PREFIX, Identity, labels, metadata
from kfp_jax.manifests.pod import FLAVORS, Flavor, flavor, pod_template
from kfp_jax.manifests.template import (
    STEP,
    STEP_LABEL,
    check_template,
    jobset_template,
    patched,
)
from kfp_jax.pods import Pods
from kfp_jax.spec import TrainSpec

GROUP = "trainer.kubeflow.org"
API_VERSION = f"{GROUP}/v1alpha1"
CLUSTER_KIND = "ClusterTrainingRuntime"
NAMESPACED_KIND = "TrainingRuntime"
FRAMEWORK = {f"{GROUP}/framework": "jax"}  # without it the Kubeflow SDK does not see a runtime


@dataclass(frozen=True)
class RuntimeRef:
    """Which runtime a TrainJob refers to."""

    kind: str
    name: str


def runtime_ref(spec: TrainSpec) -> RuntimeRef | None:
    """Returns the installed runtime that can express the job; None when it needs its own.

    Raises:
        SpecError: A runtime is named that cannot express what is asked.
    """
    beyond = _beyond_patches(spec)
    named = spec.pods.runtime
    if not named:
        return None if beyond else RuntimeRef(CLUSTER_KIND, shipped_name(flavor(spec.pods)))
    if beyond:
        raise SpecError(
            f"runtime is {named}, but {beyond} can only be set in a runtime of the job's own;"
            f" leave runtime empty, or write it into {named}."
        )
    kind, _, name = named.rpartition("/")
    return RuntimeRef(kind or CLUSTER_KIND, name)


def own_runtime(spec: TrainSpec, identity: Identity) -> dict[str, Any]:
    """Returns the runtime of one job, under the job's name. It must exist before the TrainJob.

    Raises:
        SpecError: The patch cannot be merged, or its result could not work.
    """
    kind = flavor(spec.pods)
    env = environment.jax_env(spec, kind.env)
    container = {"env": env} if env else {}
    pod = pod_template(spec.pods, kind, labels=labels(identity), container=container)
    made = _runtime_spec(kind, pod, labels=labels(identity), max_restarts=spec.max_restarts)
    runtime = {
        "apiVersion": API_VERSION,
        "kind": NAMESPACED_KIND,
        "metadata": metadata(identity, spec, more_labels=FRAMEWORK),
        "spec": patched(made, spec.pods.patch, ("template", "podGroupPolicy")),
    }
    check_runtime(runtime)
    return runtime


def shipped_name(kind: Flavor) -> str:
    """Returns the name of our installed runtime."""
    return f"{PREFIX}-{kind.name}"


def shipped_runtime(kind: Flavor) -> dict[str, Any]:
    """Returns one of the runtimes in `runtimes/manifests/base`, as we ship it."""
    env = [{"name": name, "value": value} for name, value in kind.env.items()]
    container = {"env": env} if env else {}
    pod = pod_template(Pods(), kind, labels={MANAGED_BY: PREFIX}, container=container)
    return {
        "apiVersion": API_VERSION,
        "kind": CLUSTER_KIND,
        "metadata": {"name": shipped_name(kind), "labels": {**FRAMEWORK, MANAGED_BY: PREFIX}},
        "spec": _runtime_spec(kind, pod, labels={}, max_restarts=0),
    }


def assumed_runtime(ref: RuntimeRef) -> dict[str, Any]:
    """Returns a runtime that may not be read: one of ours as we ship it, else its name alone."""
    for kind in FLAVORS:
        if ref == RuntimeRef(CLUSTER_KIND, shipped_name(kind)):
            return shipped_runtime(kind)
    return {"apiVersion": API_VERSION, "kind": ref.kind, "metadata": {"name": ref.name}}


def ref_of(runtime: Mapping[str, Any]) -> RuntimeRef:
    """Returns the reference to a runtime that is there."""
    return RuntimeRef(runtime["kind"], runtime["metadata"]["name"])


def check_runtime(runtime: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the pod spec of the nodes of a runtime on which JAX's processes find each other.

    Trainer leaves out the environment in silence where any of this is not so. A runtime without
    spec, which could not be read, is believed.

    Raises:
        SpecError: The runtime has no JAX policy or no training step, or misnames it.
    """
    whose = f"runtime {ref_of(runtime).name}"
    spec = runtime.get("spec")
    if spec is None:
        return {}
    if "jax" not in spec.get("mlPolicy", {}):
        raise SpecError(
            f"{whose} has no mlPolicy.jax, so its nodes would each train alone; choose a JAX"
            " runtime or add `jax: {}` to its mlPolicy."
        )
    template = spec.get("template", {})
    pod = check_template(template, whose)
    steps = [
        job["name"]
        for job in template["spec"]["replicatedJobs"]
        if job.get("template", {}).get("metadata", {}).get("labels", {}).get(STEP_LABEL)
        == STEP[STEP_LABEL]
    ]
    if steps != [environment.NODE]:
        raise SpecError(
            f"{whose} marks {', '.join(steps) or 'nothing'} as its training step, so image and"
            f" command would be ignored; label the Job template of {environment.NODE!r} with"
            f" {STEP_LABEL}: {STEP[STEP_LABEL]}."
        )
    return pod


def lost(spec: TrainSpec, runtime: Mapping[str, Any]) -> list[str]:
    """Returns what a job lacks on a runtime that is not ours, one sentence each."""
    if runtime["metadata"].get("labels", {}).get(MANAGED_BY) == PREFIX:
        return []
    name = ref_of(runtime).name
    found = []
    if spec.program and not spec.pods.image:
        found.append(
            f"Runtime {name} brings its own image, which must hold kfp-jax and {spec.program}; else"
            " give image."
        )
    policy, limit = _restarts(runtime)
    if policy != "Never" or limit != 0:
        found.append(
            f"Runtime {name} restarts single processes (restartPolicy {policy}, backoffLimit"
            f" {limit}), which cannot join the others again: a failure is seen late and its first"
            " logs may be lost; leave runtime empty for one that does not."
        )
    return found


def _restarts(runtime: Mapping[str, Any]) -> tuple[str, int]:
    """Returns the nodes' restartPolicy and backoffLimit, or what they are where none is set."""
    spec = runtime.get("spec", {}).get("template", {}).get("spec", {})
    for job in spec.get("replicatedJobs", ()):
        if job.get("name") == environment.NODE:
            found = job.get("template", {}).get("spec", {})
            pod = found.get("template", {}).get("spec", {})
            return pod.get("restartPolicy", "OnFailure"), found.get("backoffLimit", 6)
    return "OnFailure", 6


def _runtime_spec(
    kind: Flavor, pod: Mapping[str, Any], *, labels: Mapping[str, str], max_restarts: int
) -> dict[str, Any]:
    template = jobset_template(kind, pod, labels=labels, max_restarts=max_restarts, job={})
    return {"mlPolicy": {"numNodes": 1, "jax": {}}, "template": template}


def _beyond_patches(spec: TrainSpec) -> str:
    """Returns what a TrainJob cannot ask of a runtime that is there, or ""."""
    if spec.max_restarts:
        return f"max_restarts {spec.max_restarts}"
    if spec.pods.patch:
        return "patch"
    # A patch of a runtime names each volume of a container once.
    names = [volume.name for volume in spec.pods.volumes]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        return f"volume {twice} at two places"
    # In a TrainJob's env it could overwrite what the JAX plugin sets; Trainer is to refuse that.
    return next((f"env {name}" for name in spec.env if name.startswith("JAX_")), "")
