"""Somebody's wish that a job should stop, and the signals that express it."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType


class Cancellation:
    """A wish that a job should stop; may be made at any moment and more than once.

    Attributes:
        requested: Whether it was made.
    """

    def __init__(self) -> None:
        self.requested = False
        # Unlike a lock, its put() may interrupt anything: signal handlers make requests.
        self._requests: SimpleQueue[bool] = SimpleQueue()

    def request(self) -> None:
        """Asks the job to stop; a second time, not to wait for it to save."""
        self.requested = True
        self._requests.put(True)

    @contextmanager
    def carried_out_by(self, act: Callable[[], None]) -> Iterator[None]:
        """Calls `act` in a thread for each request, for one made before at once."""

        def carry_out() -> None:
            while self._requests.get():
                act()

        thread = threading.Thread(target=carry_out, name="cancellation")
        thread.start()
        try:
            yield
        finally:
            self._requests.put(False)
            thread.join()


@contextmanager
def cancel_on_signals() -> Iterator[Cancellation]:
    """Turns SIGTERM and SIGINT into a `Cancellation`; only for the main thread of a program.

    A second SIGTERM changes nothing: Argo sends it two or three times for one Terminate. A second
    SIGINT is a person who does not want to wait.
    """
    cancellation = Cancellation()

    def handle(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT or not cancellation.requested:
            cancellation.request()

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, handle) for number in numbers]
    try:
        yield cancellation
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
