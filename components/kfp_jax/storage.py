"""Folders of a job: checked before anything starts, files written whole or not at all."""

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import unquote

from kfp_jax_store import is_remote

from kfp_jax import object_store
from kfp_jax.contained import open_text
from kfp_jax.errors import Conflict, OutputError, SpecError
from kfp_jax.spec import CLAIM_SCHEME

RESULT = "result.json"
HISTORY = "history.jsonl"
EVALUATION = "evaluation.json"
REPORT = "report.html"

# Less than this and not even the logs of a short run would fit.
MIN_FREE_BYTES = 16 * 1024 * 1024
_PROBE_BYTES = 4096


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
    if uri.startswith(CLAIM_SCHEME):
        raise SpecError(
            f"{what} {uri} is on a claim of a cluster, which this machine does not see; give a path"
            " here, or choose the backend trainer or jobset for a job."
        )
    path = unquote(uri.removeprefix("file://")) if uri.startswith("file://") else uri
    if "://" in path:
        raise SpecError(f"{what} {uri} is not a folder of this machine; give a path.")
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as error:
        raise SpecError(f"{what} {uri} names no user of this machine; give a path.") from error


def place(uri: str, what: str) -> str:
    """Returns a folder as its absolute path, or the URI of a store or a claim as it is.

    Raises:
        SpecError: It is none of them.
    """
    if uri.startswith(CLAIM_SCHEME):
        return uri.rstrip("/")
    if not is_remote(uri):
        return str(local_path(uri, what))
    object_store.check_uri(uri, what)
    return uri.rstrip("/")


def identity(uri: str, what: str) -> str:
    """Returns what is the same for all spellings of one folder: a job is named by it.

    Files are still written where the user says: a link may be meant to be moved.

    Raises:
        SpecError: It is no folder.
    """
    if uri.startswith(CLAIM_SCHEME):
        claim, _, path = uri.removeprefix(CLAIM_SCHEME).partition("/")
        return f"{CLAIM_SCHEME}{claim}/{path.strip('/')}".rstrip("/")
    placed = place(uri, what)
    return placed if is_remote(placed) else os.path.realpath(placed)


def here(uri: str, what: str) -> Path:
    """Returns the folder of this machine that is a job's output, or stands for it.

    For a store it does so while the job runs. For a claim it stays: what the launcher writes, it
    can write nowhere else.
    """
    apart = is_remote(uri) or uri.startswith(CLAIM_SCHEME)
    return object_store.working_folder(uri) if apart else local_path(uri, what)


def shown_at(output: str) -> str:
    """Returns where a person finds what the launcher wrote of a finished job."""
    return str(here(output, "output_uri")) if output.startswith(CLAIM_SCHEME) else output


def check_output(uri: str, what: str) -> None:
    """Refuses an output that is neither a folder here nor a writable place in an object store.

    Raises:
        SpecError: It is neither.
    """
    check_place(uri, what)
    if is_remote(uri):
        object_store.check_writable(uri, what)


def check_place(uri: str, what: str) -> None:
    """Refuses what is neither a folder here nor one in an object store, without a look at it.

    Raises:
        SpecError: It is neither.
    """
    if is_remote(uri):
        object_store.check_uri(uri, what)
    else:
        local_path(uri, what)


def check_dataset(uri: str, what: str) -> None:
    """Refuses a dataset that is not there.

    Raises:
        SpecError: It is not.
    """
    if is_remote(uri):
        object_store.check_complete(uri, what)
    else:
        existing_folder(uri, what)


def exists(uri: str) -> bool:
    """Returns whether a folder of results is there, and in an object store complete.

    Raises:
        OutputError: The store refused or did not answer.
    """
    if uri.startswith(CLAIM_SCHEME):
        return True  # as the nodes say, who alone see it
    return object_store.holds(uri) if is_remote(uri) else Path(uri).exists()


@contextmanager
def results(output: str) -> Iterator[Path]:
    """Yields a finished job's files: its folder, or a copy, of which a report is sent back.

    Raises:
        OutputError: The store refused or did not answer.
    """
    if not is_remote(output):
        yield here(output, "output_uri")
        return
    with tempfile.TemporaryDirectory() as folder:
        object_store.fetch(output, (RESULT, HISTORY, EVALUATION), Path(folder))
        yield Path(folder)
        if (Path(folder) / REPORT).exists():
            with tempfile.TemporaryDirectory() as only:
                (Path(folder) / REPORT).rename(Path(only) / REPORT)
                object_store.send(output, Path(only))


def read_result(output: str, name: str) -> dict[str, Any]:
    """Returns the JSON object in one of a job's results.

    Raises:
        OutputError: It is missing or holds something else.
    """
    if not is_remote(output):
        return read_json(Path(output) / name)
    with tempfile.TemporaryDirectory() as folder:
        object_store.fetch(output, (name,), Path(folder))
        return read_json(Path(folder) / name)


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
            probe.write(bytes(_PROBE_BYTES))
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
    path = here(uri, "output_uri")
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
        if not is_remote(uri):
            yield path
            return
        stale = (RESULT, EVALUATION, REPORT)
        with object_store.sent_at_the_end(uri, path, goes_on=(HISTORY,), stale=stale):
            yield path


def _lock_file(folder: Path) -> TextIO:
    """Makes a folder and its lock, and finds by it that files can be written there.

    A probe of its own would be one more file a trial, deleted at once: ext4 makes every new file
    dearer for five seconds after that, as it looks for an inode that was not just freed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open_text(folder / ".lock", "a")
        try:
            lock.write("\0" * _PROBE_BYTES)
            lock.flush()
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
        partial.unlink(missing_ok=True)
        with open_text(partial, "x") as file:
            file.write(text)
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
        with open_text(path, "r") as file:
            data = json.load(file)
    except (OSError, ValueError) as error:
        raise OutputError(f"{path} cannot be read: {error}; run the job again.") from error
    if not isinstance(data, dict):
        raise OutputError(f"{path} holds no JSON object; run the job again.")
    return data
