from typing import Any

import pytest
from fakes.jobs import gpus, identity, job
from fakes.runtimes import node_pod, stock_runtime
from kfp_jax.errors import SpecError
from kfp_jax.manifests.dialect import Dialect
from kfp_jax.manifests.pod import CPU, CUDA
from kfp_jax.manifests.runtime import (
    RuntimeRef,
    assumed_runtime,
    own_runtime,
    shipped_runtime,
)
from kfp_jax.manifests.trainjob import trainjob
from kfp_jax.pods import Resources
from kfp_jax.spec import Limits, TrainSpec

UNREAD = assumed_runtime(RuntimeRef("ClusterTrainingRuntime", "team-jax"))


def made(
    spec: TrainSpec,
    runtime: dict[str, Any] | None = None,
    dialect: Dialect = Dialect.V2_3,
    **who: Any,
) -> Any:
    runtime = shipped_runtime(CPU) if runtime is None else runtime
    return trainjob(spec, identity(**who), runtime=runtime, dialect=dialect)["spec"]


def pod_patch(spec: TrainSpec, runtime: dict[str, Any]) -> Any:
    (patch,) = made(spec, runtime)["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    return node["template"]["spec"]["template"]


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_the_number_of_nodes_is_always_said(nodes: int) -> None:
    assert made(job(num_nodes=nodes))["trainer"]["numNodes"] == nodes


@pytest.mark.parametrize(
    "runtime", [shipped_runtime(CPU), stock_runtime(), UNREAD, own_runtime(job(), identity())]
)
def test_no_variable_of_jax_is_in_the_trainers_environment(runtime: dict[str, Any]) -> None:
    spec = job(env={"JAX_DEBUG_NANS": "1", "A": "b"}, pods={"resources": gpus()})
    names = [item["name"] for item in made(spec, runtime)["trainer"]["env"]]
    assert "A" in names
    assert not [name for name in names if name.startswith("JAX_")]


def test_a_job_on_a_runtime_of_its_own_patches_nothing() -> None:
    spec = job(max_restarts=1, pods={"resources": gpus(), "node_selector": {"a": "b"}})
    found = made(spec, own_runtime(spec, identity()))
    assert found["runtimeRef"] == {
        "apiGroup": "trainer.kubeflow.org",
        "kind": "TrainingRuntime",
        "name": identity().name,
    }
    assert "runtimePatches" not in found
    assert "resourcesPerNode" not in found["trainer"]


def test_no_patch_sets_a_variable_of_the_training_container() -> None:
    spec = job(pods={"runtime": "jax-distributed", "secret_env": {"T": "s/k"}})
    (container,) = pod_patch(spec, stock_runtime())["spec"]["containers"]
    assert "env" not in container


def test_the_pods_carry_the_jobs_labels() -> None:
    spec = job()
    labels = pod_patch(spec, shipped_runtime(CPU))["metadata"]["labels"]
    assert labels["kfp-jax/job"] == identity().name
    assert labels["sidecar.istio.io/inject"] == "false"


def test_a_queue_holds_the_trainjob_and_not_its_jobset() -> None:
    found = trainjob(
        job(pods={"queue": "q"}),
        identity(),
        runtime=shipped_runtime(CPU),
        dialect=Dialect.V2_3,
    )
    assert found["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"
    assert "kueue" not in str(found["spec"])


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        pytest.param(Resources(), None, id="nothing"),
        pytest.param(
            gpus(4),
            {
                "requests": {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4"},
                "limits": {"memory": "32Gi", "nvidia.com/gpu": "4"},
            },
            id="devices-alone",
        ),
        pytest.param(
            Resources(memory="1Gi"),
            {"requests": {"cpu": "8", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
            id="memory-alone",
        ),
    ],
)
@pytest.mark.parametrize("dialect", Dialect)
def test_resources_are_sent_whole_so_that_every_trainer_makes_the_same_pod(
    asked: Resources, sent: dict[str, Any] | None, dialect: Dialect
) -> None:
    runtime = stock_runtime()
    node_pod(runtime)["containers"][0]["resources"] = {
        "requests": {"cpu": "8", "memory": "32Gi"},
        "limits": {"memory": "32Gi"},
    }
    trainer = made(job(pods={"resources": asked}), runtime, dialect)["trainer"]
    assert trainer.get("resourcesPerNode") == sent


def test_tolerations_of_the_runtime_are_kept() -> None:
    spec = job(pods={"resources": gpus(), "tolerations": ({"key": "team"},)})
    (gpu,) = CUDA.tolerations
    assert pod_patch(spec, shipped_runtime(CUDA))["spec"]["tolerations"] == [gpu, {"key": "team"}]


def test_the_accelerators_taint_is_tolerated_on_any_runtime() -> None:
    (gpu,) = CUDA.tolerations
    spec = job(pods={"resources": gpus()})
    assert pod_patch(spec, stock_runtime())["spec"]["tolerations"] == [gpu]
    assert "tolerations" not in pod_patch(spec, shipped_runtime(CUDA))["spec"]


def test_a_runtime_that_says_nothing_of_security_gets_ours() -> None:
    for runtime in (stock_runtime(), UNREAD):
        patch = pod_patch(job(), runtime)["spec"]
        assert patch["securityContext"]["runAsNonRoot"] is True
        assert patch["containers"][0]["securityContext"]["allowPrivilegeEscalation"] is False


def test_a_runtime_that_chose_its_security_keeps_it() -> None:
    runtime = stock_runtime()
    node_pod(runtime)["containers"][0]["securityContext"] = {"privileged": True}
    patch = pod_patch(job(), runtime)["spec"]
    assert "securityContext" not in patch
    assert "securityContext" not in patch["containers"][0]


def test_shared_memory_is_added_where_the_runtime_has_none() -> None:
    paths = [
        [item["mountPath"] for item in pod_patch(job(), r)["spec"]["containers"][0]["volumeMounts"]]
        for r in (stock_runtime(), shipped_runtime(CPU))
    ]
    assert paths == [["/results", "/dev/shm"], ["/results"]]


def test_the_runtimes_own_volumes_count_as_places_for_results() -> None:
    runtime = stock_runtime()
    node_pod(runtime)["containers"][0]["volumeMounts"] = [{"name": "x", "mountPath": "/shared"}]
    assert made(job(output_uri="/shared/out"), runtime)
    with pytest.raises(SpecError, match="output_uri '/elsewhere' is on no volume"):
        made(job(output_uri="/elsewhere"), runtime)
    assert made(job(output_uri="/elsewhere"), UNREAD)  # whose volumes are not known


@pytest.mark.parametrize(("deadline", "seconds"), [(0.0, None), (0.5, 301), (3600.0, 3900)])
def test_the_clusters_deadline_comes_after_the_launchers(
    deadline: float, seconds: int | None
) -> None:
    assert made(job(limits=Limits(deadline=deadline))).get("activeDeadlineSeconds") == seconds


@pytest.mark.parametrize(("dialect", "fits"), [(Dialect.V2_2, False), (Dialect.V2_3, True)])
def test_an_argument_that_this_trainer_does_not_take_is_refused(
    dialect: Dialect, fits: bool
) -> None:
    spec = job(program="", command=("x" * 65_537,))
    if fits:
        assert made(spec, dialect=dialect)
        return
    with pytest.raises(
        SpecError, match=r"65,537 characters, but Trainer 2\.2 takes at most 65,536"
    ):
        made(spec, dialect=dialect)


def test_the_runtimes_other_jobs_count_for_the_name() -> None:
    runtime = stock_runtime()
    runtime["spec"]["template"]["spec"]["replicatedJobs"].append({"name": "dataset-initializer"})
    assert made(job(), runtime, name="a" * 33)
    with pytest.raises(SpecError, match="room for 33"):
        made(job(), runtime, name="a" * 34)
