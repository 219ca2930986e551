"""What each component needs from the platform, applied here and not by authors."""

import ast
from typing import Any

from kfp import dsl
from kfp.dsl.pipeline_context import Pipeline
from kfp.dsl.pipeline_task import PipelineTask
from kfp.dsl.python_component import PythonComponent

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


class LaunchingComponent(PythonComponent):
    """A component whose tasks never take an earlier run's result from KFP's cache.

    KFP caches by parameters: a scheduled retraining would do nothing from the second time on. The
    client's own switch does not reach tasks inside loops and nested pipelines; the task's does. An
    author who wants the cache calls `set_caching_options(True)` on the task.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> PipelineTask:
        """Returns a task of this component."""
        task = super().__call__(*args, **kwargs)
        # Outside a pipeline, kfp.local has run the task by now.
        if Pipeline.get_default_pipeline() is not None:
            task.set_caching_options(False)
        return task


def launching(component: PythonComponent) -> LaunchingComponent:
    """Returns the component with the settings of all launching components."""
    return LaunchingComponent(lean(component).component_spec, component.python_func)


def lean(component: PythonComponent) -> PythonComponent:
    """Returns the component without the docstring in the source that each of its tasks carries.

    KFP has read the descriptions by now. The source is in the pipeline's YAML, and several times in
    the Workflow, whose size is limited. Where our images are kept elsewhere, its tasks are told.
    """
    container = component.component_spec.implementation.container
    if container is not None and isinstance(container.command, list):
        container.command = [_without_docstring(part) for part in container.command]
        if prefix() != DEFAULT_PREFIX:
            container.env = {**(container.env or {}), PREFIX_VARIABLE: prefix()}
    return component


def _without_docstring(part: Any) -> Any:
    if not isinstance(part, str) or "\ndef " not in part:
        return part
    lines = part.splitlines(keepends=True)
    for function in ast.parse(part).body:
        if isinstance(function, ast.FunctionDef) and ast.get_docstring(function):
            docstring = function.body[0]
            del lines[docstring.lineno - 1 : docstring.end_lineno]
            return "".join(lines)
    return part
