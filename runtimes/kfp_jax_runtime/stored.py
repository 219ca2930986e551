"""What a node has in an object store: its results go there, its inputs come from there."""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kfp_jax_store import (
    MARKER,
    StoreError,
    download,
    is_complete,
    open_store,
    private_folder,
    upload,
)

from kfp_jax_runtime import model_folder
from kfp_jax_runtime.errors import BadInput
from kfp_jax_runtime.node import Node

_RESTART_HELPS = frozenset({"endpoint", ""})


@contextmanager
def settled(here: Node) -> Iterator[Node]:
    """Yields the node with its dataset fetched and its folders made; removes them afterwards.

    Raises:
        BadInput: The dataset is not there, or the output cannot be written.
    """
    try:
        if here.scratch:
            _make_scratch(here)
        if here.dataset_uri:
            here = replace(here, dataset_dir=cached(here.dataset_uri))
        yield here
    finally:
        if here.scratch:
            shutil.rmtree(here.scratch, ignore_errors=True)


def send_results(here: Node) -> None:
    """Sends what this process has in its output folder to the store.

    Each folder is sent as one, complete or known not to be; the model by process 0 alone, which
    wrote it. Loose files come last.

    Raises:
        StoreError: The store refused or did not answer.
    """
    if not here.output_uri:
        return
    with refusals_are_bad_input():
        store = open_store(here.output_uri, os.environ)
        found = sorted(here.output_dir.iterdir())
        for path in (path for path in found if path.is_dir()):
            if path.name != model_folder.NAME or here.process_index == 0:
                upload(store, path, path.name)
        for path in (path for path in found if path.is_file()):
            store.put(path.name, path)


def cached(uri: str) -> Path:
    """Returns a copy of a complete folder of a store, fetched once for all processes of a node.

    It is known by its list of digests: a folder that was written anew is fetched anew.

    Raises:
        BadInput: It is not there, or may not be read.
        StoreError: The store did not answer, or a file is damaged.
    """
    with refusals_are_bad_input():
        store = open_store(uri, os.environ)
        if not is_complete(store):
            raise BadInput(
                f"{uri} is not a folder that was written to its end: it holds no {MARKER}; check"
                " the URI, or run the step again that should have written it"
            )
        content = hashlib.sha256(uri.encode() + store.get(MARKER)).hexdigest()[:24]
        cache = private_folder("cache")
        folder = cache / content
        with (cache / f".{content}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # dropped by the system if this process dies
            if not folder.is_dir():
                download(store, "", folder)
    return folder


@contextmanager
def refusals_are_bad_input() -> Iterator[None]:
    """Turns the store's errors that no restart mends into bad input."""
    try:
        yield
    except StoreError as error:
        if error.problem in _RESTART_HELPS:
            raise
        raise BadInput(str(error).rstrip(".")) from None


def _make_scratch(here: Node) -> None:
    assert here.scratch
    shutil.rmtree(here.scratch, ignore_errors=True)
    try:
        here.scratch.mkdir(mode=0o700)
        for folder in (here.output_dir, here.shared_dir):
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"the scratch folder {here.scratch} cannot be created: {error.strerror}; name a"
            " writable folder in TMPDIR"
        ) from error
    if here.process_index == 0:
        with refusals_are_bad_input():
            open_store(here.output_uri, os.environ).probe()
