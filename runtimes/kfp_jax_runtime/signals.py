"""SIGTERM in a process that has not (yet) handed it to JAX."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType


class StopOnSigterm:
    """Ends the process on SIGTERM until someone asks; from then on it only answers.

    So a signal is not lost: neither while modules are imported or a process waits for the others,
    nor in a lone process whose program never asks whether to stop. The kernel's default action
    would do as much, but not for process 1 of a container. Where several processes have joined,
    JAX has put its own handler in the place of this one: it notes the signal for the sync point
    that `run.stop_requested` asks, and ends nothing.
    """

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave = leave
        self._asked = False
        self._signalled = False

    def __call__(self) -> bool:
        """Returns whether SIGTERM has come."""
        self._asked = True
        return self._signalled

    def install(self) -> None:
        """Takes over SIGTERM; main thread only."""
        # Python runs handlers in the main thread, which may sit in native code for minutes. The
        # wakeup descriptor is written at once, and read by a thread.
        read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, _let_the_thread_act)
        threading.Thread(target=self._listen, args=(read,), daemon=True, name="sigterm").start()

    def _listen(self, read: int) -> None:
        while number := os.read(read, 1):
            if number[0] == signal.SIGTERM:
                self.notice()

    def notice(self) -> None:
        """Acts on one SIGTERM; a second one changes nothing."""
        self._signalled = True
        if not self._asked:
            self._leave()


def _let_the_thread_act(number: int, frame: FrameType | None) -> None:
    # Leaving prints, which a handler may not do: it may have interrupted another print.
    pass
