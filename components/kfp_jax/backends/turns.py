"""Who runs now and who waits: places, given out in the order in which they were asked for."""

import threading
from collections import deque
from collections.abc import Callable, Sequence

from kfp_jax.backends.local_job import Attempt, LogFile
from kfp_jax.processes import append
from kfp_jax.status import ProcessStatus


class Turns:
    """Places from 0, each of which one job has at a time.

    Each place may have a note of what it is warm for, and is given to a job of that note rather
    than to another.
    """

    def __init__(self, places: int) -> None:
        self._free = set(range(places))
        self._notes: dict[int, str] = {}
        self._waiting: deque[object] = deque()
        self._lock = threading.Lock()

    def join(self, who: object) -> None:
        """Puts somebody at the end of those who wait."""
        with self._lock:
            self._waiting.append(who)

    def leave(self, who: object) -> None:
        """Takes somebody out of those who wait."""
        with self._lock:
            if who in self._waiting:
                self._waiting.remove(who)

    def take(self, who: object, places: int, note: str) -> Sequence[int]:
        """Returns the places of who is first of those who wait, or () where it is not its turn."""
        with self._lock:
            if self._waiting[0] is not who or len(self._free) < places:
                return ()
            self._waiting.popleft()
            return [self._pick(note) for _ in range(places)]

    def take_free(self, note: str) -> int | None:
        """Returns a place that nobody waits for, or None."""
        with self._lock:
            return self._pick(note) if self._free and not self._waiting else None

    def note(self, place: int, note: str) -> None:
        """Says what a place is warm for."""
        with self._lock:
            self._notes[place] = note

    def give_back(self, places: Sequence[int]) -> None:
        """Frees places."""
        with self._lock:
            self._free.update(places)

    def _pick(self, note: str) -> int:
        # Of the others, a cold one rather than one that is warm for somebody else.
        fit = {note: 0, None: 1}
        place = min(self._free, key=lambda place: (fit.get(self._notes.get(place), 2), place))
        self._free.remove(place)
        return place


class WaitingAttempt:
    """An attempt that starts when it has its turn.

    Args:
        turns: Where it waits.
        places: How many it needs.
        note: What they should be warm for.
        start: Starts it in these places.
        files: Its logs, which are there, empty, from the beginning.
    """

    def __init__(
        self,
        turns: Turns,
        places: int,
        note: str,
        start: Callable[[Sequence[int]], Attempt],
        files: Sequence[LogFile],
    ) -> None:
        for file in files:
            append(file.path).close()
        self._turns = turns
        self._needs = places
        self._note = note
        self._start = start
        self._files = files
        self._places: Sequence[int] = ()
        self._started: Attempt | None = None
        self._closed = False
        turns.join(self)
        self.waits()

    @property
    def failed_at(self) -> float | None:
        """When the first of its processes was seen to have failed, or None."""
        return self._started.failed_at if self._started else None

    def waits(self) -> bool:
        """Returns whether it has still to wait; starts it where it has not."""
        if self._started or self._closed:
            return False
        self._places = self._turns.take(self, self._needs, self._note)
        if not self._places:
            return True
        try:
            self._started = self._start(self._places)
        except BaseException:
            self.close()
            raise
        return False

    def poll(self, now: float) -> Sequence[ProcessStatus]:
        """Returns how each process is; before they start, that none is alive."""
        if self._started:
            return self._started.poll(now)
        return [ProcessStatus(file.process, alive=False) for file in self._files]

    def news(self) -> int | None:
        """Returns what its processes have; before they start, None."""
        return self._started.news() if self._started else None

    def terminate(self) -> None:
        """Asks the processes to stop; before they start, there is nobody to ask."""
        if self._started:
            self._started.terminate()

    def close(self) -> None:
        """Ends what still runs and gives the places to the next."""
        if self._closed:
            return
        self._closed = True
        self._turns.leave(self)
        try:
            if self._started:
                self._started.close()
        finally:
            self._turns.give_back(self._places)
