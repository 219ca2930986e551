"""The dataset that a program works on: the job's, or one that it prepares for itself."""

from dataclasses import dataclass
from pathlib import Path

from kfp_jax_runtime.data import catalogue, store
from kfp_jax_runtime.data.catalogue import AUTO, Dataset, DatasetChoice, Split
from kfp_jax_runtime.data.examples import Examples
from kfp_jax_runtime.data.prepare import DATASET_DIR, prepare, this_world
from kfp_jax_runtime.data.sources import Request
from kfp_jax_runtime.data.store import Source
from kfp_jax_runtime.errors import BadInput
from kfp_jax_runtime.run import Run


@dataclass(frozen=True)
class OpenDataset:
    """A prepared dataset in a folder."""

    folder: Path
    dataset: Dataset
    source: Source

    def load(self, split: Split) -> Examples:
        """Returns a whole split in memory."""
        return store.load(self.folder, self.dataset, split)


def open_dataset(run: Run, name: DatasetChoice) -> OpenDataset:
    """Returns the dataset of that name ("auto": the one that is there).

    A job without a dataset prepares one in its shared directory, once for all its processes.

    Raises:
        BadInput: the job's dataset folder does not hold it.
    """
    if run.dataset_dir is None:
        dataset = catalogue.MNIST if name == AUTO else catalogue.dataset(name)
        folder = run.shared_dir / DATASET_DIR
        source = prepare(Request(dataset), folder, this_world(dataset))
        return OpenDataset(folder, dataset, source)
    dataset = _dataset(run.dataset_dir, name)
    return OpenDataset(run.dataset_dir, dataset, store.read_source(run.dataset_dir, dataset))


def _dataset(folder: Path, name: DatasetChoice) -> Dataset:
    if name == AUTO:
        return store.held_dataset(folder)
    dataset = catalogue.dataset(name)
    if not store.is_prepared(folder, dataset):
        raise BadInput(
            f"dataset folder {folder} does not hold {name} (as {name}/{catalogue.VERSION}); "
            "prepare it there, or set dataset to 'auto' to take what it holds"
        )
    return dataset
