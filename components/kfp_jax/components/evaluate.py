"""The `evaluate` component: scores an exported model on test data."""

from kfp import dsl

from kfp_jax.components.launching import IMAGE, launching


@launching
@dsl.component(base_image=IMAGE, install_kfp_package=False)
def evaluate(
    model: dsl.Input[dsl.Model],
    classes: dsl.Output[dsl.ClassificationMetrics],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    dataset_uri: str,
    split: str = "test",
    backend: str = "auto",
) -> float:
    """Scores an exported model on examples that it was not trained on.

    Args:
        model: A model that train exported.
        dataset_uri: Folder that prepare_data returned.
        split: Which part of the dataset.
        backend: Where to run: trainer, jobset, local, or auto to choose.

    Returns:
        Output: The accuracy, from 0 to 1.
        classes: The confusion matrix.
        metrics: Accuracy and loss.
        report: Results by class, confusion matrix, worst mistakes.
    """
    from kfp_jax import entry

    return entry.evaluate(
        entry.EvaluateOutputs(classes=classes, metrics=metrics, report=report),
        model=model,
        dataset_uri=dataset_uri,
        split=split,
        backend=backend,
    )
