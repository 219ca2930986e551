"""The compiled pipelines are what `pipelines/compiled` holds; `make compile` writes them anew."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp_jax_pipelines import NAMES

COMPILED = Path(__file__).parents[2] / "pipelines" / "compiled"
# The argument limit of Linux, which KFP's own path through a pod has as well.
MAX_ARGUMENT_BYTES = 128 * 1024
LAUNCHING = {"prepare-data", "train", "evaluate", "sweep"}


def load(path: Path) -> dict[str, Any]:
    spec = next(iter(yaml.safe_load_all(path.read_text())))
    assert isinstance(spec, dict)
    # Follows the installed kfp, not our source.
    return {key: value for key, value in spec.items() if key != "sdkVersion"}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    command = [sys.executable, "-m", "kfp_jax_pipelines", "compile", "--folder", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_compiled_pipelines_are_up_to_date(
    fresh: Path, name: str, request: pytest.FixtureRequest
) -> None:
    kept = COMPILED / f"{name}.yaml"
    if request.config.getoption("--update-golden"):
        kept.write_text((fresh / kept.name).read_text())
    assert load(fresh / kept.name) == load(kept), "run `make compile` and review the difference"


def test_there_is_a_file_for_each_pipeline_and_no_other() -> None:
    assert sorted(path.stem for path in COMPILED.glob("*.yaml")) == sorted(NAMES)


def tasks(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns all tasks of all scopes by their component's name."""
    scopes = [spec["root"], *spec["components"].values()]
    return {
        task["componentRef"]["name"].removeprefix("comp-"): task
        for scope in scopes
        for task in scope.get("dag", {}).get("tasks", {}).values()
    }


@pytest.mark.parametrize("name", NAMES)
def test_launching_tasks_are_never_cached(name: str) -> None:
    found = tasks(load(COMPILED / f"{name}.yaml"))
    launching = LAUNCHING & found.keys()
    assert launching
    for task in launching:
        assert not found[task]["cachingOptions"].get("enableCache", False), task


@pytest.mark.parametrize("name", NAMES)
def test_tasks_install_nothing_and_stay_small(name: str) -> None:
    spec = load(COMPILED / f"{name}.yaml")
    for executor in spec["deploymentSpec"]["executors"].values():
        container = executor["container"]
        text = " ".join(container["command"] + container["args"])
        assert "pip install" not in text
        assert len(text) < 4096
        assert container["image"].startswith("kfp-jax/launcher-python:")


@pytest.mark.parametrize("name", NAMES)
def test_conditions_look_at_single_outputs(name: str) -> None:
    """KFP runs an `If` on a named output as false, in silence."""
    spec = load(COMPILED / f"{name}.yaml")
    for task in tasks(spec).values():
        condition = task.get("triggerPolicy", {}).get("condition", "")
        if condition:
            inputs = task["inputs"]["parameters"]
            keys = [
                item["taskOutputParameter"]["outputParameterKey"]
                for item in inputs.values()
                if "taskOutputParameter" in item
            ]
            assert set(keys) == {"Output"}
