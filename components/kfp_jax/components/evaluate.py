"""The `evaluate` component: scores an exported model on test data."""

from kfp import dsl

from kfp_jax.components.definition import launching


@launching
def evaluate(
    model: dsl.Input[dsl.Model],
    classes: dsl.Output[dsl.ClassificationMetrics],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    dataset_uri: str,
    task_config: dsl.TaskConfig,
    split: str = "test",
    pods: dict = {},  # noqa: B006  # KFP reads the default, and wants it plain
    backend: str = "auto",
) -> float:
    """Scores an exported model on examples that it was not trained on.

    Args:
        task_config: Filled in by KFP with what is set on the task.
        model: A model that train exported.
        dataset_uri: Folder that prepare_data returned.
        split: Which part of the dataset.
        pods: What the pods of the job are beyond what is set on the task: image, queue, ...
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
        task_config=task_config,
        pods=pods,
        backend=backend,
    )
