"""Folders of a job: checked before anything starts, files written whole or not at all."""

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kfp_jax.errors import Conflict, OutputError, SpecError

# Less than this and not even the logs of a short run would fit.
MIN_FREE_BYTES = 16 * 1024 * 1024


def local_path(uri: str, what: str) -> Path:
    """Returns the absolute path of a folder on this machine.

    Args:
        uri: A path, absolute or not, `~` allowed, or a `file://` URI.
        what: What the folder is, for the message.

    Raises:
        SpecError: The URI names another kind of storage.
    """
    path = uri.removeprefix("file://")
    if "://" in path:
        raise SpecError(f"{what} {uri} is not a folder of this machine; give a path.")
    return Path(path).expanduser().absolute()


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


@contextmanager
def output_folder(uri: str) -> Iterator[Path]:
    """Makes a job's output folder and holds it, so that two jobs never write into one.

    Raises:
        SpecError: It cannot be made or written, or has no space left.
        Conflict: A running job holds it.
    """
    path = local_path(uri, "output_uri")
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path) as probe:
            probe.write(b"\0" * 4096)
            probe.flush()
        free = os.statvfs(path).f_bavail * os.statvfs(path).f_frsize
    except OSError as error:
        raise SpecError(
            f"output_uri {path} cannot be written: {error.strerror}; choose another folder."
        ) from error
    if free < MIN_FREE_BYTES:
        raise SpecError(
            f"output_uri {path} has {free / 2**20:.1f} MiB of space left; free some or choose"
            " another folder."
        )
    with (path / ".lock").open("w") as lock:
        try:
            # The kernel drops it with the last holder, however that ends.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Conflict(
                f"output_uri {path} is in use by a running job; wait for it or choose another"
                " folder."
            ) from error
        yield path


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
