"""Whole folders to and from a store: complete, or known not to be.

A folder that was written to the end holds an object `_complete.json`, written last: the list of
its files with size and SHA-256. It goes first when the folder is written anew or removed, so that
whoever finds it finds all that it names, and a reader checks each file against it.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, TypeVar

from kfp_jax_store.store import PART_BYTES, Store, StoreError

MARKER: Final = "_complete.json"
_AT_ONCE: Final = 8
_BLOCK: Final = 1024 * 1024

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class File:
    """A file of a complete folder."""

    name: str
    size: int
    sha256: str


def upload(store: Store, folder: Path, name: str) -> int:
    """Makes the store's folder `name` that of a local one; returns how many bytes had to be sent.

    What is there with the same content, as from an attempt that was interrupted, is not sent
    again. In memory are at most 16 parts of 8 MiB.

    Args:
        store: Takes the folder.
        folder: Holds files, in folders too.
        name: Path of the folder in the store.

    Raises:
        StoreError: A file could not be written; the folder does not count as complete then.
        OSError: A local file cannot be read.
    """
    marker = f"{name}/{MARKER}"
    there = {found.name: found for found in store.objects(name)}
    names = sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )
    local = [each for each in names if each != MARKER]

    def send(each: str) -> tuple[File, int]:
        path = folder / each
        file, tag = _digests(path, each)
        found = there.get(f"{name}/{each}")
        if found and (found.size, found.tag) == (file.size, tag):
            return file, 0
        store.put(f"{name}/{each}", path)
        return file, file.size

    if marker in there:
        store.delete([marker])
    done = list(_each(send, local))
    wanted = {f"{name}/{each}" for each in local} | {marker}
    store.delete([found for found in there if found not in wanted])
    listing = {"files": [vars(file) for file, _ in done]}
    store.put(marker, json.dumps(listing).encode())
    return sum(sent for _, sent in done)


def complete(store: Store, under: str = "") -> list[str]:
    """Returns the names of the complete folders right under a folder of the store."""
    depth = len(PurePosixPath(under).parts) + 2
    paths = (PurePosixPath(found.name) for found in store.objects(under))
    return sorted(
        path.parent.name for path in paths if path.name == MARKER and len(path.parts) == depth
    )


def is_complete(store: Store, name: str = "") -> bool:
    """Returns whether the folder was written to its end."""
    return store.get_if_there(_under(name, MARKER)) is not None


def download(store: Store, name: str, folder: Path) -> None:
    """Makes `folder` a copy of the store's complete folder `name`; it appears whole.

    Raises:
        StoreError: The folder is not complete, or a file is not what it was when it was written.
        OSError: It cannot be written here.
    """
    content = store.get_if_there(_under(name, MARKER))
    if content is None:
        uri = f"{store.uri}/{name}".rstrip("/")
        raise StoreError(
            f"{uri} is not complete: it holds no {MARKER}; check the URI, or run again what should"
            " have written it.",
            "missing",
        )
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)

    def receive(file: File) -> None:
        path = _inside(partial, file.name, store)
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        store.fetch(_under(name, file.name), path, digest.update)
        if (path.stat().st_size, digest.hexdigest()) != (file.size, file.sha256):
            raise StoreError(
                f"{store.uri}/{_under(name, file.name)} is not what was written there: its size or"
                " SHA-256 differs; run again what should have written it."
            )

    for _ in _each(receive, _files(content, store)):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def remove(store: Store, name: str) -> None:
    """Removes a folder, which counts as incomplete from the beginning."""
    store.delete([f"{name}/{MARKER}"])
    store.delete([found.name for found in store.objects(name)])


def _files(content: bytes, store: Store) -> list[File]:
    try:
        return [File(**item | {"name": str(item["name"])}) for item in json.loads(content)["files"]]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise StoreError(
            f"{store.uri} holds a damaged {MARKER}; run again what should have written it."
        ) from error


def _inside(folder: Path, name: str, store: Store) -> Path:
    """Returns the path of a file; the list came from elsewhere and may name anything."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise StoreError(f"{store.uri} names a file outside its folder, {name!r:.80}; refuse it.")
    return folder / path


def _digests(path: Path, name: str) -> tuple[File, str]:
    """Returns a file's entry, and the ETag that S3 gives it when we send it."""
    whole = hashlib.sha256()
    parts: list[bytes] = []
    size = 0
    with path.open("rb") as file:
        while True:
            part = hashlib.md5(usedforsecurity=False)
            taken = 0
            while taken < PART_BYTES and (block := file.read(_BLOCK)):
                part.update(block)
                whole.update(block)
                taken += len(block)
            if taken or not parts:
                parts.append(part.digest())
            size += taken
            if taken < PART_BYTES:
                break
    if len(parts) == 1:
        tag = parts[0].hex()
    else:
        tag = f"{hashlib.md5(b''.join(parts), usedforsecurity=False).hexdigest()}-{len(parts)}"
    return File(name, size, whole.hexdigest()), tag


def _each(action: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yields the results in order; after an error what has not begun is not begun."""
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="store")
    try:
        yield from pool.map(action, items)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _under(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
