"""A search for the best parameters of any program, in one step."""

from typing import NamedTuple

from kfp import dsl
from kfp_jax.components import sweep as sweep_step


class Outputs(NamedTuple):
    """What the pipeline returns."""

    parameters: dict
    model: dsl.Model
    leaderboard: dsl.HTML


@dsl.pipeline(
    name="sweep",
    description="Train a program many times with other parameters and keep the best model.",
)
def sweep(
    program: str = "kfp_jax_runtime.mnist",
    space: dict = {  # noqa: B006  # KFP reads the default, and wants it plain
        "learning_rate": {"type": "loguniform", "low": 0.0001, "high": 0.1},
        "dropout": {"type": "uniform", "low": 0.0, "high": 0.5},
    },
    parameters: dict = {"epochs": 1},  # noqa: B006
    max_trials: int = 12,
    parallel: int = 0,
    objective: str = "accuracy",
    direction: str = "maximize",
    sampler: str = "tpe",
    pruner: str = "none",
    seed: int = 0,
    num_nodes: int = 1,
    dataset_uri: str = "",
    backend: str = "auto",
) -> Outputs:
    """Searches for the best parameters.

    Args:
        program: module or module:function that trains.
        space: What to try; see the search space in the documentation.
        parameters: Parameters that all trials share.
        max_trials: How many trials; 0 for every point of the space.
        parallel: How many at once; 0 for one a core on one machine, 4 on a cluster.
        objective: The metric that trials are compared by.
        direction: maximize or minimize.
        sampler: How parameters are suggested: random, grid, quasirandom, tpe or cmaes.
        pruner: How trials are ended early: none, median, asha or hyperband.
        seed: Same seed, same suggestions.
        num_nodes: How many nodes each trial trains on.
        dataset_uri: Folder of a prepared dataset, or empty.
        backend: Where to run: trainer, jobset, local, or auto to choose.

    Returns:
        parameters: The best trial's parameters.
        model: The best trial's model.
        leaderboard: Every trial on one page.
    """
    search = sweep_step(
        program=program,
        space=space,
        parameters=parameters,
        max_trials=max_trials,
        parallel=parallel,
        objective=objective,
        direction=direction,
        sampler=sampler,
        pruner=pruner,
        seed=seed,
        num_nodes=num_nodes,
        dataset_uri=dataset_uri,
        backend=backend,
    )
    return Outputs(
        parameters=search.outputs["Output"],
        model=search.outputs["model"],
        leaderboard=search.outputs["leaderboard"],
    )
