"""Whether a job can run: each row of the doctor's table."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from fakes.runtimes import node_pod, stock_runtime
from kfp_jax import __version__
from kfp_jax.doctor import (
    Checkup,
    ClusterFacts,
    Level,
    MachineFacts,
    examine_cluster,
    examine_machine,
)
from kfp_jax.manifests.pod import FLAVORS
from kfp_jax.manifests.runtime import shipped_name, shipped_runtime
from kfp_jax.pods import Pods, Resources, Volume

MACHINE = MachineFacts(python="3.11.7", cores=8, jax="0.10.2", jax_error="", kfp="2.17.3")
RUNTIMES: dict[str, Any] = {shipped_name(kind): shipped_runtime(kind) for kind in FLAVORS}
SOUND = ClusterFacts(
    server="https://api:6443",
    namespace="team",
    version="v1.36.3",
    trainjob_fields=frozenset({"runtimePatches", "terminationGracePeriodSeconds"}),
    trainer_version="v2.3.0",
    jobset_fields=frozenset({"restartStrategy"}),
    runtimes=RUNTIMES,
)
BOTH = ("trainer", "jobset")
LEVEL = "pod-security.kubernetes.io/enforce"
RESTRICTED = {LEVEL: "restricted"}
INSTALLED = tuple(
    (kind, name, __version__)
    for kind, name in {
        "clustertrainingruntimes": "kfp-jax-cpu",
        "roles": "kfp-jax-launcher",
        "networkpolicies": "kfp-jax-nodes",
    }.items()
)


def examine(pods: Pods | None = None, **changes: Any) -> Checkup:
    return examine_cluster(replace(SOUND, **changes), pods or Pods())


def quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "q"},
        "spec": {"hard": hard, **spec},
        "status": {"used": used or {}},
    }


def limit_range(**rule: Any) -> dict[str, Any]:
    return {"metadata": {"name": "r"}, "spec": {"limits": [{"type": "Container", **rule}]}}


def changed(**runtimes: Any) -> dict[str, Any]:
    return {**RUNTIMES, **{name.replace("_", "-"): item for name, item in runtimes.items()}}


def of_version(version: str) -> dict[str, Any]:
    runtime = copy.deepcopy(RUNTIMES["kfp-jax-cpu"])
    node_pod(runtime)["containers"][0]["image"] = f"team/trainer-cpu:{version}"
    return runtime


def unrestricted() -> dict[str, Any]:
    runtime = copy.deepcopy(RUNTIMES["kfp-jax-cpu"])
    del node_pod(runtime)["securityContext"]
    return runtime


def test_a_sound_cluster_runs_jobs_on_both_backends_and_has_nothing_to_mend() -> None:
    checkup = examine()
    assert checkup.able == BOTH
    assert {item.level for item in checkup.findings} == {Level.OK}


@pytest.mark.parametrize(
    ("changes", "able", "seen", "remedy"),
    [
        pytest.param({"unreachable": "It is silent."}, (), "silent", "get-contexts", id="silent"),
        pytest.param({"namespace_there": False}, (), "not there", "create namespace", id="no-ns"),
        pytest.param(
            {"trainjob_fields": None}, ("jobset",), "not installed", "trainer.git", id="no-trainer"
        ),
        pytest.param(
            {"trainjob_fields": frozenset({"podTemplateOverrides"})},
            ("jobset",),
            "older than 2.2",
            "v2.3.0",
            id="trainer-2.1",
        ),
        pytest.param({"jobset_fields": None}, (), "not installed", "jobset", id="no-jobset"),
        pytest.param(
            {"jobset_fields": frozenset()}, ("trainer",), "too old", "jobset", id="old-jobset"
        ),
        pytest.param(
            {"runtimes": changed(kfp_jax_cpu=None)},
            ("jobset",),
            "not installed",
            "-k runtimes/manifests",
            id="no-runtime",
        ),
        pytest.param(
            {"runtimes": changed(kfp_jax_tpu=None)},
            BOTH,
            "not installed",
            "-k runtimes/manifests",
            id="no-runtime-that-is-not-asked-for",
        ),
        pytest.param(
            {"runtimes": changed(kfp_jax_cpu=stock_runtime())},
            BOTH,
            "not made by kfp-jax",
            "-k runtimes/manifests",
            id="foreign-runtime",
        ),
        pytest.param(
            {"runtimes": changed(kfp_jax_cpu=of_version("0.0.1"))},
            BOTH,
            "another version",
            "-k runtimes/manifests",
            id="stale-runtime",
        ),
        pytest.param(
            {"runtimes": changed(kfp_jax_cpu=unrestricted()), "namespace_labels": RESTRICTED},
            ("jobset",),
            "is restricted and refuses its pods: container node may run as root",
            "-k runtimes/manifests",
            id="runtime-that-the-namespace-refuses",
        ),
        pytest.param(
            {"denied": frozenset({("trainer.kubeflow.org", "trainjobs", "create")})},
            ("jobset",),
            "may not create",
            "runtimes/manifests",
            id="no-right-to-trainjobs",
        ),
        pytest.param(
            {"denied": frozenset({("", "pods", "list"), ("", "pods", "watch")})},
            (),
            "may not list, watch",
            "runtimes/manifests",
            id="no-right-to-pods",
        ),
        pytest.param(
            {"denied": frozenset({("", "events", "list")})},
            BOTH,
            "may not list, so nobody is told why",
            "runtimes/manifests",
            id="no-right-to-events",
        ),
        pytest.param(
            {"quotas": (quota({"requests.cpu": "4"}, {"requests.cpu": "3500m"}),)},
            (),
            "requests.cpu: 3500m of 4 are used, a node asks for 1",
            "describe quota q",
            id="quota-is-used-up",
        ),
        pytest.param(
            {"quotas": (quota({"limits.memory": "64Gi"}),)},
            (),
            "no pod without a limit on memory",
            "--memory",
            id="quota-wants-limits",
        ),
        pytest.param(
            {"limit_ranges": (limit_range(max={"cpu": "500m"}),)},
            (),
            "at most cpu 500m, a node asks for 1",
            "--cpu 500m",
            id="limit-range-is-small",
        ),
        pytest.param(
            {"policies": False},
            BOTH,
            "every pod of the cluster reaches",
            "overlays/multi-user/launcher | sed",
            id="no-network-policy",
        ),
        pytest.param(
            {"account": "runner", "account_there": False},
            (),
            "service account runner is not there",
            "kubectl create serviceaccount runner -n team",
            id="no-account",
        ),
        pytest.param(
            {"account": "pipeline-runner", "denied": frozenset({("", "pods", "watch")})},
            (),
            "account pipeline-runner may not watch",
            "overlays/standalone/launcher | sed 's/namespace: kubeflow/namespace: team/'",
            id="an-account-without-rights",
        ),
        pytest.param(
            {"denied": frozenset({("", "pods/log", "get")})},
            BOTH,
            "no lines, metrics or model",
            "overlays/",
            id="no-right-to-logs",
        ),
        pytest.param(
            {"queues": {"a": ""}, "denied": frozenset({("kueue.x-k8s.io", "workloads", "list")})},
            BOTH,
            "nobody is told why a job is still queued",
            "overlays/multi-user-queued/launcher | sed",
            id="no-right-to-workloads",
        ),
        pytest.param(
            {"queues": {"a": "its ClusterQueue is stopped"}},
            BOTH,
            "a admits no job: its ClusterQueue is stopped",
            "kubectl describe localqueue a -n team",
            id="a-queue-that-stands",
        ),
        pytest.param(
            {"installed": (*INSTALLED, ("roles", "kfp-jax-old", "0.0.1"))},
            BOTH,
            "kfp-jax-old is left from version 0.0.1",
            "kubectl delete roles kfp-jax-old -n team",
            id="left-by-an-older-version",
        ),
        pytest.param(
            {"installed": (("clusterroles", "kfp-jax-view-runtimes", "0.0.1"),)},
            BOTH,
            "is of version 0.0.1, this is",
            "kubectl apply --server-side -k runtimes/manifests/overlays/standalone",
            id="not-renewed",
        ),
        pytest.param(
            {"kfp_retries": True}, BOTH, "may train again", "retryStrategy", id="argo-retries"
        ),
        pytest.param(
            {"limit_ranges": (limit_range(min={"memory": "4Gi"}),)},
            (),
            "no less than memory 4Gi",
            "--memory 4Gi",
            id="limit-range-is-large",
        ),
    ],
)
def test_what_stands_in_the_way_is_named_with_a_remedy(
    changes: dict[str, Any], able: tuple[str, ...], seen: str, remedy: str
) -> None:
    checkup = examine(**changes)
    assert checkup.able == able
    (finding,) = [item for item in checkup.findings if item.level is not Level.OK]
    assert seen in finding.seen
    assert remedy in finding.remedy
    assert finding.level is (Level.NOTE if able == BOTH else Level.PROBLEM)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"runtimes": None}, id="runtimes-that-may-not-be-read"),
        pytest.param({"namespace_labels": RESTRICTED}, id="restricted-namespace"),
        pytest.param(
            {"namespace_labels": None, "quotas": None, "limit_ranges": None},
            id="namespace-that-may-not-be-read",
        ),
        pytest.param({"quotas": (quota({"requests.cpu": "4"}, {"requests.cpu": "3"}),)}, id="room"),
        pytest.param({"quotas": (quota({"pods": "0"}, scopes=["BestEffort"]),)}, id="scoped"),
        pytest.param(
            {
                "quotas": (quota({"limits.cpu": "8"}),),
                "limit_ranges": (limit_range(default={"cpu": "2"}),),
            },
            id="limits-by-default",
        ),
        pytest.param({"trainer_version": "dev"}, id="trainer-built-from-source"),
        pytest.param({"queues": {"training": ""}}, id="queues"),
        pytest.param({"queues": {}, "queues_readable": False}, id="queues-that-may-not-be-read"),
        pytest.param({"policies": None}, id="policies-that-may-not-be-read"),
        pytest.param({"namespace_labels": {LEVEL: "baseline"}}, id="baseline-namespace"),
        pytest.param({"account": "pipeline-runner"}, id="an-account"),
        pytest.param({"installed": INSTALLED}, id="what-this-version-installs"),
    ],
)
def test_what_refuses_no_pod_of_ours_is_fine(changes: dict[str, Any]) -> None:
    checkup = examine(**changes)
    assert [item for item in checkup.findings if item.level is not Level.OK] == []


@pytest.mark.parametrize(
    ("pods", "changes", "able"),
    [
        pytest.param(
            Pods(resources=Resources(memory="2Gi")),
            {"quotas": (quota({"limits.memory": "64Gi"}),)},
            BOTH,
            id="a-limit-was-given",
        ),
        pytest.param(
            Pods(resources=Resources(cpu="16")),
            {"quotas": (quota({"requests.cpu": "8"}),)},
            (),
            id="more-than-the-quota",
        ),
        pytest.param(
            Pods(resources=Resources(accelerators={"nvidia.com/gpu": 2})),
            {"quotas": (quota({"requests.nvidia.com/gpu": "1"}),)},
            (),
            id="gpus-over-the-quota",
        ),
        pytest.param(
            Pods(resources=Resources(accelerators={"nvidia.com/gpu": 2})),
            {"runtimes": changed(kfp_jax_cuda=None)},
            ("jobset",),
            id="the-runtime-for-gpus-is-wanted",
        ),
        pytest.param(Pods(queue="a"), {"queues": {"b": ""}}, (), id="unknown-queue"),
        pytest.param(
            Pods(queue="a"), {"queues": {"a": "it is stopped"}}, (), id="queue-that-stands"
        ),
        pytest.param(Pods(queue="a"), {"queues_readable": False, "queues": {}}, BOTH, id="no-look"),
        pytest.param(
            Pods(volumes=(Volume(name="n", mount_path="/n", source={"nfs": {"path": "/"}}),)),
            {"namespace_labels": RESTRICTED},
            (),
            id="nfs-in-a-restricted-namespace",
        ),
        pytest.param(
            Pods(volumes=(Volume(name="n", mount_path="/n", source={"nfs": {"path": "/"}}),)),
            {"namespace_labels": {LEVEL: "baseline"}},
            BOTH,
            id="nfs-in-a-baseline-namespace",
        ),
        pytest.param(
            Pods(volumes=(Volume(name="h", mount_path="/h", source={"hostPath": {"path": "/h"}}),)),
            {"namespace_labels": RESTRICTED},
            (),
            id="host-path-in-a-restricted-namespace",
        ),
    ],
)
def test_the_pods_that_are_asked_for_are_judged(
    pods: Pods, changes: dict[str, Any], able: tuple[str, ...]
) -> None:
    assert examine(pods, **changes).able == able


@pytest.mark.parametrize(
    ("changes", "able", "remedy"),
    [
        pytest.param({}, ("local",), "", id="sound"),
        pytest.param({"jax": ""}, (), "pip install 'kfp-jax[jax]'", id="no-jax"),
        pytest.param({"jax_error": "ImportError: jaxlib"}, (), "--upgrade", id="broken-jax"),
        pytest.param({"kfp": ""}, ("local",), "pip install 'kfp-jax[kfp]'", id="no-kfp"),
    ],
)
def test_this_machine(changes: dict[str, Any], able: tuple[str, ...], remedy: str) -> None:
    checkup = examine_machine(replace(MACHINE, **changes))
    assert checkup.able == able
    assert remedy in " ".join(item.remedy for item in checkup.findings)
