"""The `trial` component: one training job of a loop, of which a failure is a result."""

from kfp import dsl

from kfp_jax.components.definition import launching


@launching
def trial(
    model: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    item: dict,
    program: str,
    task_config: dsl.TaskConfig,
    parameters: dict = {},  # noqa: B006  # KFP reads the default, and wants it plain
    budget: dict = {},  # noqa: B006
    num_nodes: int = 1,
    objective: str = "accuracy",
    max_restarts: int = 0,
    stall_seconds: float = 1800.0,
    deadline_seconds: float = 0.0,
    pods: dict = {},  # noqa: B006
    backend: str = "auto",
) -> dict:
    """Trains with the parameters of one item; a failed job is a result and not a failed step.

    Args:
        task_config: Filled in by KFP with what is set on the task.
        item: What suggest or halve returned for this trial.
        program: module or module:function that trains, for example kfp_jax_runtime.mnist.
        parameters: Parameters that all trials share.
        budget: Parameters that all trials of one round share, for example {"epochs": 3}.
        num_nodes: How many nodes train together; locally, how many processes.
        objective: The metric that trials are compared by; the program must report it.
        max_restarts: How often the job is started again from its last checkpoint.
        stall_seconds: End the job after so long without a line of output; 0 for never.
        deadline_seconds: End the job after so long; 0 for never.
        pods: What the pods of the job are beyond what is set on the task: image, queue, ...
        backend: Where to run: trainer, jobset, local, or auto to choose.

    Returns:
        Output: How the trial ended: its state, score, curve, and why it failed.
        model: The exported model.
        metrics: All final metrics.
    """
    from kfp_jax import entry

    return entry.trial(
        entry.TrialOutputs(model=model, metrics=metrics),
        item=item,
        program=program,
        parameters=parameters,
        budget=budget,
        num_nodes=num_nodes,
        objective=objective,
        max_restarts=max_restarts,
        stall_seconds=stall_seconds,
        deadline_seconds=deadline_seconds,
        task_config=task_config,
        pods=pods,
        backend=backend,
    )
