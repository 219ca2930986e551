"""The `train` component: one training job."""

from kfp import dsl

from kfp_jax.components.definition import launching


@launching
def train(
    model: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    program: str,
    task_config: dsl.TaskConfig,
    parameters: dict = {},  # noqa: B006  # KFP reads the default, and wants it plain
    num_nodes: int = 1,
    dataset_uri: str = "",
    objective: str = "accuracy",
    max_restarts: int = 0,
    stall_seconds: float = 1800.0,
    deadline_seconds: float = 0.0,
    pods: dict = {},  # noqa: B006
    backend: str = "auto",
) -> float:
    """Trains a JAX program on N nodes; the step fails when the job does, and says why.

    Args:
        task_config: Filled in by KFP with what is set on the task.
        program: module or module:function that trains, for example kfp_jax_runtime.mnist.
        parameters: The program's parameters; unknown and ill-typed ones are refused.
        num_nodes: How many nodes train together; locally, how many processes.
        dataset_uri: Folder that prepare_data returned, or empty.
        objective: The metric to return; the program must report it.
        max_restarts: How often the whole job is started again from its last checkpoint.
        stall_seconds: End the job after so long without a line of output; 0 for never.
        deadline_seconds: End the job after so long; 0 for never.
        pods: What the pods of the job are beyond what is set on the task: image, queue, ...
        backend: Where to run: trainer, jobset, local, or auto to choose.

    Returns:
        Output: The objective's final value.
        model: The exported model.
        metrics: All final metrics.
        report: Learning curves, results by class, worst mistakes, timing.
    """
    from kfp_jax import entry

    return entry.train(
        entry.TrainOutputs(model=model, metrics=metrics, report=report),
        program=program,
        parameters=parameters,
        num_nodes=num_nodes,
        dataset_uri=dataset_uri,
        objective=objective,
        max_restarts=max_restarts,
        stall_seconds=stall_seconds,
        deadline_seconds=deadline_seconds,
        task_config=task_config,
        pods=pods,
        backend=backend,
    )
