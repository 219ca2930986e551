"""Time as an argument, so that tests can run it by hand."""

import time
from typing import Protocol


class Clock(Protocol):
    """What the rest of the package may ask of time."""

    def now(self) -> float:
        """Returns monotonic seconds, for durations and deadlines."""
        ...

    def wall(self) -> float:
        """Returns seconds since the epoch, for records."""
        ...

    def sleep(self, seconds: float) -> None:
        """Waits."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Returns monotonic seconds."""
        return time.monotonic()

    def wall(self) -> float:
        """Returns seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Waits."""
        time.sleep(seconds)
