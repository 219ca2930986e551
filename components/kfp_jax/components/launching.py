"""What each component needs from the platform, applied here and not by authors."""

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from kfp import dsl, kubernetes
from kfp.dsl.pipeline_context import Pipeline
from kfp.dsl.pipeline_task import PipelineTask
from kfp.dsl.python_component import PythonComponent
from kfp.dsl.structures import ComponentSpec

from kfp_jax.images import DEFAULT_PREFIX, LAUNCHER, PREFIX_VARIABLE, image, prefix

# Of images/launcher: this package and kfp, no JAX.
IMAGE = image(LAUNCHER)

# What an author sets on the task is for the job's pods. The task itself needs the variables that
# KFP fills in for it, and the volumes that both write to.
FOR_THE_JOB = [
    dsl.TaskConfigField.RESOURCES,
    dsl.TaskConfigField.KUBERNETES_TOLERATIONS,
    dsl.TaskConfigField.KUBERNETES_NODE_SELECTOR,
    dsl.TaskConfigField.KUBERNETES_AFFINITY,
    dsl.TaskConfigPassthrough(field=dsl.TaskConfigField.ENV, apply_to_task=True),
    dsl.TaskConfigPassthrough(field=dsl.TaskConfigField.KUBERNETES_VOLUMES, apply_to_task=True),
]


class PlacedComponent(PythonComponent):
    """A component whose tasks may run where a cluster is strict, without their author's doing.

    A namespace of the pod security standard *restricted* refuses a task that does not say that it
    is no root. Which user it is the image says, or the platform. A read-only root file system
    leaves nowhere to write but volumes, and KFP itself writes to /tmp.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> PipelineTask:
        """Returns a task of this component."""
        task = super().__call__(*args, **kwargs)
        # Outside a pipeline, kfp.local has run the task by now.
        if Pipeline.get_default_pipeline() is not None:
            self._settle(task)
        return task

    def _settle(self, task: PipelineTask) -> None:
        task.component_spec = _undescribed(task.component_spec)
        kubernetes.set_security_context(task, run_as_non_root=True)
        kubernetes.empty_dir_mount(task, volume_name="tmp", mount_path="/tmp")


class LaunchingComponent(PlacedComponent):
    """A component whose tasks never take an earlier run's result from KFP's cache.

    KFP caches by parameters: a scheduled retraining would do nothing from the second time on. The
    client's own switch does not reach tasks inside loops and nested pipelines; the task's does. An
    author who wants the cache calls `set_caching_options(True)` on the task.
    """

    def _settle(self, task: PipelineTask) -> None:
        super()._settle(task)
        task.set_caching_options(False)


def launching(function: Callable[..., Any]) -> LaunchingComponent:
    """Returns a component whose task launches jobs, with the settings of all of them."""
    takes = "task_config" in inspect.signature(function).parameters
    component = _component(function, task_config_passthroughs=FOR_THE_JOB if takes else None)
    return LaunchingComponent(component.component_spec, component.python_func)


def lean(function: Callable[..., Any]) -> PlacedComponent:
    """Returns a component that launches nothing, with the settings of all of them."""
    component = _component(function)
    return PlacedComponent(component.component_spec, component.python_func)


def _component(function: Callable[..., Any], **options: Any) -> Any:
    """Returns a component whose tasks take the function from their image.

    KFP would have its source in the pipeline's YAML, and several times in the Workflow, whose size
    is limited. Its name for the program that runs the function is what kfp.local looks for. Where
    our images are kept elsewhere, tasks are told.
    """
    component: Any = dsl.component(base_image=IMAGE, install_kfp_package=False, **options)(function)
    container = component.component_spec.implementation.container
    container.command = [
        "sh",
        "-ec",
        'd=$(mktemp -d); printf %s "$0" >$d/c.py; _KFP_RUNTIME=true python3 -m'
        ' kfp.dsl.executor_main --component_module_path $d/c.py "$@"',
        f"from kfp_jax.components import {function.__name__}",
    ]
    if prefix() != DEFAULT_PREFIX:
        container.env = {**(container.env or {}), PREFIX_VARIABLE: prefix()}
    return component


def _undescribed(spec: ComponentSpec) -> ComponentSpec:
    """Returns a component without what KFP's UI shows of a pipeline's inputs, and of no task's."""
    lean = copy.copy(spec)
    lean.inputs = _without_descriptions(spec.inputs)
    lean.outputs = _without_descriptions(spec.outputs)
    return lean


def _without_descriptions(specs: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if specs is None:
        return None
    found = {name: copy.copy(spec) for name, spec in specs.items()}
    for spec in found.values():
        spec.description = None
    return found
