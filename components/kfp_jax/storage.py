"""Folders of a job: checked before anything starts, files written whole or not at all."""

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

from kfp_jax.errors import Conflict, OutputError, SpecError

RESULT = "result.json"
HISTORY = "history.jsonl"
EVALUATION = "evaluation.json"
REPORT = "report.html"

# Less than this and not even the logs of a short run would fit.
MIN_FREE_BYTES = 16 * 1024 * 1024
_PROBE = b"\0" * 4096


def local_path(uri: str, what: str) -> Path:
    """Returns the absolute path of a folder on this machine.

    Args:
        uri: A path, absolute or not, `~` allowed, or a `file://` URI.
        what: What the folder is, for the message.

    Raises:
        SpecError: The URI names another kind of storage.
    """
    if not uri:
        raise SpecError(f"{what} is empty; give a folder.")
    path = unquote(uri.removeprefix("file://")) if uri.startswith("file://") else uri
    if "://" in path:
        raise SpecError(f"{what} {uri} is not a folder of this machine; give a path.")
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as error:
        raise SpecError(f"{what} {uri} names no user of this machine; give a path.") from error


def existing_folder(uri: str, what: str) -> Path:
    """Returns the path of a folder that is there.

    Raises:
        SpecError: It is not.
    """
    path = local_path(uri, what)
    if not path.is_dir():
        seen = "is a file" if path.exists() else "does not exist"
        raise SpecError(f"{what} {path} {seen}; give an existing folder.")
    return path


def writable_folder(path: Path, what: str) -> None:
    """Makes a folder, or finds that it can be written to.

    Raises:
        SpecError: It cannot.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path, buffering=0) as probe:
            probe.write(_PROBE)
    except OSError as error:
        raise SpecError(
            f"{what} {path} cannot be written: {error.strerror}; choose another folder."
        ) from error


@contextmanager
def output_folder(uri: str) -> Iterator[Path]:
    """Makes a job's output folder and holds it, so that two jobs never write into one.

    Raises:
        SpecError: It cannot be made or written, or has no space left.
        Conflict: A running job holds it.
    """
    path = local_path(uri, "output_uri")
    with _lock_file(path) as lock:
        space = os.statvfs(path)
        free = space.f_bavail * space.f_frsize
        if free < MIN_FREE_BYTES:
            raise SpecError(
                f"output_uri {path} has {free / 2**20:.1f} MiB of space left; free some or choose"
                " another folder."
            )
        try:
            # The kernel drops it with the last holder, however that ends.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Conflict(
                f"output_uri {path} is in use by a running job; wait for it or choose another"
                " folder."
            ) from error
        yield path


def _lock_file(folder: Path) -> BinaryIO:
    """Makes a folder and its lock, and finds by it that files can be written there.

    A probe of its own would be one more file a trial, deleted at once: ext4 makes every new file
    dearer for five seconds after that, as it looks for an inode that was not just freed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("wb", buffering=0)
        try:
            lock.write(_PROBE)
            lock.truncate(0)
        except BaseException:
            lock.close()
            raise
    except OSError as error:
        raise SpecError(
            f"output_uri {folder} cannot be written: {error.strerror}; choose another folder."
        ) from error
    return lock


def forget_results(folder: Path) -> None:
    """Removes what an earlier job left that would be taken for the result of this one.

    Its history stays: a job that goes on from a checkpoint goes on with its history too.

    Raises:
        OutputError: A file cannot be removed.
    """
    for name in (RESULT, EVALUATION, REPORT):
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(
                f"{folder / name} of an earlier job cannot be removed: {error.strerror}; choose"
                " another folder."
            ) from error


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Writes a JSON file whole or not at all.

    Raises:
        OutputError: It cannot be written.
    """
    write_text(path, json.dumps(data, indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole or not at all.

    Raises:
        OutputError: It cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror}; free space or choose another folder."
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file.

    Raises:
        OutputError: It is missing or holds something else.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OutputError(f"{path} cannot be read: {error}; run the job again.") from error
    if not isinstance(data, dict):
        raise OutputError(f"{path} holds no JSON object; run the job again.")
    return data
