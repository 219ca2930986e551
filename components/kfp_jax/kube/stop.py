"""One thread's wish that another should stop, also while that one waits for a socket."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kfp_jax.clock import Clock

_SLICE_SECONDS = 0.02


class Stop:
    """Set once, never cleared. Not for signal handlers: it takes a lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = False
        self._actions: list[Callable[[], None]] = []

    @property
    def is_set(self) -> bool:
        """Whether somebody wants an end."""
        return self._set

    def set(self) -> None:
        """Asks for an end, and ends what now waits."""
        with self._lock:
            self._set = True
            actions, self._actions = self._actions, []
        for action in actions:
            action()

    @contextmanager
    def calls(self, action: Callable[[], None]) -> Iterator[None]:
        """Has `action` called when this is set within the block, or at once if it is already."""
        with self._lock:
            now = self._set
            if not now:
                self._actions.append(action)
        if now:
            action()
        try:
            yield
        finally:
            with self._lock:
                if action in self._actions:
                    self._actions.remove(action)

    def sleep(
        self, clock: Clock, seconds: float, until: Callable[[], bool] = lambda: False
    ) -> None:
        """Waits so many seconds of the clock, or until this is set or `until()` is true."""
        end = clock.now() + seconds
        while not self._set and not until() and (left := end - clock.now()) > 0:
            clock.sleep(min(left, _SLICE_SECONDS))
