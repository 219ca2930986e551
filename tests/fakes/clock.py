import time


class ManualClock:
    """Time that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


class FastClock:
    """Time that goes a hundred times as fast, for threads that wait for each other."""

    SPEED = 100.0

    def now(self) -> float:
        return time.monotonic() * self.SPEED

    def wall(self) -> float:
        return time.time() * self.SPEED

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / self.SPEED)
