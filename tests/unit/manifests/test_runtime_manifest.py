from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fakes.jobs import RESULTS, gpus, identity, job
from fakes.runtimes import node_job, node_pod, stock_runtime
from kfp_jax.errors import SpecError
from kfp_jax.manifests.jobset import jobset
from kfp_jax.manifests.pod import CPU, CUDA, FLAVORS
from kfp_jax.manifests.runtime import (
    RuntimeRef,
    assumed_runtime,
    check_runtime,
    lost,
    own_runtime,
    ref_of,
    runtime_ref,
    shipped_runtime,
)
from kfp_jax.spec import TrainSpec

PRIORITY = {"template": {"metadata": {"labels": {"team": "ml"}}}}
TWO_PLACES = (RESULTS, replace(RESULTS, mount_path="/data"))
BEYOND = [
    pytest.param({"max_restarts": 1}, "max_restarts 1", id="restarts"),
    pytest.param({"pods": {"patch": PRIORITY}}, "patch", id="patch"),
    pytest.param({"pods": {"volumes": TWO_PLACES}}, "volume results at two places", id="volume"),
    pytest.param({"env": {"JAX_DEBUG_NANS": "1"}}, "env JAX_DEBUG_NANS", id="jax-variable"),
]


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        pytest.param(job(), "kfp-jax-cpu", id="cpu"),
        pytest.param(job(pods={"resources": gpus()}), "kfp-jax-cuda", id="gpu"),
    ],
)
def test_an_installed_runtime_serves_a_plain_job(spec: TrainSpec, name: str) -> None:
    assert runtime_ref(spec) == RuntimeRef("ClusterTrainingRuntime", name)


@pytest.mark.parametrize(
    ("runtime", "kind", "name"),
    [
        ("jax-distributed", "ClusterTrainingRuntime", "jax-distributed"),
        ("TrainingRuntime/team-jax.v2", "TrainingRuntime", "team-jax.v2"),
        ("ClusterTrainingRuntime/a", "ClusterTrainingRuntime", "a"),
    ],
)
def test_a_runtime_is_named_with_or_without_its_kind(runtime: str, kind: str, name: str) -> None:
    assert runtime_ref(job(pods={"runtime": runtime})) == RuntimeRef(kind, name)


@pytest.mark.parametrize(("change", "what"), BEYOND)
def test_what_no_installed_runtime_can_do_needs_one_of_its_own(
    change: dict[str, Any], what: str
) -> None:
    assert runtime_ref(job(**change)) is None


@pytest.mark.parametrize(("change", "what"), BEYOND)
def test_what_a_named_runtime_cannot_do_is_refused(change: dict[str, Any], what: str) -> None:
    pods = {**change.get("pods", {}), "runtime": "jax-distributed"}
    with pytest.raises(SpecError, match=f"runtime is jax-distributed, but {what} can only"):
        runtime_ref(job(**{**change, "pods": pods}))


def test_a_runtime_of_its_own_makes_the_same_pod_as_a_jobset() -> None:
    spec = job(max_restarts=2, pods={"resources": gpus(2, cpu="4"), "service_account": "a"})
    runtime = node_pod(own_runtime(spec, identity()))
    (found,) = jobset(spec, identity())["spec"]["replicatedJobs"]
    pod = found["template"]["spec"]["template"]["spec"]
    only_in_a_jobset = {"command", "env", "ports"}  # a TrainJob and its plugin bring them
    for spec_of_pod in (runtime, pod):
        for name in only_in_a_jobset:
            spec_of_pod["containers"][0].pop(name, None)
    assert runtime == pod


def test_a_runtime_of_its_own_takes_a_gang_policy() -> None:
    gang = {"podGroupPolicy": {"coscheduling": {"scheduleTimeoutSeconds": 120}}}
    made = own_runtime(job(pods={"patch": gang}), identity())
    assert made["spec"]["podGroupPolicy"] == gang["podGroupPolicy"]


@pytest.mark.parametrize("kind", FLAVORS, ids=lambda kind: kind.name)
def test_our_runtimes_pass_our_own_check(kind: Any) -> None:
    pod = check_runtime(shipped_runtime(kind))
    assert pod["restartPolicy"] == "Never"


def test_our_runtime_is_known_without_reading_it() -> None:
    ref = RuntimeRef("ClusterTrainingRuntime", "kfp-jax-cuda")
    assert assumed_runtime(ref) == shipped_runtime(CUDA)


def test_of_another_runtime_nothing_is_assumed() -> None:
    ref = RuntimeRef("TrainingRuntime", "kfp-jax-cuda")
    assert "spec" not in assumed_runtime(ref)
    assert ref_of(assumed_runtime(ref)) == ref
    assert check_runtime(assumed_runtime(ref)) == {}


def no_policy(runtime: dict[str, Any]) -> None:
    del runtime["spec"]["mlPolicy"]


def torch(runtime: dict[str, Any]) -> None:
    runtime["spec"]["mlPolicy"] = {"torch": {}}


def no_step(runtime: dict[str, Any]) -> None:
    del node_job(runtime)["template"]["metadata"]


def other_container(runtime: dict[str, Any]) -> None:
    node_pod(runtime)["containers"][0]["name"] = "trainer"


def other_job(runtime: dict[str, Any]) -> None:
    node_job(runtime)["name"] = "worker"


def replicas(runtime: dict[str, Any]) -> None:
    node_job(runtime)["replicas"] = 4


def subdomain(runtime: dict[str, Any]) -> None:
    runtime["spec"]["template"]["spec"]["network"] = {"subdomain": "x"}


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (no_policy, "has no mlPolicy.jax"),
        (torch, "has no mlPolicy.jax"),
        (no_step, "marks nothing as its training step"),
        (other_container, "no container 'node'.* it has trainer"),
        (other_job, "no replicated job 'node', it has worker"),
        (replicas, "4 replicas"),
        (subdomain, "cannot find process 0"),
    ],
)
def test_a_runtime_that_would_train_alone_is_refused(
    spoil: Callable[[dict[str, Any]], None], named: str
) -> None:
    runtime = stock_runtime()
    check_runtime(runtime)
    spoil(runtime)
    with pytest.raises(SpecError, match=named):
        check_runtime(runtime)


def test_the_stock_runtime_is_taken_with_a_warning_of_what_is_lost() -> None:
    spec = job(pods={"runtime": "jax-distributed", "image": "team/train:1"})
    (warning,) = lost(spec, stock_runtime())
    assert "restartPolicy OnFailure, backoffLimit 6" in warning


def test_a_runtime_that_could_not_be_read_is_warned_of_as_if_it_had_defaults() -> None:
    unread = assumed_runtime(RuntimeRef("ClusterTrainingRuntime", "team-jax"))
    (warning,) = lost(job(pods={"image": "team/train:1"}), unread)
    assert "team-jax restarts single processes" in warning


def test_a_runtime_with_an_image_of_its_own_is_pointed_out() -> None:
    image, _ = lost(job(pods={"runtime": "jax-distributed"}), stock_runtime())
    assert "must hold kfp-jax and kfp_jax_runtime.mnist" in image


def test_a_runtime_that_lets_failed_processes_lie_loses_nothing() -> None:
    runtime = stock_runtime()
    node_pod(runtime)["restartPolicy"] = "Never"
    node_job(runtime)["template"]["spec"]["backoffLimit"] = 0
    assert lost(job(pods={"image": "team/train:1"}), runtime) == []


@pytest.mark.parametrize("runtime", [shipped_runtime(CPU), own_runtime(job(), identity())])
def test_on_our_runtimes_nothing_is_lost(runtime: dict[str, Any]) -> None:
    assert lost(job(), runtime) == []
