import json
from contextlib import suppress
from dataclasses import fields
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kfp_jax import quantities
from kfp_jax.errors import SpecError
from kfp_jax.pods import Pods, Resources, Volume
from kfp_jax.spec import TrainSpec

PVC = {"persistentVolumeClaim": {"claimName": "data"}}


def volume(**changes: Any) -> Volume:
    return Volume(**{"name": "data", "mount_path": "/data", "source": PVC, **changes})


@pytest.mark.parametrize(
    ("values", "named"),
    [
        pytest.param({"cpu": "two"}, "cpu is 'two'", id="cpu-in-words"),
        pytest.param({"cpu": 0}, "cpu is '0'", id="no-cpu"),
        pytest.param({"cpu": "-1"}, "cpu is '-1'", id="negative-cpu"),
        pytest.param({"memory": "16GB"}, "memory is '16GB'", id="not-a-unit-of-kubernetes"),
        pytest.param({"memory": 16}, "memory is '16'", id="sixteen-bytes"),
        pytest.param({"memory": "400m"}, "memory is '400m'", id="less-than-a-byte"),
        pytest.param({"memory": ["1Gi"]}, "1Gi", id="memory-in-a-list"),
        pytest.param({"cpu": "4", "cpu_limit": "500m"}, "cpu_limit is 500m", id="limit-below"),
        pytest.param(
            {"memory": "2Gi", "memory_limit": "2G"}, "memory_limit is 2G", id="2G-below-2Gi"
        ),
        pytest.param({"accelerators": {"nvidia.com/gpu": -1}}, "gpu is -1", id="negative-gpus"),
        pytest.param({"accelerators": {"nvidia.com/gpu": 0.5}}, "gpu is 0.5", id="half-a-gpu"),
        pytest.param({"accelerators": {"gpu": 1}}, "'gpu'", id="not-a-full-name"),
        pytest.param({"accelerators": "4"}, "accelerators is '4'", id="not-a-mapping"),
    ],
)
def test_bad_resources_are_refused_by_name(values: dict[str, Any], named: str) -> None:
    with pytest.raises(SpecError) as caught:
        Resources(**values)
    assert named in str(caught.value)


@pytest.mark.parametrize("cpu", ["500m", "4", "0.5", 2, 2.0])
def test_amounts_may_be_text_or_numbers(cpu: object) -> None:
    assert Resources(cpu=cpu, memory="16Gi").requests()["cpu"] == str(cpu)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [3, 32, "3", 3.0])
def test_any_number_of_devices_is_both_request_and_limit(count: Any) -> None:
    resources = Resources(accelerators={"nvidia.com/gpu": count})
    assert resources.requests() == resources.limits() == {"nvidia.com/gpu": str(int(count))}


def test_a_limit_follows_the_request_unless_it_is_given() -> None:
    resources = Resources(cpu="1", memory="2Gi", cpu_limit="4")
    assert resources.requests() == {"cpu": "1", "memory": "2Gi"}
    assert resources.limits() == {"cpu": "4", "memory": "2Gi"}


@pytest.mark.parametrize(
    ("text", "number"),
    [("500m", "0.5"), ("1e3", "1000"), ("1Ki", "1024"), (".5", "0.5"), ("1.5Gi", "1610612736")],
)
def test_quantities_are_numbers(text: str, number: str) -> None:
    assert quantities.amount(text) == Decimal(number)


@given(st.integers(1, 2**50))
def test_the_units_agree(count: int) -> None:
    assert quantities.amount(f"{count}Ki") == quantities.amount(str(count * 1024))
    assert quantities.amount(f"{count}k") == quantities.amount(f"{count}000")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        pytest.param({"name": "My_Data"}, "My_Data", id="name"),
        pytest.param({"mount_path": "data"}, "'data'", id="relative-path"),
        pytest.param({"mount_path": "/"}, "'/'", id="root"),
        pytest.param({"mount_path": "/a/../b"}, "'/a/../b'", id="path-that-leaves"),
        pytest.param({"source": {}}, "0 sources", id="no-source"),
        pytest.param({"source": {**PVC, "emptyDir": {}}}, "2 sources", id="two-sources"),
        pytest.param({"sub_path": 5}, "sub_path of volume data is 5; give text", id="sub-path"),
        pytest.param({"read_only": "no"}, "read_only of volume data is 'no'", id="read-only"),
        pytest.param({"source": "claim"}, "JSON object", id="source-is-text"),
    ],
)
def test_bad_volumes_are_refused_by_name(values: dict[str, Any], named: str) -> None:
    with pytest.raises(SpecError) as caught:
        volume(**values)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        pytest.param({"image": "a b"}, "image 'a b'", id="image-with-a-space"),
        pytest.param({"image": "x" * 501}, "at most 500", id="image-too-long"),
        pytest.param({"node_selector": ["a"]}, "node_selector", id="selector-is-a-list"),
        pytest.param({"tolerations": ({"kee": "x"},)}, "'kee'", id="toleration-key"),
        pytest.param({"tolerations": ("x",)}, "toleration is 'x'", id="toleration-is-text"),
        pytest.param({"affinity": [1]}, "affinity", id="affinity-is-a-list"),
        pytest.param({"secret_env": {"T": "secret"}}, "secret_env T", id="secret-without-key"),
        pytest.param({"service_account": "A b"}, "service_account", id="account"),
        pytest.param({"image_pull_secrets": ("A",)}, "image_pull_secrets", id="pull-secret"),
        pytest.param({"queue": "q/r"}, "queue", id="queue"),
        pytest.param({"runtime": "Pod/x"}, "runtime 'Pod/x'", id="runtime-of-another-kind"),
        pytest.param({"patch": {"a": {1}}}, "patch", id="patch-is-no-json"),
        pytest.param(
            {"volumes": (volume(), volume(name="more"))}, "both mounted at /data", id="same-path"
        ),
        pytest.param(
            {"volumes": (volume(), volume(mount_path="/x", source={"emptyDir": {}}))},
            "two sources",
            id="same-name",
        ),
    ],
)
def test_bad_pods_are_refused_by_name(values: dict[str, Any], named: str) -> None:
    with pytest.raises(SpecError) as caught:
        Pods(**values)
    sentence = str(caught.value)
    assert named in sentence
    assert "\n" not in sentence
    assert len(sentence) < 400


def test_a_secret_given_as_itself_is_not_repeated() -> None:
    with pytest.raises(SpecError) as caught:
        Pods(secret_env={"HF_TOKEN": "hf_abcdef"})
    assert "hf_abcdef" not in str(caught.value)


@pytest.mark.parametrize(
    ("env", "secret_env", "named"),
    [
        pytest.param(
            {}, {"JAX_PROCESS_ID": "s/k"}, "secret_env sets JAX_PROCESS_ID", id="reserved"
        ),
        pytest.param({}, {"A-B": "s/k"}, "'A-B'", id="name"),
        pytest.param({"T": "x"}, {"T": "s/k"}, "T is in env and in secret_env", id="twice"),
    ],
)
def test_secret_variables_obey_the_rules_of_variables(
    env: dict[str, str], secret_env: dict[str, str], named: str
) -> None:
    with pytest.raises(SpecError, match=named):
        TrainSpec(name="t", program="m", output_uri="o", env=env, pods=Pods(secret_env=secret_env))


@given(
    st.sampled_from([item.name for item in fields(Pods)]),
    st.one_of(
        *(st.none(), st.booleans(), st.integers(), st.text(max_size=3)),
        *(st.lists(st.integers(), max_size=2), st.just({"a": 1}), st.just([{}])),
    ),
)
def test_whatever_json_is_given_is_taken_or_refused(name: str, value: Any) -> None:
    with suppress(SpecError):
        Pods.from_json({name: value})


def test_nulls_of_a_toleration_are_left_out_and_a_selector_is_text() -> None:
    pods = Pods(
        tolerations=({"key": "a", "operator": "Exists", "value": None},),
        node_selector={"gpu": True},  # type: ignore[dict-item]
    )
    assert pods.tolerations == ({"key": "a", "operator": "Exists"},)
    assert pods.node_selector == {"gpu": "true"}


def test_json_both_ways() -> None:
    spec = TrainSpec(
        name="t",
        program="m",
        output_uri="/data/out",
        pods=Pods(
            image="team/train:3",
            resources=Resources(cpu="2", accelerators={"nvidia.com/gpu": 1}),
            tolerations=({"key": "a"},),
            volumes=(volume(), volume(mount_path="/more", sub_path="more", read_only=True)),
            secret_env={"T": "secret/key"},
            image_pull_secrets=("registry",),
            runtime="TrainingRuntime/team-jax.v2",
            patch={"template": {"spec": {"network": None}}},
        ),
    )
    again = TrainSpec.from_json(json.loads(json.dumps(spec.to_json())))
    assert again == spec
    assert again.hash() == spec.hash()


@pytest.mark.parametrize(
    ("pods", "named"),
    [
        ({"gpus": 1}, r"'gpus' in pods.*resources"),
        ({"resources": {"gpu": 1}}, r"'gpu' in resources.*accelerators"),
        ({"volumes": [{"path": "/x"}]}, r"'path' in volume.*mount_path"),
        ({"volumes": [{"name": "x"}]}, r"Volume 'x' lacks mount_path, source; give"),
        ({"volumes": [{}]}, r"lacks name, mount_path, source"),
        ({"volumes": 5}, r"volumes is 5; give a list, for example \[\{"),
        ({"volumes": None}, r"volumes is None; give a list"),
        ({"volumes": {"name": "x"}}, r"volumes is .*; give a list"),
        ({"image": 5}, r"image is 5; give text"),
        ({"image": None}, r"image is None; give text"),
        ({"runtime": 5}, r"runtime is 5; give text"),
        ({"runtime": 0}, r"runtime is 0; give text"),
        ({"service_account": 0}, r"service_account 0 is not valid"),
        ({"tolerations": 5}, r"tolerations is 5; give a list, for example \[\{"),
        ({"tolerations": {"key": "x"}}, r"tolerations is .*; give a list"),
        ({"image_pull_secrets": "registry"}, r"is 'registry'; give a list, for example \["),
        ({"image_pull_secrets": 5}, r"image_pull_secrets is 5; give a list"),
        ({"volumes": ["x"]}, r"volume is 'x'"),
        ("x", r"pods is 'x'"),
    ],
)
def test_unknown_keys_are_named_with_the_valid_ones(pods: object, named: str) -> None:
    with pytest.raises(SpecError, match=named):
        TrainSpec.from_json({"name": "t", "program": "m", "output_uri": "o", "pods": pods})


CANONICAL = {
    "1000m": "1",
    "1500m": "1500m",
    "0.2": "200m",
    ".5": "500m",
    "4": "4",
    "2000": "2k",
    "1.0": "1",
    "1024Mi": "1Gi",
    "1536Mi": "1536Mi",
    "1.5Gi": "1536Mi",
    "0.5Ki": "512",
    "2048Ki": "2Mi",
    "8G": "8G",
    "8000M": "8G",
    "500M": "500M",
    "1e3": "1e3",
    "12E6": "12E6",
    "5e2": "500",
    "16384Ti": "16Pi",
    "100u": "100u",
    "0": "0",
}


@pytest.mark.parametrize("text", CANONICAL)
def test_quantities_are_written_as_kubernetes_writes_them(text: str) -> None:
    assert quantities.canonical(text) == CANONICAL[text]
    assert quantities.amount(CANONICAL[text]) == quantities.amount(text)
