"""What is known in one scope of a run, and what a task gets of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fakes.kfp.conditions import selected
from fakes.kfp.ir import DriverError, Json
from fakes.kfp.values import checked, normal

Artifacts = list[Json]


class State(StrEnum):
    """How a task ended, in KFP's words."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"


class Flat(list[Any]):
    """What the iterations of a loop gave: a loop around it adds to it, and does not nest it."""


@dataclass(frozen=True)
class Ended:
    """How a task ended, and what it gave."""

    state: State
    parameters: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Mapping[str, Artifacts] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True)
class Run:
    """The run, as placeholders name it. The name of a recurring run is empty."""

    id: str
    workflow: str
    name: str = ""
    created: str = "2026-12-01T00:06:02Z"
    scheduled: str = "2026-12-01T00:06:00Z"


@dataclass(frozen=True)
class Given:
    """Inputs: of a scope, or of one task."""

    parameters: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Mapping[str, Artifacts] = field(default_factory=dict)


@dataclass
class Scope:
    """A DAG in execution.

    Attributes:
        run: The run that it is of.
        id: The DAG's execution; what the task id placeholder gives.
        given: Its own inputs.
        ended: Its tasks that have ended.
    """

    run: Run
    id: int
    given: Given
    ended: dict[str, Ended] = field(default_factory=dict)


def resolve(task_name: str, task: Mapping[str, Any], component: Json, scope: Scope) -> Given:
    """Returns the inputs of a task, of a container or of a scope within this one.

    Raises:
        DriverError: One is missing, null, or of the wrong type.
    """
    definitions = component.get("inputDefinitions", {}).get("parameters", {})
    asked = task.get("inputs", {})
    parameters: Json = _defaults(definitions, asked) if "dag" in component else {}
    unset = {name for name, value in parameters.items() if value is None}
    for name, source in asked.get("parameters", {}).items():
        value = parameter(task_name, task, source, scope)
        if value is None:
            if definitions.get(name, {}).get("isOptional"):
                parameters.pop(name, None)
                continue
            raise DriverError(f"the resolved input parameter is null: {name}")
        if selector := source.get("parameterExpressionSelector"):
            value = selected(value, selector)
        parameters[name] = normal(value)
        unset.discard(name)
    artifacts = {
        name: _artifacts(name, source, scope) for name, source in asked.get("artifacts", {}).items()
    }
    iterator = task.get("parameterIterator", {})
    return Given(_checked(parameters, definitions, unset, {iterator.get("itemInput")}), artifacts)


def iterations(task: Mapping[str, Any], component: Json, given: Given) -> list[Given]:
    """Returns the inputs of each iteration of a loop."""
    iterator = task["parameterIterator"]
    items_input = iterator["items"].get("inputParameter", "")
    items = given.parameters[items_input] if items_input else iterator["items"]["raw"]
    items = json.loads(items) if isinstance(items, str) else items
    if not isinstance(items, list):
        raise DriverError(f"a loop over {items_input} needs a list, and got {items!r:.60}")
    rest = {name: value for name, value in given.parameters.items() if name != items_input}
    definitions = component["inputDefinitions"]["parameters"]
    unset = {name for name, value in rest.items() if value is None}
    return [
        Given(
            _checked(
                {**rest, iterator["itemInput"]: normal(item)}, definitions, unset, {items_input}
            ),
            given.artifacts,
        )
        for item in items
    ]


def _defaults(definitions: Json, asked: Mapping[str, Any]) -> Json:
    """Returns the optional inputs of a nested pipeline that its task does not name."""
    named = asked.get("parameters", {})
    return {
        name: normal(definition.get("defaultValue"))
        for name, definition in definitions.items()
        if definition.get("isOptional") and name not in named
    }


def _checked(parameters: Json, definitions: Json, unset: set[str], absent: set[Any]) -> Json:
    found = dict(parameters)
    for name, definition in definitions.items():
        if name in absent or name in unset:
            continue
        if name in found:
            found[name] = checked(name, found[name], definition["parameterType"])
        elif not definition.get("isOptional") and "defaultValue" not in definition:
            raise DriverError(
                f"neither value nor default value for non-optional parameter {name!r}"
            )
    return found


def parameter(task_name: str, task: Mapping[str, Any], source: Json, scope: Scope) -> Any:
    """Returns what an input's source in a spec stands for; None for an input that is unset."""
    if name := source.get("componentInputParameter"):
        if name not in scope.given.parameters:
            raise DriverError(f"parent DAG does not have input parameter {name}")
        return scope.given.parameters[name]
    if output := source.get("taskOutputParameter"):
        ended = _producer(output["producerTask"], scope)
        if output["outputParameterKey"] not in ended.parameters:
            raise DriverError(
                f"task {output['producerTask']} has no output {output['outputParameterKey']}"
            )
        return ended.parameters[output["outputParameterKey"]]
    if "runtimeValue" in source:
        return _constant(source["runtimeValue"]["constant"], task_name, scope)
    if "taskFinalStatus" in source:
        before = task["dependentTasks"][0]
        return {
            "state": scope.ended[before].state.value,
            "pipelineTaskName": before,
            "pipelineJobResourceName": scope.run.workflow,
            "error": {},
        }
    raise DriverError(f"parameter spec {', '.join(source)} is left out")


def _constant(value: Any, task_name: str, scope: Scope) -> Any:
    """Returns a constant; a placeholder counts only where it is all of it."""
    run = scope.run
    placeholders = {
        "{{$.pipeline_job_name}}": run.name,
        "{{$.pipeline_job_resource_name}}": run.workflow,
        "{{$.pipeline_job_uuid}}": run.id,
        "{{$.pipeline_task_name}}": task_name,
        "{{$.pipeline_task_uuid}}": str(scope.id),
        "{{$.pipeline_job_create_time_utc}}": run.created,
        "{{$.pipeline_job_schedule_time_utc}}": run.scheduled,
    }
    return placeholders.get(value, value) if isinstance(value, str) else value


def _artifacts(name: str, source: Json, scope: Scope) -> Artifacts:
    if outer := source.get("componentInputArtifact"):
        if outer not in scope.given.artifacts:
            raise DriverError(f"parent DAG does not have input artifact {outer}")
        return scope.given.artifacts[outer]
    output = source["taskOutputArtifact"]
    ended = _producer(output["producerTask"], scope)
    if output["outputArtifactKey"] not in ended.artifacts:
        raise DriverError(
            f"cannot find output artifact key {output['outputArtifactKey']!r}: {name}"
        )
    return ended.artifacts[output["outputArtifactKey"]]


def _producer(name: str, scope: Scope) -> Ended:
    if name not in scope.ended:
        raise DriverError(f"producer task, {name}, not in tasks")
    return scope.ended[name]


def outputs(dag: Mapping[str, Any], scope: Scope) -> Given:
    """Returns what a scope hands out of its tasks' outputs; what was skipped gives nothing."""
    named = dag.get("outputs", {})
    parameters: Json = {}
    for name, source in named.get("parameters", {}).items():
        one = source.get("valueFromParameter")
        for selector in [one] if one else source["valueFromOneof"]["parameterSelectors"]:
            ended = scope.ended.get(selector["producerSubtask"])
            if ended and selector["outputParameterKey"] in ended.parameters:
                parameters[name] = ended.parameters[selector["outputParameterKey"]]
                break
    artifacts: dict[str, Artifacts] = {}
    for name, source in named.get("artifacts", {}).items():
        for selector in source["artifactSelectors"]:
            ended = scope.ended.get(selector["producerSubtask"])
            if ended and selector["outputArtifactKey"] in ended.artifacts:
                artifacts[name] = ended.artifacts[selector["outputArtifactKey"]]
                break
    return Given(parameters, artifacts)


def collected(dag: Mapping[str, Any], iterations: list[Ended]) -> Ended:
    """Returns the outputs of a loop: `Collected`, in the order of the items and flat."""
    named = dag.get("outputs", {})
    parameters: Json = {name: Flat() for name in named.get("parameters", {})}
    artifacts: dict[str, Artifacts] = {name: [] for name in named.get("artifacts", {})}
    for iteration in iterations:
        for name, values in parameters.items():
            value = iteration.parameters.get(name)
            values.extend(value if isinstance(value, Flat) else [value])
        for name, found in artifacts.items():
            found.extend(iteration.artifacts.get(name, []))
    failed = [iteration.why for iteration in iterations if iteration.state is State.FAILED]
    state = State.FAILED if failed else State.SUCCEEDED
    return Ended(state, parameters, artifacts, "; ".join(failed))


def ordered(tasks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns the tasks of a scope, each after those that it depends on.

    Raises:
        DriverError: They depend on each other in a circle.
    """
    found: list[str] = []
    while len(found) < len(tasks):
        ready = [
            name
            for name, task in tasks.items()
            if name not in found and set(task.get("dependentTasks", ())) <= set(found)
        ]
        if not ready:
            raise DriverError(f"tasks in a circle: {', '.join(sorted(set(tasks) - set(found)))}")
        found += ready
    return found
