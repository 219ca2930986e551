"""The options of pods become a value."""

import json
from pathlib import Path
from typing import Any

import pytest
from kfp_jax.cli.options import pods_of_options, train_spec
from kfp_jax.errors import SpecError
from kfp_jax.pods import Pods, Resources, Volume

CLAIM = {"persistentVolumeClaim": {"claimName": "team.data"}}


@pytest.mark.parametrize(
    ("options", "pods"),
    [
        pytest.param({}, Pods(), id="none"),
        pytest.param({"image": "a/b:1"}, Pods(image="a/b:1"), id="image"),
        pytest.param(
            {"cpu": "4", "memory": "16Gi", "gpus": "2"},
            Pods(resources=Resources(cpu="4", memory="16Gi", accelerators={"nvidia.com/gpu": 2})),
            id="resources",
        ),
        pytest.param(
            {"gpus": "google.com/tpu=4"},
            Pods(resources=Resources(accelerators={"google.com/tpu": 4})),
            id="other-devices",
        ),
        pytest.param(
            {"volume": ["team.data:/data:ro"]},
            Pods(
                volumes=(
                    Volume(name="team-data", mount_path="/data", source=CLAIM, read_only=True),
                )
            ),
            id="claim",
        ),
        pytest.param(
            {"pods": '{"image": "a", "queue": "q", "resources": {"cpu": "1"}}', "cpu": "2"},
            Pods(image="a", queue="q", resources=Resources(cpu="2")),
            id="an-option-wins-over-json",
        ),
    ],
)
def test_options_of_pods(options: dict[str, Any], pods: Pods) -> None:
    assert pods_of_options(**options) == pods


def test_all_else_of_pods_comes_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"service_account": "trainer"}))
    spec = train_spec(program="m", pods=str(path), queue="q", output="s3://bucket/out")
    assert spec.pods == Pods(service_account="trainer", queue="q")
    assert spec.output_uri == "s3://bucket/out"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param({"volume": ["data"]}, "write --volume claim:/path", id="no-path"),
        pytest.param({"volume": ["data:/d:rw"]}, "write --volume claim:/path", id="mode"),
        pytest.param({"gpus": "two"}, "accelerators nvidia.com/gpu is 'two'", id="count"),
        pytest.param({"pods": "no-such-file"}, "cannot be read", id="no-file"),
        pytest.param({"pods": "{"}, "is no JSON", id="no-json"),
        pytest.param(
            {"pods": '{"image": "a", "image": "b"}'},
            "--pods has 'image' twice in one object",
            id="twice",
        ),
        pytest.param({"pods": '{"immage": "a"}'}, "Unknown key 'immage'", id="unknown-key"),
        pytest.param({"pods": "{}", "memory": "16"}, "at least 1Mi", id="memory-without-unit"),
    ],
)
def test_a_wrong_option_is_refused_in_one_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        pods_of_options(**options)
