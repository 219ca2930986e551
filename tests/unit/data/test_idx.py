"""The IDX reader: every bad file gets one sentence that names it."""

import contextlib
import gzip
import hashlib
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from fakes.idx_files import idx_bytes
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from kfp_jax_runtime.data.idx import read_idx
from kfp_jax_runtime.errors import BadInput

LABELS = idx_bytes(np.arange(10, dtype=np.uint8))
CLAIMS_TERABYTES = bytes((0, 0, 8, 3)) + struct.pack(">3I", 2**32 - 1, 28, 28)


@settings(max_examples=50)
@given(
    array=arrays.arrays(
        np.uint8, arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=9)
    ),
    zipped=st.booleans(),
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray, zipped: bool
) -> None:
    content = idx_bytes(array)
    path = tmp_path_factory.mktemp("idx") / "file"
    path.write_bytes(gzip.compress(content) if zipped else content)
    file = read_idx(path, array.ndim)
    np.testing.assert_array_equal(file.array, array)
    assert file.array.shape == array.shape
    assert file.md5 == hashlib.md5(content).hexdigest()


@given(content=st.binary(max_size=60), dimensions=st.integers(1, 3))
def test_other_bytes_are_refused_and_nothing_else_is_raised(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, dimensions: int
) -> None:
    path = tmp_path_factory.mktemp("idx") / "file"
    path.write_bytes(content)
    with contextlib.suppress(BadInput):
        assert idx_bytes(read_idx(path, dimensions).array) == content


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"", "begins with nothing", id="empty"),
        pytest.param(b"<html>not found", "begins with 3c 68 74 6d, not 00 00 08 01", id="html"),
        pytest.param(LABELS[:6], "truncated: it ends within its header", id="half-header"),
        pytest.param(LABELS[:-3], "only 7 follow", id="truncated"),
        pytest.param(LABELS + b"x", "and more follow", id="too-long"),
        pytest.param(bytes((0, 0, 13, 1)) + LABELS[4:], "unsigned bytes", id="of-floats"),
        pytest.param(bytes((0, 0, 8, 3)) + LABELS[4:], "in 1 dimensions", id="images-for-labels"),
        pytest.param(gzip.compress(LABELS)[:-9], "truncated gzip file", id="truncated-gzip"),
        pytest.param(gzip.compress(LABELS)[:12], "truncated gzip file", id="gzip-header-only"),
        pytest.param(
            gzip.compress(LABELS)[:-8] + bytes(8), "damaged or truncated", id="gzip-checksum"
        ),
    ],
)
def test_a_bad_file_gets_one_sentence(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "t10k-labels-idx1-ubyte"
    path.write_bytes(content)
    with pytest.raises(BadInput) as caught:
        read_idx(path, 1)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(BadInput, match="cannot be read"):
            read_idx(path, 1)


@pytest.mark.parametrize("zipped", [False, True])
def test_a_header_that_promises_terabytes_takes_no_memory(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(CLAIMS_TERABYTES) if zipped else CLAIMS_TERABYTES)
    tracemalloc.start()
    with pytest.raises(BadInput, match="only 0 follow"):
        read_idx(path, 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


def test_a_compressed_file_that_never_ends_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(LABELS + bytes(10_000_000)))
    tracemalloc.start()
    with pytest.raises(BadInput, match="and more follow"):
        read_idx(path, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6
