"""SIGTERM in a process that has not (yet) handed it to JAX."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

_ARRIVES_WITHIN_SECONDS = 1.0  # unless the program ignores it


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
        self._signalled = threading.Event()

    def __call__(self) -> bool:
        """Returns whether SIGTERM has come."""
        self._asked = True
        return self._signalled.is_set()

    def notice(self) -> None:
        """Acts on one SIGTERM; a second one changes nothing."""
        self._signalled.set()
        if not self._asked:
            self._leave()

    def noticed(self, seconds: float) -> bool:
        """Waits up to so many seconds for a SIGTERM, and returns whether it has come."""
        return self._signalled.wait(seconds)


class SigtermListener:
    """Hears a process's SIGTERM and tells the one who wants to know; one of it a process."""

    def __init__(self) -> None:
        self._stop: StopOnSigterm | None = None
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        threading.Thread(target=self._listen, daemon=True, name="sigterm").start()

    def tell(self, stop: StopOnSigterm) -> None:
        """Takes over SIGTERM, anew where somebody else has it; main thread only."""
        self._stop = stop
        # Python runs handlers in the main thread, which may sit in native code for minutes. The
        # wakeup descriptor is written at once, and read by a thread.
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, _let_the_thread_act)

    def send(self) -> None:
        """Sends SIGTERM to this process and its group, and returns when it has arrived here."""
        os.killpg(0, signal.SIGTERM)
        if self._stop is not None:
            self._stop.noticed(_ARRIVES_WITHIN_SECONDS)

    def _listen(self) -> None:
        while number := os.read(self._read, 1):
            if number[0] == signal.SIGTERM and self._stop is not None:
                self._stop.notice()


def _let_the_thread_act(number: int, frame: FrameType | None) -> None:
    # Leaving prints, which a handler may not do: it may have interrupted another print.
    pass
