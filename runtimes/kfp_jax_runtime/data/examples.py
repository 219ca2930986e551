"""Examples in memory, and the four IDX files of a folder as such."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kfp_jax_runtime.data.catalogue import IMAGE_FILES, IMAGE_SIZE, LABEL_FILES, Dataset, Split
from kfp_jax_runtime.data.idx import read_idx
from kfp_jax_runtime.errors import BadInput


@dataclass(frozen=True)
class Examples:
    """One split of a dataset."""

    images: NDArray[np.uint8]
    """Shape (examples, 28, 28)."""
    labels: NDArray[np.uint8]
    """Shape (examples,); index into the classes."""

    def __len__(self) -> int:
        return len(self.labels)


def find_file(folder: Path, name: str) -> Path | None:
    """Returns the file of that name in `folder`, plain or .gz, or None.

    The spelling with a dot (train-images.idx3-ubyte) is as common as the official one.
    """
    for stem in (name, name.replace("-idx", ".idx")):
        for path in (folder / stem, folder / f"{stem}.gz"):
            if path.is_file():
                return path
    return None


def has_idx_files(folder: Path) -> bool:
    """Returns whether any of the four IDX files is in `folder`."""
    names = (*IMAGE_FILES.values(), *LABEL_FILES.values())
    return any(find_file(folder, name) for name in names)


def read_folder(folder: Path, dataset: Dataset) -> Mapping[Split, Examples]:
    """Reads the four IDX files of `dataset` and checks their digests.

    Raises:
        BadInput: a file is missing, damaged, or not the published one; the message says which.
    """
    return {split: _read_split(folder, dataset, split) for split in ("train", "test")}


def _read_split(folder: Path, dataset: Dataset, split: Split) -> Examples:
    images = _read_file(folder, dataset, IMAGE_FILES[split], dimensions=3)
    labels = _read_file(folder, dataset, LABEL_FILES[split], dimensions=1)
    if images.shape[1:] != (IMAGE_SIZE, IMAGE_SIZE):
        height, width = images.shape[1:]
        raise BadInput(
            f"{folder / IMAGE_FILES[split]} holds images of {height} x {width} pixels; "
            f"they must be {IMAGE_SIZE} x {IMAGE_SIZE}"
        )
    if len(images) != len(labels) or not len(labels):
        raise BadInput(
            f"the {split} files in {folder} do not match: {len(images):,} images and "
            f"{len(labels):,} labels"
        )
    if labels.max() >= len(dataset.classes):
        raise BadInput(
            f"{folder / LABEL_FILES[split]} holds label {labels.max()}; "
            f"{dataset.title} has {len(dataset.classes)} classes, from 0"
        )
    return Examples(images, labels)


def _read_file(folder: Path, dataset: Dataset, name: str, dimensions: int) -> NDArray[np.uint8]:
    path = find_file(folder, name)
    if path is None:
        raise BadInput(
            f"folder {folder} lacks {name} (or {name}.gz) of {dataset.title}; it must hold all of "
            + ", ".join((*IMAGE_FILES.values(), *LABEL_FILES.values()))
        )
    file = read_idx(path, dimensions)
    expected = dataset.md5.get(name, file.md5)
    if file.md5 != expected:
        raise BadInput(
            f"{path} is not the published {name} of {dataset.title}: its md5 (uncompressed) is "
            f"{file.md5}, not {expected}; fetch it anew, or set the dataset that it belongs to"
        )
    return file.array
