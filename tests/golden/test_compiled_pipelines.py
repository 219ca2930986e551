"""The compiled pipelines are what `pipelines/compiled` holds; `make compile` writes them anew."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import compiler, dsl
from kfp_jax.components import evaluate, select_best, suggest, trial
from kfp_jax.images import PREFIX_VARIABLE
from kfp_jax_pipelines import NAMES

COMPILED = Path(__file__).parents[2] / "pipelines" / "compiled"
# The argument limit of Linux, which KFP's own path through a pod has as well.
MAX_ARGUMENT_BYTES = 128 * 1024
LAUNCHING = {"prepare-data", "train", "trial", "evaluate", "sweep", "promote-if-better"}


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


def test_compiling_again_changes_no_byte(fresh: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kfp_jax_pipelines", "compile", "--folder", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    for name in NAMES:
        assert (tmp_path / f"{name}.yaml").read_bytes() == (fresh / f"{name}.yaml").read_bytes()


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
        assert len(text) < 2304
        assert container["image"].startswith("kfp-jax/launcher-python:")


def test_another_registry_changes_the_images_and_tells_the_tasks(tmp_path: Path) -> None:
    """And nothing else. A task is told because its jobs take their image from there as well."""
    prefix = "registry.example.com:5000/team"
    command = [sys.executable, "-m", "kfp_jax_pipelines", "compile", "--folder", str(tmp_path)]
    environ = os.environ | {PREFIX_VARIABLE: prefix}
    subprocess.run(command, check=True, capture_output=True, env=environ)
    for name in NAMES:
        moved = load(tmp_path / f"{name}.yaml")
        for executor in moved["deploymentSpec"]["executors"].values():
            container = executor["container"]
            assert container["env"].pop() == {"name": PREFIX_VARIABLE, "value": prefix}
            assert container["image"].startswith(f"{prefix}/launcher-python:")
            container["image"] = container["image"].replace(prefix, "kfp-jax")
            if not container["env"]:
                del container["env"]
        assert moved == load(COMPILED / f"{name}.yaml")


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


LOOPS = ("mnist_sweep", "mnist_halving")


def loops(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [task for task in tasks(spec).values() if "parameterIterator" in task]


@pytest.mark.parametrize("name", LOOPS)
def test_loops_go_over_objects_a_few_at_once(name: str) -> None:
    """KFP gives items of an untyped list as text, and fails on the first task."""
    spec = load(COMPILED / f"{name}.yaml")
    found = loops(spec)
    assert len(found) == {"mnist_sweep": 1, "mnist_halving": 3}[name]
    for loop in found:
        assert loop["iteratorPolicy"] == {"parallelismLimit": 4}
        inputs = spec["components"][loop["componentRef"]["name"]]["inputDefinitions"]
        item = inputs["parameters"][loop["parameterIterator"]["itemInput"]]
        assert item["parameterType"] == "STRUCT"


@pytest.mark.parametrize("name", LOOPS)
def test_loops_take_only_their_items_from_other_tasks(name: str) -> None:
    """kfp.local hands a task in a loop the item in place of every other task's output."""
    for loop in loops(load(COMPILED / f"{name}.yaml")):
        outputs = [
            key
            for key, item in loop["inputs"]["parameters"].items()
            if "taskOutputParameter" in item
        ]
        assert outputs == [loop["parameterIterator"]["items"]["inputParameter"]]
        assert not loop["inputs"].get("artifacts")


@pytest.mark.parametrize("name", NAMES)
def test_no_task_counts_on_retries_of_the_platform(name: str) -> None:
    for task in tasks(load(COMPILED / f"{name}.yaml")).values():
        assert "retryPolicy" not in task


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_no_larger_for_more_trials(name: str) -> None:
    """Trials are in no task of their own before it runs, and a task's text is short."""
    spec = load(COMPILED / f"{name}.yaml")
    steps = [task for task in tasks_of_all_scopes(spec) if "parameterIterator" not in task]
    size = len((COMPILED / f"{name}.yaml").read_bytes())
    assert size < 6_000 * len(steps)


def tasks_of_all_scopes(spec: dict[str, Any]) -> list[dict[str, Any]]:
    scopes = [spec["root"], *spec["components"].values()]
    return [task for scope in scopes for task in scope.get("dag", {}).get("tasks", {}).values()]


def test_the_best_may_be_chosen_under_a_condition(tmp_path: Path) -> None:
    """And a step may follow it there; KFP refused both in earlier versions."""

    @dsl.pipeline(name="gated")
    def gated(space: dict, choose: bool = True) -> None:
        items = suggest(space=space)
        with dsl.ParallelFor(items.outputs["Output"]) as item:
            tried = trial(item=item, program="kfp_jax_runtime.mnist")
        with dsl.If(choose == True):  # noqa: E712  # KFP reads the comparison
            best = select_best(results=dsl.Collected(tried.outputs["Output"]))
            evaluate(model=best.outputs["model"], dataset_uri="")

    path = tmp_path / "gated.yaml"
    compiler.Compiler().compile(gated, str(path))
    found = tasks(load(path))
    assert {"select-best", "evaluate", "trial"} <= found.keys()


def test_what_is_set_on_a_task_is_for_its_job() -> None:
    spec = load(COMPILED / "mnist.yaml")["components"]["comp-train"]
    passed = {
        item["field"]: item.get("applyToTask", False) for item in spec["taskConfigPassthroughs"]
    }
    assert passed == {
        "RESOURCES": False,
        "KUBERNETES_TOLERATIONS": False,
        "KUBERNETES_NODE_SELECTOR": False,
        "KUBERNETES_AFFINITY": False,
        "ENV": True,
        "KUBERNETES_VOLUMES": True,
    }
