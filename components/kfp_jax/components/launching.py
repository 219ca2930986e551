"""What each launching component needs from the platform, applied here and not by authors."""

from typing import Any

from kfp.dsl.pipeline_context import Pipeline
from kfp.dsl.pipeline_task import PipelineTask
from kfp.dsl.python_component import PythonComponent

from kfp_jax import __version__

# Of images/launcher: this package and kfp, no JAX. kfp.local warns about images without "python" in
# their name.
IMAGE = f"kfp-jax/launcher-python:{__version__}"


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
    return LaunchingComponent(component.component_spec, component.python_func)
