from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kfp import compiler, dsl, kubernetes
from kfp_jax.components import train
from kfp_jax.errors import SpecError
from kfp_jax.images import PREFIX_VARIABLE
from kfp_jax.pods import Pods, Resources, Volume
from kfp_jax.task_config import JobSettings, job_settings

# As a KFP 2.17.0 backend hands it over.
RECEIVED: dict[str, Any] = {
    "affinity": {"nodeAffinity": {}},
    "tolerations": [{"effect": "NoSchedule", "key": "gpu", "operator": "Exists"}],
    "node_selector": {"pool": "a100"},
    "env": [
        {"name": "MODE", "value": "fast"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
        {"name": "RUN", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['x']"}}},
    ],
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    "volume_mounts": [{"name": "data", "mountPath": "/data", "readOnly": True}],
    "resources": {
        "limits": {"cpu": "4", "memory": "8G", "nvidia.com/gpu": "2"},
        "requests": {"cpu": "2"},
    },
}


def received(**changes: Any) -> Any:
    return SimpleNamespace(**RECEIVED | changes)


def test_what_is_set_on_a_task_reaches_the_pods() -> None:
    settings = job_settings(received(), {})
    assert settings.env == {"MODE": "fast"}
    assert settings.pods == Pods(
        resources=Resources(
            cpu="2",
            memory="8G",
            cpu_limit="4",
            memory_limit="8G",
            accelerators={"nvidia.com/gpu": 2},
        ),
        node_selector={"pool": "a100"},
        tolerations=({"effect": "NoSchedule", "key": "gpu", "operator": "Exists"},),
        affinity={"nodeAffinity": {}},
        volumes=(
            Volume(
                name="data",
                mount_path="/data",
                source={"persistentVolumeClaim": {"claimName": "data"}},
                read_only=True,
            ),
        ),
        secret_env={"TOKEN": "hub/token"},
    )


def test_where_our_images_are_is_not_passed_on() -> None:
    """It is set on the task itself, and a job may not set what begins with KFP_JAX_."""
    env = [{"name": PREFIX_VARIABLE, "value": "registry.example.com/team"}]
    assert job_settings(received(env=env), {}).env == {}


def test_an_empty_config_sets_nothing() -> None:
    assert job_settings(dsl.TaskConfig(), {}) == JobSettings()
    empty = dict.fromkeys(RECEIVED) | {"env": [], "resources": {}}
    assert job_settings(SimpleNamespace(**empty), {}) == JobSettings()


def test_the_task_wins_over_pods_and_leaves_the_rest() -> None:
    pods = {
        "image": "mine:1",
        "queue": "team",
        "node_selector": {"zone": "b", "pool": "old"},
        "resources": {"cpu": "1", "accelerators": {"amd.com/gpu": 1}},
    }
    found = job_settings(received(), pods).pods
    assert (found.image, found.queue) == ("mine:1", "team")
    assert found.node_selector == {"zone": "b", "pool": "a100"}
    assert (found.resources.cpu, found.resources.accelerators) == ("2", {"nvidia.com/gpu": 2})


@pytest.mark.parametrize("count", ["3", "32"])
def test_any_number_of_devices_goes_through(count: str) -> None:
    limits = {"limits": {"nvidia.com/gpu": count}}
    found = job_settings(received(resources=limits), {}).pods.resources
    assert found.accelerators == {"nvidia.com/gpu": int(count)}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param(
            {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]},
            "Variable A of the task comes from configMapKeyRef",
            id="config-map",
        ),
        pytest.param({"volumes": []}, "mounts volume data", id="no-volume"),
        pytest.param(
            {"resources": {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "1"}}},
            "asks for 1 nvidia.com/gpu and limits it to 2",
            id="two-numbers",
        ),
    ],
)
def test_what_has_no_place_in_a_job_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        job_settings(received(**changes), {})


def test_pods_of_the_wrong_form_are_refused() -> None:
    with pytest.raises(SpecError, match="imagee"):
        job_settings(dsl.TaskConfig(), {"imagee": "x"})


def test_names_of_secrets_may_be_inputs_of_the_pipeline(tmp_path: Path) -> None:
    @dsl.pipeline(name="secrets")
    def secrets(secret: str, registry: str) -> None:
        pods = {"image_pull_secrets": [registry]}
        task = train(program="kfp_jax_runtime.mnist", pods=pods)
        kubernetes.use_secret_as_env(task, secret_name=secret, secret_key_to_env={"k": "TOKEN"})

    compiler.Compiler().compile(secrets, str(tmp_path / "secrets.yaml"))
    compiled = (tmp_path / "secrets.yaml").read_text()
    assert "inputs.parameters[''pipelinechannel--registry'']" in compiled
    assert "componentInputParameter: secret" in compiled
