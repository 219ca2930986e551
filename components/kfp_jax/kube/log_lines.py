"""From a container's log with timestamps to its lines, each once over any number of connections."""

from collections import Counter, deque
from datetime import UTC, datetime
from functools import lru_cache

MAX_LINE_BYTES = 1024 * 1024
_REMEMBERED = 1024
_NANO = 1_000_000_000


class LogCursor:
    """How far one log has been read. Pure.

    A log can be read again from a whole second on, not from a line on. So lines that come a second
    time must be told from new ones: by their moment in nanoseconds and their text. Of the last
    1,024 lines both are remembered; lines before those have come. Lines may share a moment, and may
    stand in the log a little out of order, as two streams of the container write into it.

    A line of more than 1 MiB comes in pieces of that size. Of what a carriage return overwrote on
    its line, only the last state comes.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._begun = b""  # the rest of the connection before, as long as this one has said nothing
        self._newest = -1
        self._recent: deque[tuple[int, int]] = deque()
        self._horizon = -1  # the newest line that is not remembered any more
        self._come_until = -1
        self._come: Counter[tuple[int, int]] = Counter()

    @property
    def since(self) -> str:
        """Returns the moment from which to read on, or "" for the beginning."""
        if self._newest < 0:
            return ""
        second = self._newest // _NANO - 1  # a line of that second may still have to come
        return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def resume(self) -> None:
        """Says that what is fed next begins at `since`; half a line comes anew, if any does."""
        self._begun, self._rest = self._rest or self._begun, b""
        self._come_until = self._horizon
        self._come = Counter(self._recent)

    def feed(self, data: bytes) -> list[str]:
        """Returns the new lines that `data` completes."""
        self._begun = b""
        whole, newline, rest = (self._rest + data).rpartition(b"\n")
        lines = whole.split(b"\n") if newline else []
        rest = _last_state(rest)
        while len(rest) > MAX_LINE_BYTES:
            piece, rest = _cut(rest)
            lines.append(piece)
        self._rest = rest
        return self._new(lines)

    def end(self) -> list[str]:
        """Returns the last line when the log ended, or went away, without a newline."""
        rest, self._rest, self._begun = self._rest or self._begun, b"", b""
        return self._new([rest]) if rest else []

    def _new(self, lines: list[bytes]) -> list[str]:
        """Returns the texts of those lines that have not come before."""
        texts = []
        for line in _pieces(lines):
            stamp, _, text = _last_state(line).partition(b" ")
            moment = _nanoseconds(stamp)
            if moment is None or moment <= self._come_until:
                continue  # without a moment it is the kubelet's own word, not the container's
            text = text.rstrip(b"\r")
            key = (moment, hash(text))
            if self._come and self._come[key]:
                self._come[key] -= 1
                continue
            self._remember(key)
            texts.append(text.decode("utf-8", "replace"))
        return texts

    def _remember(self, key: tuple[int, int]) -> None:
        self._newest = max(self._newest, key[0])
        self._recent.append(key)
        if len(self._recent) > _REMEMBERED:
            self._horizon = max(self._horizon, self._recent.popleft()[0])


def _pieces(lines: list[bytes]) -> list[bytes]:
    if all(len(line) <= MAX_LINE_BYTES for line in lines):
        return lines
    pieces = []
    for line in lines:
        while len(line) > MAX_LINE_BYTES:
            piece, line = _cut(line)
            pieces.append(piece)
        pieces.append(line)
    return pieces


def _cut(line: bytes) -> tuple[bytes, bytes]:
    """Returns the first piece of a line, and the rest as a line of the same moment."""
    stamp, space, _ = line[:64].partition(b" ")
    return line[:MAX_LINE_BYTES], stamp + space + line[MAX_LINE_BYTES:]


def _last_state(line: bytes) -> bytes:
    """Returns a line with its timestamp, but without what a carriage return overwrote."""
    if b"\r" not in line:
        return line
    stamp, space, text = line.partition(b" ")
    return stamp + space + text[text.rstrip(b"\r").rfind(b"\r") + 1 :]


def _nanoseconds(stamp: bytes) -> int | None:
    """Returns a moment such as 2026-01-02T03:04:05.123456789Z since the epoch, or None."""
    second, digits = stamp[:19], stamp[20:-1]
    if stamp.endswith(b"Z"):
        seconds = _seconds(second, b"+00:00")
    else:
        digits, zone = stamp[20:-6], stamp[-6:]
        seconds = _seconds(second, zone)
    if seconds is None or not (digits.isdigit() or not digits):
        return None
    return seconds * _NANO + int(digits.ljust(9, b"0")[:9])


@lru_cache(maxsize=64)
def _seconds(second: bytes, zone: bytes) -> int | None:
    try:
        return int(datetime.fromisoformat((second + zone).decode()).timestamp())
    except ValueError:
        return None
