"""From a growing file to whole lines, in bounded memory."""

from pathlib import Path
from typing import Self

# A report may be 256 KiB; what is longer than this is handed on in pieces.
MAX_LINE_BYTES = 1024 * 1024
_CHUNK = 256 * 1024


class LineSplitter:
    """Cuts bytes into lines.

    A carriage return means what it means on a terminal: what stands before it on its line was
    overwritten, so of a progress bar only the last state is kept.
    """

    def __init__(self) -> None:
        self._rest = b""

    @property
    def pending(self) -> int:
        """How many bytes wait for their newline."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[str]:
        """Returns the lines that `data` completes."""
        whole, newline, rest = (self._rest + data).rpartition(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            whole, newline, rest = whole + newline + rest, b"\n", b""
        self._rest = rest[rest.rfind(b"\r", 0, -1) + 1 :]
        return _lines(whole) if newline else []

    def unfinished(self) -> list[str]:
        """Returns the line that waits for its newline as it is now; it comes again when it ends."""
        return _lines(self._rest) if self._rest else []

    def end(self) -> list[str]:
        """Returns the last line when the stream ended without a newline."""
        rest = self.unfinished()
        self._rest = b""
        return rest


def _lines(data: bytes) -> list[str]:
    lines = data.decode("utf-8", "replace").split("\n")
    if b"\r" in data:
        return [line.rstrip("\r").rpartition("\r")[2] for line in lines]
    return lines


class Tail:
    """Reads what is appended to one file, from its start; a context manager that closes it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self._splitter = LineSplitter()

    def read(self) -> list[str] | None:
        """Returns the lines that the next 256 KiB complete, or None where nothing is new."""
        data = self._file.read(_CHUNK)
        return self._splitter.feed(data) if data else None

    def unfinished(self) -> list[str]:
        """Returns the line that waits for its newline as it is now; it comes again when it ends."""
        return self._splitter.unfinished()

    def end(self) -> list[str]:
        """Returns the last line when the file ended without a newline."""
        return self._splitter.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
