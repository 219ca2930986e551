"""The `sweep` component: a whole search for the best parameters in one step."""

from kfp import dsl

from kfp_jax.components.definition import launching


@launching
def sweep(
    model: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    leaderboard: dsl.Output[dsl.HTML],
    trials_table: dsl.Output[dsl.Dataset],
    program: str,
    space: dict,
    task_config: dsl.TaskConfig,
    max_trials: int = 20,
    parallel: int = 0,
    parameters: dict = {},  # noqa: B006  # KFP reads the default, and wants it plain
    objective: str = "accuracy",
    direction: str = "maximize",
    sampler: str = "tpe",
    pruner: str = "none",
    min_step: int = 0,
    seed: int = 0,
    max_failed: int = -1,
    time_budget_seconds: float = 0.0,
    num_nodes: int = 1,
    dataset_uri: str = "",
    warm_start: str = "",
    max_restarts: int = 0,
    stall_seconds: float = 1800.0,
    deadline_seconds: float = 0.0,
    pods: dict = {},  # noqa: B006
    backend: str = "auto",
) -> dict:
    """Trains a JAX program many times with other parameters, several at once, and keeps the best.

    A trial that fails, hangs or diverges costs only itself. A step that is killed and started
    again goes on where it was.

    Args:
        task_config: Filled in by KFP with what is set on the task.
        program: module or module:function that trains, for example kfp_jax_runtime.mnist.
        space: What to try, for example
            {"learning_rate": {"type": "loguniform", "low": 1e-4, "high": 1e-1}}.
        max_trials: How many trials; 0 for every point of the space.
        parallel: How many at once; 0 for one a core on one machine, 4 on a cluster.
        parameters: Parameters that all trials share.
        objective: The metric that trials are compared by; the program must report it.
        direction: maximize or minimize.
        sampler: How parameters are suggested: random, grid, quasirandom, tpe or cmaes.
        pruner: How trials are ended early: none, median, asha or hyperband.
        min_step: Step before which no trial is ended; 0 derives it from the first complete trial.
        seed: Same seed, same suggestions.
        max_failed: How many trials may fail before the step does; -1 for half of them.
        time_budget_seconds: Stop the trials after so long and take the best so far; 0 for never.
        num_nodes: How many nodes each trial trains on.
        dataset_uri: Folder that prepare_data returned, or empty.
        warm_start: Table of an earlier sweep to learn from, or empty.
        max_restarts: How often a trial is started again from its last checkpoint.
        stall_seconds: End a trial after so long without a line of output; 0 for never.
        deadline_seconds: End a trial after so long; 0 for never.
        pods: What the pods of the job are beyond what is set on the task: image, queue, ...
        backend: Where to run: trainer, jobset, local, or auto to choose.

    Returns:
        Output: The best trial's parameters, for parameters of train.
        model: The best trial's model.
        metrics: The best score, and how many trials ended how.
        leaderboard: Scores, learning curves, what mattered, failures, machine time.
        trials_table: Every trial, one JSON object a line.
    """
    from kfp_jax import entry

    return entry.sweep(
        entry.SweepOutputs(
            model=model, metrics=metrics, leaderboard=leaderboard, trials_table=trials_table
        ),
        program=program,
        space=space,
        max_trials=max_trials,
        parallel=parallel,
        parameters=parameters,
        objective=objective,
        direction=direction,
        sampler=sampler,
        pruner=pruner,
        min_step=min_step,
        seed=seed,
        max_failed=max_failed,
        time_budget_seconds=time_budget_seconds,
        num_nodes=num_nodes,
        dataset_uri=dataset_uri,
        warm_start=warm_start,
        max_restarts=max_restarts,
        stall_seconds=stall_seconds,
        deadline_seconds=deadline_seconds,
        task_config=task_config,
        pods=pods,
        backend=backend,
    )
