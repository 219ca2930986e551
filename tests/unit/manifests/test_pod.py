from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fakes.jobs import RESULTS, gpus, identity, job
from kfp_jax.errors import SpecError
from kfp_jax.manifests.dialect import Dialect
from kfp_jax.manifests.jobset import jobset
from kfp_jax.manifests.pod import check_folders, flavor, resources, volumes, warnings
from kfp_jax.manifests.runtime import own_runtime
from kfp_jax.manifests.tpu import ACCELERATOR, TOPOLOGY, check_slice
from kfp_jax.manifests.trainjob import trainjob
from kfp_jax.pods import Pods, Resources, Volume
from kfp_jax.spec import TrainSpec


def pod(spec: TrainSpec) -> Any:
    return jobset(spec, identity())["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]


def node(spec: TrainSpec) -> Any:
    (container,) = pod(spec)["spec"]["containers"]
    return container


@pytest.mark.parametrize(
    ("accelerators", "name"),
    [
        ({}, "cpu"),
        ({"nvidia.com/gpu": 1}, "cuda"),
        ({"nvidia.com/mig-1g.5gb": 1}, "cuda"),
        ({"google.com/tpu": 4}, "tpu"),
        ({"rdma.example.com/hca": 1}, "cpu"),
    ],
)
def test_the_accelerator_decides_image_and_platform(
    accelerators: dict[str, int], name: str
) -> None:
    assert flavor(Pods(resources=Resources(accelerators=accelerators))).name == name


def test_a_gpu_job_does_not_fall_back_to_cpu_in_silence() -> None:
    assert {"name": "JAX_PLATFORMS", "value": "cuda,cpu"} in node(job(pods={"resources": gpus()}))[
        "env"
    ]


def test_the_users_platform_wins() -> None:
    env = node(job(pods={"resources": gpus()}, env={"JAX_PLATFORMS": "cuda"}))["env"]
    assert [item for item in env if item["name"] == "JAX_PLATFORMS"] == [
        {"name": "JAX_PLATFORMS", "value": "cuda"}
    ]


def test_a_pod_meets_the_restricted_security_standard() -> None:
    spec, container = pod(job())["spec"], node(job())
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert spec["automountServiceAccountToken"] is False


def test_no_mesh_puts_a_sidecar_into_a_pod() -> None:
    assert pod(job())["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"


def test_asking_for_devices_alone_keeps_cpu_and_memory() -> None:
    asked = resources(gpus(4), {"requests": {"cpu": "8"}, "limits": {"memory": "32Gi"}})
    assert asked == {
        "requests": {"cpu": "8", "nvidia.com/gpu": "4"},
        "limits": {"memory": "32Gi", "nvidia.com/gpu": "4"},
    }


def test_a_pod_without_wishes_still_requests_something() -> None:
    assert node(job())["resources"] == {"requests": {"cpu": "1", "memory": "2Gi"}}


def test_shared_memory_is_ours_unless_the_user_has_it() -> None:
    (ours,) = [v for v in pod(job())["spec"]["volumes"] if "emptyDir" in v]
    assert ours["emptyDir"] == {"medium": "Memory"}
    theirs = Volume(name="s", mount_path="/dev/shm/", source={"emptyDir": {"sizeLimit": "1Gi"}})
    assert volumes((theirs,), shm=True) == [{"name": "s", "emptyDir": {"sizeLimit": "1Gi"}}]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        pytest.param({"output_uri": "out"}, "output_uri 'out' is relative", id="relative"),
        pytest.param({"output_uri": "~/out"}, "output_uri '~/out' is relative", id="home"),
        pytest.param({"output_uri": "/elsewhere"}, "output_uri '/elsewhere'.*/results/", id="lost"),
        pytest.param({"output_uri": "/results2/a"}, "output_uri '/results2/a'", id="beside"),
        pytest.param({"checkpoint_uri": "/tmp/x"}, "checkpoint_uri '/tmp/x'", id="checkpoints"),
        pytest.param({"dataset_uri": "data"}, "dataset_uri 'data' is relative", id="dataset"),
    ],
)
def test_folders_that_would_be_lost_are_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(SpecError, match=named):
        check_folders(job(**change), ["/results"])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"output_uri": "/results"}, id="the-volume-itself"),
        pytest.param({"output_uri": "file:///results/a"}, id="as-a-uri"),
        pytest.param({"output_uri": "s3://bucket/a"}, id="object-store"),
        pytest.param({"dataset_uri": "/opt/data"}, id="data-in-the-image"),
        pytest.param({"program": "", "command": ("x",), "output_uri": "out"}, id="own-command"),
    ],
)
def test_folders_that_last_are_taken(change: dict[str, Any]) -> None:
    check_folders(job(**change), ["/results/"])


def by_trainjob(spec: TrainSpec, runtime: dict[str, Any] | None = None) -> None:
    runtime = runtime or own_runtime(spec, identity())
    trainjob(spec, identity(), runtime=runtime, dialect=Dialect.V2_3)


def by_jobset(spec: TrainSpec) -> None:
    jobset(spec, identity())


CLAIM = {"persistentVolumeClaim": {"claimName": "c"}}


@pytest.mark.parametrize(
    ("volume", "refused"),
    [
        (Volume(name="v", mount_path="/v", source=CLAIM), False),
        (Volume(name="v", mount_path="/v", source=CLAIM, read_only=True), True),
        (Volume(name="v", mount_path="/v/", source=CLAIM, read_only=True), True),
        (Volume(name="v", mount_path="/v", source={"configMap": {"name": "c"}}), True),
        (Volume(name="v", mount_path="/v", source={"secret": {"secretName": "s"}}), True),
        (
            Volume(
                name="v",
                mount_path="/v",
                source={"persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
            ),
            True,
        ),
        (Volume(name="v", mount_path="/v", source={"nfs": {"server": "s", "path": "/"}}), False),
    ],
)
@pytest.mark.parametrize("make", [by_trainjob, by_jobset])
@pytest.mark.parametrize("name", ["output_uri", "checkpoint_uri", "shared_uri"])
def test_a_folder_that_the_nodes_can_only_read_is_refused(
    make: Callable[[TrainSpec], object], volume: Volume, refused: bool, name: str
) -> None:
    spec = job(**{name: "/v/out"}, pods={"volumes": (RESULTS, volume)})
    if refused:
        with pytest.raises(SpecError, match=rf"{name} '/v/out' is on the volume at /v/?, which"):
            make(spec)
    else:
        make(spec)


@pytest.mark.parametrize("make", [by_trainjob, by_jobset])
def test_the_deepest_volume_decides(make: Callable[[TrainSpec], object]) -> None:
    data = Volume(name="data", mount_path="/data", source=CLAIM, read_only=True)
    out = Volume(name="out", mount_path="/data/out", source=CLAIM)
    make(job(output_uri="/data/out/a", pods={"volumes": (out, data)}))
    make(job(dataset_uri="/data/mnist", pods={"volumes": (RESULTS, data)}))
    with pytest.raises(SpecError, match="volume at /data,"):
        make(job(output_uri="/data/other", pods={"volumes": (out, data)}))


@pytest.mark.parametrize("make", [by_trainjob, by_jobset])
def test_a_folder_is_looked_for_where_it_is(make: Callable[[TrainSpec], object]) -> None:
    make(job(output_uri="/results/a/../b"))
    with pytest.raises(SpecError, match="on no volume"):
        make(job(output_uri="/results/../b"))


def test_a_volume_of_the_runtime_can_be_read_only() -> None:
    runtime = own_runtime(job(pods={"volumes": (replace(RESULTS, read_only=True),)}), identity())
    with pytest.raises(SpecError, match="volume at /results,"):
        by_trainjob(job(pods={"volumes": ()}), runtime)
    by_trainjob(job(), runtime)  # the job's own goes over it


@pytest.mark.parametrize("name", ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "db_password"])
def test_a_secret_in_plain_text_is_warned_of_without_its_value(name: str) -> None:
    (warning,) = warnings(job(env={name: "hunter2", "TOKENIZER": "bpe"}))
    assert name in warning
    assert "hunter2" not in warning


def tpus(topology: str, chips: int, nodes: int, accelerator: str = "tpu-v6e-slice") -> TrainSpec:
    return job(
        num_nodes=nodes,
        pods={
            "resources": Resources(accelerators={"google.com/tpu": chips}),
            "node_selector": {TOPOLOGY: topology, ACCELERATOR: accelerator},
        },
    )


@pytest.mark.parametrize(
    ("topology", "chips", "nodes"), [("2x4", 4, 2), ("2x2x4", 4, 4), ("2x4", 8, 1), ("1x1", 1, 1)]
)
def test_a_slice_with_a_node_for_each_host_is_taken(topology: str, chips: int, nodes: int) -> None:
    check_slice(tpus(topology, chips, nodes))


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        pytest.param(tpus("2x4", 4, 3), "8 chips / 4 per node = 2 nodes", id="too-many-nodes"),
        pytest.param(tpus("2x4", 3, 2), "8 chips / 3 per node = 2.66667 nodes", id="uneven"),
        pytest.param(tpus("big", 4, 2), "'big'", id="no-topology"),
        pytest.param(tpus("1x1", 1, 1, "tpu-v5-lite-podslice"), "1x1 does not exist", id="1x1"),
    ],
)
def test_a_slice_that_would_wait_for_ever_is_refused(spec: TrainSpec, named: str) -> None:
    with pytest.raises(SpecError, match=named):
        jobset(spec, identity())
