"""Several streams as one: each is read in a thread of its own."""

import queue
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Generic, Self, TypeVar

from kfp_jax.kube.stop import Stop

T = TypeVar("T")

_ROOM = 16
_LOOK_SECONDS = 0.2


class Feed(Generic[T]):
    """Items of several sources in the order in which they come; a context manager.

    A source waits while 16 items wait to be taken. Leaving the block sets `stop`, by which the
    sources must end; it does not wait for them.
    """

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._items: queue.Queue[T | BaseException | None] = queue.Queue(_ROOM)

    def add(self, source: Iterable[T], name: str) -> None:
        """Begins to read a source; the thread gets that name."""
        threading.Thread(target=self._read, args=(source,), name=name, daemon=True).start()

    def take(self, seconds: float) -> T | None:
        """Returns the next item, or None when so many seconds brought none or `stop` was set.

        Raises:
            Exception: What a source raised.
        """
        with self._stop.calls(self.wake):
            try:
                item = self._items.get(timeout=seconds)
            except queue.Empty:
                return None
        if isinstance(item, BaseException):
            raise item
        return None if self._stop.is_set else item

    def wake(self) -> None:
        """Has a `take` that waits return None."""
        with suppress(queue.Full):  # then nobody waits
            self._items.put_nowait(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def _read(self, source: Iterable[T]) -> None:
        try:
            for item in source:
                self._put(item)
                if self._stop.is_set:
                    return
        except Exception as error:  # noqa: BLE001  raised again where the items are taken
            self._put(error)

    def _put(self, item: T | BaseException) -> None:
        while not self._stop.is_set:
            with suppress(queue.Full):
                self._items.put(item, timeout=_LOOK_SECONDS)
                return
