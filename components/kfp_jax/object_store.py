"""The launcher's side of a job whose output is in an object store.

The nodes write there by themselves. What the launcher writes lies in a folder of this machine while
the job runs, and is sent when it has ended, however it did.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

from kfp_jax_store import StoreError, is_complete, location, open_store, private_folder

from kfp_jax.errors import KfpJaxError, OutputError, SpecError

_PROBE_PATIENCE = timedelta(seconds=10)
_PATIENCE = timedelta(minutes=1)


def check_uri(uri: str, what: str) -> None:
    """Refuses what is no folder of an object store.

    Raises:
        SpecError: It is not.
    """
    try:
        location(uri)
    except ValueError as error:
        raise SpecError(f"{what} {error}.") from error


def check_writable(uri: str, what: str) -> None:
    """Finds out whether the job's results can be written, read, listed and deleted there.

    Raises:
        SpecError: They cannot.
    """
    try:
        open_store(uri, os.environ, patience=_PROBE_PATIENCE).probe()
    except StoreError as error:
        raise SpecError(f"{what} {error}") from None


def check_complete(uri: str, what: str) -> None:
    """Finds out whether a folder was written to its end.

    Raises:
        SpecError: It was not, or cannot be read.
    """
    check_uri(uri, what)
    try:
        if is_complete(open_store(uri, os.environ, patience=_PROBE_PATIENCE)):
            return
    except StoreError as error:
        raise SpecError(f"{what} {error}") from None
    raise SpecError(
        f"{what} {uri} is not a folder that a job has written to its end; check it, or run again"
        " what should have written it."
    )


def working_folder(uri: str) -> Path:
    """Returns the folder of this machine that stands for an output while its job runs.

    Raises:
        SpecError: Somebody else has a folder of that name.
    """
    name = sha256(uri.rstrip("/").encode()).hexdigest()[:24]
    try:
        return private_folder("launcher") / name
    except StoreError as error:
        raise SpecError(str(error)) from None


@contextmanager
def sent_at_the_end(
    uri: str, folder: Path, *, goes_on: Iterable[str], stale: Iterable[str]
) -> Iterator[None]:
    """Sends what lies in the folder after the block, and empties it.

    Args:
        uri: Where it goes.
        folder: Stands for it.
        goes_on: Files that are fetched first, where there are any: the job goes on with them.
        stale: Files that are removed there first.

    Raises:
        SpecError: The store refuses already at the beginning.
        OutputError: Something could not be sent. An error of the block itself goes before it.
    """
    _clear(folder)
    check_writable(uri, "output_uri")
    try:
        store = open_store(uri, os.environ)
        store.delete(list(stale))
        fetch(uri, goes_on, folder)
    except StoreError as error:
        raise SpecError(f"output_uri {error}") from None
    try:
        yield
    except BaseException:
        with suppress(KfpJaxError):  # what went wrong before matters more
            send(uri, folder)
        raise
    else:
        send(uri, folder)
    finally:
        _clear(folder)


def fetch(uri: str, names: Iterable[str], folder: Path) -> None:
    """Gets those of the files that are there.

    Raises:
        OutputError: The store refused or did not answer.
    """
    try:
        store = open_store(uri, os.environ, patience=_PATIENCE)
        for name in names:
            content = store.get_if_there(name)
            if content is not None:
                (folder / name).write_bytes(content)
    except StoreError as error:
        raise OutputError(str(error)) from None


def send(uri: str, folder: Path) -> None:
    """Writes all files of a folder, hidden ones apart.

    Raises:
        OutputError: The store refused or did not answer.
    """
    try:
        store = open_store(uri, os.environ, patience=_PATIENCE)
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                store.put(path.relative_to(folder).as_posix(), path)
    except StoreError as error:
        raise OutputError(str(error)) from None


def holds(uri: str) -> bool:
    """Returns whether a folder was written to its end.

    Raises:
        OutputError: The store refused or did not answer.
    """
    try:
        return is_complete(open_store(uri, os.environ, patience=_PATIENCE))
    except StoreError as error:
        raise OutputError(str(error)) from None


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != ".lock":  # held by us, and by its name known to others
            path.unlink(missing_ok=True)
