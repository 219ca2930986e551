"""Checkpoints that were damaged on disk, by one process; test_runtime.py has several.

A process of its own, because a read that fails may leave behind work of Orbax that complains later.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

SCRIPT = """
import json, sys
import numpy as np
from kfp_jax_runtime.checkpoint import Checkpoints
from kfp_jax_runtime.errors import BadInput

def state(value):
    return {"w": np.full((300, 20), value, np.float32), "position": value}

def opened(folder):
    return Checkpoints(folder, {"rate": 0.1}, restored=lambda step, saved_with: None)

def restored(checkpoints, like):
    try:
        step, found = checkpoints.restore(like)
    except BadInput as error:
        return str(error)
    assert (found["w"] == found["position"]).all()
    return [step, found["position"]]

def save(folder):
    checkpoints = opened(folder)
    return [checkpoints.save(step, state(step)) for step in (10, 20)]

def go_on(folder):
    checkpoints = opened(folder)
    first = restored(checkpoints, state(0))
    saved = [checkpoints.save(step, state(step)) for step in (15, 20)]
    return {"first": first, "saved": saved, "then": restored(opened(folder), state(0))}

def restore(folder):
    return restored(opened(folder), state(0))

def restore_other(folder):
    return restored(opened(folder), {"other": np.zeros(3, np.float32)})

print(json.dumps([globals()[sys.argv[1]](folder) for folder in sys.argv[2:]]))
"""


def truncate_data(checkpoint: Path) -> None:
    (data,) = (checkpoint / "default" / "d").iterdir()
    data.write_bytes(data.read_bytes()[:100])


def remove_data(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "default" / "d")


def remove_manifest(checkpoint: Path) -> None:
    (checkpoint / "default" / "manifest.ocdbt").unlink()


def empty_metadata(checkpoint: Path) -> None:
    (checkpoint / "default" / "_METADATA").write_bytes(b"")


def remove_everything_inside(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "default")


DAMAGES: list[Callable[[Path], None]] = [
    truncate_data,
    remove_data,
    remove_manifest,
    empty_metadata,
    remove_everything_inside,
]


def call(function: str, *folders: Path) -> tuple[list[Any], list[str]]:
    """Returns what a function returned for each folder, and what this package said on stderr."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, function, *map(str, folders)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    said = [line for line in ended.stderr.splitlines() if line.startswith("kfp-jax: ")]
    return json.loads(ended.stdout), said


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoints of the steps 10 and 20; to be copied."""
    folder = tmp_path_factory.mktemp("whole") / "checkpoints"
    assert call("save", folder)[0] == [[True, True]]
    return folder


def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(
    whole: Path, tmp_path: Path
) -> None:
    folders = [tmp_path / damage.__name__ for damage in DAMAGES]
    for folder, damage in zip(folders, DAMAGES, strict=True):
        shutil.copytree(whole, folder)
        damage(folder / "20")
    went_on, said = call("go_on", *folders)
    # It must neither keep training from saving, at steps before its own, nor stay in its place.
    expected = {"first": [10, 10], "saved": [True, True], "then": [20, 20]}
    assert dict(zip(folders, went_on, strict=True)) == dict.fromkeys(folders, expected)
    assert len(said) == len(folders)
    for line, folder in zip(said, folders, strict=True):
        assert line.startswith(
            "kfp-jax: going on from the checkpoint of step 10, because that of step 20 in "
            f"{folder} cannot be read: "
        )


def test_when_none_can_be_read_it_is_told_of_the_newest(whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole, tmp_path / "checkpoints")
    truncate_data(folder / "20")
    remove_manifest(folder / "10")
    (error,), said = call("restore", folder)
    assert error.startswith(f"the checkpoint of step 20 in {folder} is damaged, or not of this")
    assert "OUT_OF_RANGE" in error
    assert "tensorstore_spec" not in error, error
    assert said == []


def test_checkpoints_of_another_state_are_refused(whole: Path) -> None:
    (error,), said = call("restore_other", whole)
    assert "step 20" in error
    assert "not of this program with these parameters; use another output folder" in error
    assert said == []


def test_damaged_notes_beside_the_state_cost_no_checkpoint(whole: Path, tmp_path: Path) -> None:
    folders = []
    for note in ("_CHECKPOINT_METADATA", "default/_sharding"):
        folders.append(shutil.copytree(whole, tmp_path / str(len(folders))))
        (folders[-1] / "20" / note).write_bytes(b"")
    assert call("restore", *folders) == ([[20, 20], [20, 20]], [])
