"""What a preparation takes for done, and whose fault it says that an error is."""

import json
from pathlib import Path

import pytest
from kfp_jax_runtime.data import prepare, store
from kfp_jax_runtime.data.catalogue import MNIST
from kfp_jax_runtime.data.sources import Request, World
from kfp_jax_runtime.errors import BadInput

SPLITS = [{"name": "train", "shardLengths": ["3"]}, {"name": "test", "shardLengths": ["2"]}]
SHARD = "mnist-train.array_record-00000-of-00001"


def prepared(folder: Path) -> Path:
    """Makes what tensorflow-datasets would leave, as far as a copy looks at it."""
    version = store.version_dir(folder, MNIST)
    version.mkdir(parents=True)
    (version / store.INFO_FILE).write_text(json.dumps({"splits": SPLITS}))
    (version / SHARD).write_bytes(b"records")
    return folder


def run(folder: Path, output: Path) -> store.Source:
    world = World({}, lambda line: None, lambda dataset: "http://127.0.0.1:9/")
    return prepare.prepare(Request(MNIST, folder=folder), output, world)


def test_a_prepared_folder_is_copied_and_its_origin_recorded(tmp_path: Path) -> None:
    source = run(prepared(tmp_path / "mine"), tmp_path / "out")
    assert (source.via, source.train_examples, source.test_examples) == ("prepared", 3, 2)
    assert (store.version_dir(tmp_path / "out", MNIST) / SHARD).read_bytes() == b"records"
    assert store.read_source(tmp_path / "out", MNIST) == source
    assert source.folder == str((tmp_path / "mine").resolve())


def test_a_folder_whose_name_begins_alike_is_another_source(tmp_path: Path) -> None:
    run(prepared(tmp_path / "mnist2"), tmp_path / "out")
    with pytest.raises(BadInput, match=r"already holds MNIST from: .*mnist2; use another output"):
        run(prepared(tmp_path / "mnist"), tmp_path / "out")


def test_the_same_folder_is_known_by_any_of_its_names(tmp_path: Path) -> None:
    source = run(prepared(tmp_path / "mine"), tmp_path / "out")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    for other in (tmp_path / "link", tmp_path / "link" / ".." / "mine"):
        assert run(other, tmp_path / "out") == source


def test_a_dataset_that_somebody_else_prepared_in_place_came_from_its_own_folder(
    tmp_path: Path,
) -> None:
    output = prepared(tmp_path / "out")
    assert run(output, output).via == "prepared"
    with pytest.raises(BadInput, match="already holds MNIST from"):
        run(prepared(tmp_path / "mine"), output)


def test_a_users_file_that_cannot_be_read_is_not_called_one_that_cannot_be_written(
    tmp_path: Path,
) -> None:
    folder = prepared(tmp_path / "mine")
    shard = store.version_dir(folder, MNIST) / SHARD
    shard.unlink()
    shard.symlink_to(tmp_path / "gone")
    with pytest.raises(BadInput, match=r"cannot be read: No such file .*; set `folder` to one"):
        run(folder, tmp_path / "out")
    assert not list((tmp_path / "out").glob(".partial-*"))


def test_an_output_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"cannot be written to .*/file/out: Not a directory"):
        run(prepared(tmp_path / "mine"), tmp_path / "file" / "out")


def test_a_folder_may_be_given_as_a_uri(tmp_path: Path) -> None:
    request = prepare.PrepareConfig(folder="file:///data/my%20mnist").request()
    assert request.folder == Path("/data/my mnist")
    with pytest.raises(BadInput, match="folder must be a folder that this node can open"):
        prepare.PrepareConfig(folder="gs://bucket/mnist")
