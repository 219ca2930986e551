"""Walks a pipeline's scopes, and has each task executed once what it needs is there."""

import itertools
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from fakes.kfp.conditions import holds
from fakes.kfp.executor_input import Root, executor_input, published
from fakes.kfp.ir import DriverError, Json, Pipeline
from fakes.kfp.scope import (
    Ended,
    Given,
    Run,
    Scope,
    State,
    collected,
    iterations,
    ordered,
    outputs,
    parameter,
    resolve,
)
from fakes.kfp.task_settings import Settings, passed_on, settings_of, with_task_config
from fakes.kfp.values import checked, normal

_AT_ONCE = 10  # where a loop names no limit


@dataclass(frozen=True)
class Task:
    """One execution of a container: all that its pod is made of.

    Attributes:
        name: Its name within its scope.
        component: Its component.
        container: Its executor's container.
        platform: Of the same executor, by `kfp.kubernetes`.
        own: The settings that are its pod's own; the others are in its TaskConfig.
        given: Its executor input.
    """

    name: str
    component: Json
    container: Json
    platform: Json
    own: Settings
    given: Json


@dataclass(frozen=True)
class Executed:
    """What became of a task's pod."""

    succeeded: bool
    output: Json = field(default_factory=dict)
    why: str = ""


Execute = Callable[[Task], Executed]
NewUuid = Callable[[], str]


@dataclass
class Driver:
    """One run of a pipeline.

    Attributes:
        pipeline: What is run.
        run: The run.
        root: Where its artifacts go.
        execute: Has the pod of a task made, and waits for it.
        new_uuid: What tells one execution of a task from another.
    """

    pipeline: Pipeline
    run: Run
    root: str
    execute: Execute
    new_uuid: NewUuid = field(default=lambda: str(uuid.uuid4()))

    def __post_init__(self) -> None:
        self._ids = itertools.count(1)

    def start(self, arguments: Mapping[str, Any]) -> Ended:
        """Runs the pipeline to its end; returns how it ended, and its outputs.

        Raises:
            DriverError: An argument is unknown, missing or of the wrong type.
        """
        root = self.pipeline.spec["root"]
        definitions = root.get("inputDefinitions", {}).get("parameters", {})
        unknown = sorted(set(arguments) - set(definitions))
        if unknown:
            raise DriverError(f"the pipeline has no parameter {unknown[0]}")
        values: Json = {}
        for name, definition in definitions.items():
            value = normal(arguments.get(name, definition.get("defaultValue")))
            if value is None and not definition.get("isOptional"):
                raise DriverError(f"the pipeline needs parameter {name}")
            values[name] = value
            if value is not None:
                values[name] = checked(name, value, definition["parameterType"])
        return self._dag(root["dag"], Given(values))

    def _dag(self, dag: Json, given: Given) -> Ended:
        scope = Scope(self.run, next(self._ids), given)
        for name in ordered(dag["tasks"]):
            task = dag["tasks"][name]
            scope.ended[name] = self._task_or_not(name, task, scope)
        found = outputs(dag, scope)
        failed = [ended.why for ended in scope.ended.values() if ended.state is State.FAILED]
        state = State.FAILED if failed else State.SUCCEEDED
        return Ended(state, found.parameters, found.artifacts, "; ".join(failed))

    def _task_or_not(self, name: str, task: Json, scope: Scope) -> Ended:
        """Returns how a task ended; it is skipped when one that it depends on did not succeed."""
        before = {scope.ended[other].state for other in task.get("dependentTasks", ())}
        always = task.get("triggerPolicy", {}).get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED"
        if before - {State.SUCCEEDED} and not always:
            return Ended(State.SKIPPED)
        try:
            return self._task(name, task, scope)
        except DriverError as error:
            return Ended(State.FAILED, why=f"driver of {name}: {error}")

    def _task(self, name: str, task: Json, scope: Scope) -> Ended:
        component = self.pipeline.component(task["componentRef"]["name"])
        given = resolve(name, task, component, scope)
        condition = task.get("triggerPolicy", {}).get("condition")
        if condition and not holds(condition, given.parameters):
            return Ended(State.SKIPPED)
        if "parameterIterator" in task:
            return self._loop(task, component, given)
        if "artifactIterator" in task:
            raise DriverError("artifact iterator not implemented yet")
        if "dag" in component:
            return self._dag(component["dag"], given)
        return self._container(name, task, component, given, scope)

    def _loop(self, task: Json, component: Json, given: Given) -> Ended:
        items = iterations(task, component, given)
        if not items:
            # Whoever collects it has a driver that finds nothing, and fails.
            return Ended(State.SUCCEEDED)
        limit = task.get("iteratorPolicy", {}).get("parallelismLimit") or _AT_ONCE
        with ThreadPoolExecutor(max_workers=limit) as pool:
            ended = list(pool.map(lambda one: self._dag(component["dag"], one), items))
        return collected(component["dag"], ended)

    def _container(
        self, name: str, task: Json, component: Json, given: Given, scope: Scope
    ) -> Ended:
        container = self.pipeline.executor(component)
        platform = self.pipeline.platform(component)
        settings = settings_of(
            container,
            platform,
            dict(given.parameters),
            lambda source: parameter(name, task, source, scope),
        )
        own, passed = passed_on(component, settings)
        root = Root(self.root, self.pipeline.name, self.run.id)
        told = executor_input(name, component, given, root, self.new_uuid())
        told = with_task_config(told, component, passed)
        done = self.execute(Task(name, component, container, platform, own, told))
        if not done.succeeded:
            return Ended(State.FAILED, why=f"{name}: {done.why}")
        parameters, artifacts = published(told, component, done.output)
        return Ended(State.SUCCEEDED, normal(dict(parameters)), artifacts)
