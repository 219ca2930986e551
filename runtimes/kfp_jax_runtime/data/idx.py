"""IDX, the file format of MNIST: a big-endian header, then the bytes of one array."""

import gzip
import hashlib
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kfp_jax_runtime.errors import BadInput

_UNSIGNED_BYTE = 8
_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 1 << 20


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class IdxFile:
    """What an IDX file holds."""

    array: NDArray[np.uint8]
    md5: str
    """Of the uncompressed file, header included."""


def read_idx(path: Path, dimensions: int) -> IdxFile:
    """Reads an IDX file of unsigned bytes, plain or compressed by gzip.

    Reads no more than the header promises, so neither a header that promises too much nor a
    compressed file that never ends takes memory.

    Args:
        path: the file; its content, not its name, says whether it is compressed.
        dimensions: how many the array must have.

    Raises:
        BadInput: the file cannot be read or is not such a file; the message names it and says why.
    """
    try:
        with path.open("rb") as plain:
            compressed = plain.read(2) == _GZIP_MAGIC
            plain.seek(0)
            if not compressed:
                return _parse(plain, path, dimensions)
            with gzip.open(plain, "rb") as unpacked:
                return _parse(unpacked, path, dimensions)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(
            f"{path} is a damaged or truncated gzip file ({error}); fetch it anew"
        ) from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from error


def _parse(stream: _Stream, path: Path, dimensions: int) -> IdxFile:
    magic = stream.read(4)
    expected = bytes((0, 0, _UNSIGNED_BYTE, dimensions))
    if magic != expected:
        raise BadInput(
            f"{path} is not an IDX file of unsigned bytes in {dimensions} dimensions: it begins "
            f"with {magic.hex(' ') or 'nothing'}, not {expected.hex(' ')}"
        )
    header = stream.read(4 * dimensions)
    if len(header) < 4 * dimensions:
        raise BadInput(f"{path} is truncated: it ends within its header; fetch it anew")
    shape = tuple(int(size) for size in np.frombuffer(header, ">u4"))
    size = math.prod(shape)
    data = _read_at_most(stream, size + 1)
    if len(data) != size:
        seen = f"only {len(data):,}" if len(data) < size else "more"
        word = "truncated" if len(data) < size else "too long"
        raise BadInput(
            f"{path} is {word}: its header promises {' x '.join(map(str, shape))} = {size:,} "
            f"bytes, and {seen} follow; fetch it anew"
        )
    digest = hashlib.md5(magic + header, usedforsecurity=False)
    digest.update(data)
    return IdxFile(np.frombuffer(data, np.uint8).reshape(shape), digest.hexdigest())


def _read_at_most(stream: _Stream, size: int) -> bytes:
    # In pieces: read(size) would allocate whatever a broken header promises.
    pieces = []
    while size > 0 and (piece := stream.read(min(size, _CHUNK_BYTES))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)
