"""What breaks pipelines on KFP's backend and not before, held against our compiled ones."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.kfp.answers import ROOT, RUN, Answers, compiled, drive
from fakes.kfp.ir import Pipeline, load
from fakes.kfp.pods import Site, pod
from fakes.kfp.scope import State
from fakes.kfp.values import normal
from kfp import dsl, kubernetes
from kfp_jax import components
from kfp_jax.errors import SpecError
from kfp_jax.sweep.loop import loop_items, read_results, to_result
from kfp_jax.sweep.space import Space
from kfp_jax.sweep.study import Study
from kfp_jax.sweep.trial import Trial, TrialState
from kfp_jax.task_config import job_settings
from kfp_jax_pipelines import NAMES

COMPILED = Path(__file__).parents[3] / "pipelines" / "compiled"
MAX_ARGUMENT_BYTES = 128 * 1024
# Of what a task adds to a pipeline: component, executor, task and platform. A sweep has 25 inputs.
MAX_TASK_BYTES = {"sweep": 4608, "select-best": 3328}
LAUNCHES = {"cleanup", "evaluate", "prepare_data", "promote_if_better", "sweep", "train", "trial"}
SPACE = {"learning_rate": {"type": "loguniform", "low": 1e-4, "high": 1e-1}}
WORKFLOW: dict[str, Any] = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "Workflow",
    "metadata": {"name": RUN.workflow, "uid": "a-uid"},
}


def ours(name: str) -> Pipeline:
    return load(COMPILED / f"{name}.yaml")


def tasks(pipeline: Pipeline) -> list[tuple[str, Any]]:
    """Returns all tasks of all scopes."""
    scopes = [pipeline.spec["root"], *pipeline.spec["components"].values()]
    return [item for scope in scopes for item in scope.get("dag", {}).get("tasks", {}).items()]


def containers(pipeline: Pipeline) -> list[tuple[str, Any, Any]]:
    """Returns all tasks that have a pod, each with its component."""
    found = [
        (name, task, pipeline.component(task["componentRef"]["name"]))
        for name, task in tasks(pipeline)
    ]
    return [one for one in found if "executorLabel" in one[2]]


def trials(count: int) -> list[dict[str, Any]]:
    """Returns what suggest does."""
    return loop_items(
        Study(space=Space.from_json(SPACE), sampler="random", seed=1, max_trials=count),
        f"{ROOT}/mnist-sweep/{RUN.id}/prepare-data/{RUN.id}/dataset",
    )


def largest_result(inputs: dict[str, Any]) -> dict[str, Any]:
    """Returns as long a result as a trial has."""
    item = inputs["item"]
    return to_result(
        Trial(
            item["number"],
            item["parameters"],
            TrialState.FAILED,
            score=0.123456789,
            curve=tuple((step * 1000, 0.123456789) for step in range(100)),
            seconds=12345.678901,
            reason="out-of-memory",
            message="ä" * 1000,
            output_uri=f"{ROOT}/mnist-sweep/{RUN.id}/trial/{RUN.id}",
            model_uri=f"{ROOT}/mnist-sweep/{RUN.id}/trial/{RUN.id}/model",
        )
    )


def arguments(answers: Answers) -> list[str]:
    """Returns every argument of every pod."""
    found: list[str] = []
    for number, task in enumerate(answers.tasks):
        made = pod(
            f"pod-{number}", RUN.id, ROOT, Site(WORKFLOW), task.component, task.container,
            task.platform, task.own, task.given,
        )  # fmt: skip
        (main,) = made["spec"]["containers"]
        found += [*main["command"], *main["args"]]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_what_is_compiled_runs_to_its_end(name: str) -> None:
    """Inputs resolve, types fit, conditions can be told: the driver finds nothing to refuse."""
    answers = Answers(
        {
            "suggest": lambda _: trials(3),
            "halve": lambda inputs: trials(inputs["keep"]),
            "halve-2": lambda inputs: trials(inputs["keep"]),
            "evaluate": lambda _: 0.99,
        }
    )
    needed = {"mnist_retrain": {"production": "/production"}, "sweep": {"program": "a.b"}}
    given: dict[str, Any] = needed.get(name, {})
    if name == "sweep":
        given = {**given, "space": SPACE}
    ended = drive(ours(name), answers, **given)
    assert ended.state is State.SUCCEEDED, ended.why
    ran = {task.name for task in answers.tasks}
    assert ran == {task for task, _, _ in containers(ours(name))}
    assert all(len(argument.encode()) < MAX_ARGUMENT_BYTES for argument in arguments(answers))


@pytest.mark.parametrize("name", ["mnist_sweep", "mnist_halving"])
def test_the_results_of_the_most_trials_fit_into_one_argument(name: str) -> None:
    count = 100
    long = dict.fromkeys(("trial", "trial-2", "trial-3"), largest_result)
    answers = Answers(
        {
            "suggest": lambda _: trials(count),
            "halve": lambda _: trials(count),
            "halve-2": lambda _: trials(count),
            **long,
        }
    )
    ended = drive(ours(name), answers)
    assert ended.state is State.SUCCEEDED, ended.why
    results = answers.inputs("select-best")[0]["results"]
    assert len(read_results(results)) == count
    assert max(len(argument.encode()) for argument in arguments(answers)) < MAX_ARGUMENT_BYTES


def test_the_next_loop_is_never_empty() -> None:
    """KFP skips a loop over nothing, and fails whoever collects it with words that help nobody."""
    with pytest.raises(SpecError):
        Study(space=Space.from_json({}), max_trials=10)
    assert len(trials(1)) == 1
    ended = drive(ours("mnist_sweep"), Answers({"suggest": lambda _: []}))
    assert "driver of select-best" in ended.why


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_diverged_trial_has_a_result_that_is_json(value: float) -> None:
    """A NaN would fail the task after all its work, and with it the loop."""
    result = to_result(Trial(0, {}, TrialState.FAILED, reason="diverged", message=f"loss {value}"))
    assert normal(result) == json.loads(json.dumps(result, allow_nan=False))


@pytest.mark.parametrize("name", NAMES)
def test_values_of_other_tasks_are_their_only_return_values(name: str) -> None:
    for _, task in tasks(ours(name)):
        for source in task.get("inputs", {}).get("parameters", {}).values():
            output = source.get("taskOutputParameter")
            if output:
                key = output["outputParameterKey"]
                assert key == "Output" or key.startswith("pipelinechannel--")


@pytest.mark.parametrize("name", NAMES)
def test_lists_hold_objects_and_nothing_is_imported_or_retried(name: str) -> None:
    pipeline = ours(name)
    for executor in pipeline.spec["deploymentSpec"]["executors"].values():
        assert list(executor) == ["container"]
    for _, task in tasks(pipeline):
        assert "retryPolicy" not in task
        if "parameterIterator" in task:
            item = task["parameterIterator"]["itemInput"]
            inputs = pipeline.component(task["componentRef"]["name"])["inputDefinitions"]
            assert inputs["parameters"][item]["parameterType"] == "STRUCT"


@pytest.mark.parametrize("name", NAMES)
def test_placeholders_are_all_of_their_constants_and_hold_in_recurring_runs(name: str) -> None:
    text = json.dumps(ours(name).spec["root"]) + json.dumps(ours(name).spec["components"])
    for constant in re.findall(r'"constant": ("(?:[^"\\]|\\.)*")', text):
        value = json.loads(constant)
        assert "{{" not in value or re.fullmatch(r"\{\{\$\.pipeline_job_uuid\}\}", value)


@dsl.pipeline(name="theirs")
def theirs(production: str, go: bool = True) -> None:
    """Uses every component, in loops, conditions and nested pipelines."""
    ending = components.cleanup()
    with dsl.ExitHandler(ending):
        data = components.prepare_data()
        uri = data.outputs["Output"]
        with dsl.If(go == True):  # noqa: E712  # KFP reads the comparison
            trained = components.train(program="a.b", dataset_uri=uri)
            components.promote(model=trained.outputs["model"], score=0.5)
            scored = components.evaluate(model=trained.outputs["model"], dataset_uri=uri)
            components.promote_if_better(
                model=trained.outputs["model"],
                score=scored.outputs["Output"],
                dataset_uri=uri,
                production=production,
            )
        components.sweep(program="a.b", space=SPACE)
    suggested = components.suggest(space=SPACE)
    with dsl.ParallelFor(suggested.outputs["Output"]) as item:
        tried = components.trial(item=item, program="a.b")
    # KFP's compiler fails on one that two tasks take.
    components.halve(results=dsl.Collected(tried.outputs["Output"]), keep=1)
    components.select_best(results=dsl.Collected(tried.outputs["Output"]))


def test_in_a_task_components_are_the_functions_that_they_are_made_of() -> None:
    """And nothing that only pipelines need is loaded before them."""
    code = (
        "import inspect, sys\nfrom kfp_jax import components\n"
        "for name in components.__all__:\n    function = getattr(components, name)\n"
        "    assert inspect.isfunction(function), function\n"
        "    assert function.__name__ == name\n"
        "assert not {'kubernetes', 'google.protobuf', 'kfp.compiler'} & set(sys.modules)\n"
    )
    environ = {**os.environ, "_KFP_RUNTIME": "true"}
    subprocess.run([sys.executable, "-c", code], env=environ, check=True, timeout=60)


def test_what_our_tasks_need_is_there_in_a_pipeline_of_somebody_else(tmp_path: Path) -> None:
    pipeline = compiled(theirs, tmp_path)
    seen = set()
    for name, task, component in containers(pipeline):
        seen.add(name.replace("-", "_"))
        cached = task["cachingOptions"].get("enableCache", False)
        assert cached is (name.replace("-", "_") not in LAUNCHES), name
        platform = pipeline.platform(component)
        assert platform["securityContext"] == {"runAsNonRoot": True}, name
        assert platform["emptyDirMounts"] == [{"mountPath": "/tmp", "volumeName": "tmp"}], name
    assert seen == set(components.__all__)


def test_what_an_author_sets_stays_and_is_for_the_job(tmp_path: Path) -> None:
    @dsl.pipeline(name="set")
    def set_by_hand() -> None:
        task = components.train(program="a.b")
        task.set_caching_options(True).set_accelerator_limit(2).set_memory_limit("8G")
        task.set_accelerator_type("nvidia.com/gpu").set_env_variable("SAID", "hello")
        kubernetes.set_security_context(task, run_as_user=1000)
        kubernetes.use_secret_as_env(task, "token", {"key": "TOKEN"})
        kubernetes.use_field_path_as_env(task, "RUN", "metadata.labels['pipeline/runid']")
        kubernetes.mount_pvc(task, pvc_name="data", mount_path="/data")
        kubernetes.add_toleration(task, key="gpu", operator="Exists", effect="NoSchedule")
        kubernetes.add_node_selector(task, "kind", "gpu")

    pipeline = compiled(set_by_hand, tmp_path)
    answers = Answers({})
    drive(pipeline, answers)
    (task,) = answers.tasks
    (entry,) = [one for _, one, _ in containers(pipeline)]
    assert entry["cachingOptions"]["enableCache"]
    assert task.platform["securityContext"] == {"runAsNonRoot": True, "runAsUser": "1000"}
    given = task.given["inputs"]["parameterValues"]["task_config"]
    config = dsl.TaskConfig(
        affinity=given["affinity"],
        tolerations=given["tolerations"],
        node_selector=given["nodeSelector"],
        env=given["env"],
        volumes=given["volumes"],
        volume_mounts=given["volumeMounts"],
        resources=given["resources"],
    )
    settings = job_settings(config, {})
    assert settings.env == {"SAID": "hello"}
    pods = settings.pods
    assert pods.secret_env == {"TOKEN": "token/key"}
    assert pods.resources.limits() == {"memory": "8G", "nvidia.com/gpu": "2"}
    assert pods.node_selector == {"kind": "gpu"}
    assert pods.tolerations[0]["key"] == "gpu"
    # The empty /tmp is the task's own: jobs have what their runtime says.
    assert [volume.name for volume in pods.volumes] == ["data"]


@pytest.mark.parametrize("name", NAMES)
def test_a_task_adds_3_kb_at_most(name: str) -> None:
    pipeline = ours(name)
    sizes = {}
    for task_name, task, component in containers(pipeline):
        label = component["executorLabel"]
        added = (
            {task["componentRef"]["name"]: component},
            {label: pipeline.spec["deploymentSpec"]["executors"][label]},
            {task_name: task},
            {label: pipeline.platform(component)},
        )
        sizes[task_name] = sum(len(yaml.safe_dump(part)) for part in added)
        kind = re.sub(r"-\d+$", "", task_name)
        assert sizes[task_name] <= MAX_TASK_BYTES.get(kind, 3072), sizes
    if name != "sweep":
        assert sum(sizes.values()) / len(sizes) <= 3072


def test_a_sweep_of_a_thousand_trials_is_no_larger_than_one_of_ten(tmp_path: Path) -> None:
    def size(count: int) -> int:
        @dsl.pipeline(name="swept")
        def swept() -> None:
            components.sweep(program="a.b", space=SPACE, max_trials=count)

        folder = tmp_path / str(count)
        folder.mkdir()
        pipeline = compiled(swept, folder)
        answers = Answers({})
        drive(pipeline, answers)
        assert len(answers.tasks) == 1
        return len((folder / "pipeline.yaml").read_bytes())

    assert size(1000) - size(10) == len("1000") - len("10")


def test_a_loop_has_the_same_text_for_any_number_of_trials() -> None:
    short, long = (
        Answers({"suggest": lambda _: trials(2)}),
        Answers({"suggest": lambda _: trials(9)}),
    )
    for answers, count in ((short, 2), (long, 9)):
        assert drive(ours("mnist_sweep"), answers).state is State.SUCCEEDED
        assert len(answers.inputs("trial")) == count
