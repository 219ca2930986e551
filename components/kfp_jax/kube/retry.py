"""How often and how long a call is tried again: a value, and the state of one series of tries."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from kfp_jax.clock import Clock
from kfp_jax.kube.stop import Stop

CHANCE = random.Random().random
"""Of our own: who seeds the module's is to get the same numbers whatever other threads do."""


@dataclass(frozen=True)
class Retry:
    """Pauses that double, with a random part so that many clients do not come back together.

    Attributes:
        for_seconds: How long one call is tried; 0: once.
        first: Seconds of the first pause.
        most: Seconds of the longest pause, unless the server asks for more.
    """

    for_seconds: float = 60.0
    first: float = 0.1
    most: float = 10.0

    def pause(self, tries: int, chance: float, retry_after: float = 0.0) -> float:
        """Returns the seconds to wait after so many failed tries.

        Args:
            tries: 0 for the first pause.
            chance: A random number from 0 to 1.
            retry_after: Seconds that the server asked for; never undercut.
        """
        growing = min(self.most, self.first * 2.0 ** min(tries, 30))
        return retry_after + growing * (0.5 + 0.5 * chance)


ONCE = Retry(for_seconds=0.0)


class Backoff:
    """The pauses of one series of tries."""

    def __init__(
        self, retry: Retry, clock: Clock, stop: Stop, chance: Callable[[], float] = CHANCE
    ) -> None:
        self._retry = retry
        self._clock = clock
        self._stop = stop
        self._chance = chance
        self._tries = 0

    def reset(self) -> None:
        """Starts small again: something went well."""
        self._tries = 0

    def next_pause(self, retry_after: float = 0.0) -> float:
        """Returns the seconds of the next pause, each longer than the one before."""
        seconds = self._retry.pause(self._tries, self._chance(), retry_after)
        self._tries += 1
        return seconds

    def pause(self, retry_after: float = 0.0, until: Callable[[], bool] = lambda: False) -> None:
        """Waits, but not on when stopped or when `until()` is true."""
        self._stop.sleep(self._clock, self.next_pause(retry_after), until)
