"""Checkpoints in an object store that Orbax cannot write to.

Process 0 saves on its own disk and a thread copies the finished step to the store, its marker last;
to restore, every process fetches the step to its own disk. So the processes may be others, on other
machines, and of another number than those that saved.
"""

import concurrent.futures
import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from kfp_jax_store import StoreError, complete, download, open_store, remove, upload

from kfp_jax_runtime.stored import refusals_are_bad_input

LAST_SECONDS = 10
"""A failure is told that much later, and only when a checkpoint is on its way."""


class StoredSteps:
    """The complete steps in a folder of a store, and one process's copies of them."""

    def __init__(self, uri: str, folder: Path, keep: int) -> None:
        self.folder = folder
        self._keep = keep
        with refusals_are_bad_input():
            self._store = open_store(uri, os.environ)
        # One at a time: a save waits for the copy of the one before, so that Orbax never removes
        # what is being read, and the disk never fills up with what the network cannot take.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._copying: Future[None] | None = None

    def newest(self) -> list[int]:
        """Returns the newest complete steps in the store, oldest first."""
        with refusals_are_bad_input():
            names = complete(self._store)
        return sorted(int(name) for name in names if name.isdecimal())[-self._keep :]

    def fetch(self, step: int) -> None:
        """Gets a step's copy, where there is none yet.

        Raises:
            ValueError: It is damaged, or gone.
        """
        path = self.folder / str(step)
        if path.is_dir():
            return
        try:
            with refusals_are_bad_input():
                download(self._store, str(step), path)
        except StoreError as error:
            raise ValueError(str(error)) from error

    def send(self, step: int, unreadable: Iterable[int]) -> None:
        """Begins to copy a step to the store, after which older ones go, and those unreadable."""
        self.wait()
        self._copying = self._pool.submit(self._send, step, frozenset(unreadable) - {step})

    def wait(self) -> None:
        """Returns when all is in the store.

        Raises:
            StoreError: It could not be written there.
        """
        copying, self._copying = self._copying, None
        if copying is not None:
            with refusals_are_bad_input():
                copying.result()

    def wait_briefly(self) -> None:
        """Gives what is on its way to the store a moment, for a program that has failed."""
        if self._copying is not None:
            concurrent.futures.wait([self._copying], LAST_SECONDS)

    def _send(self, step: int, unreadable: frozenset[int]) -> None:
        upload(self._store, self.folder / str(step), str(step))
        steps = {int(name) for name in complete(self._store) if name.isdecimal()}
        old = sorted(steps - unreadable)[: -self._keep]
        for each in (*old, *sorted(steps & unreadable)):
            remove(self._store, str(each))
