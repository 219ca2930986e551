"""Small IDX files, good and bad."""

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

IMAGES = {"train": "train-images-idx3-ubyte", "test": "t10k-images-idx3-ubyte"}
LABELS = {"train": "train-labels-idx1-ubyte", "test": "t10k-labels-idx1-ubyte"}


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def striped(examples: int, seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images of ten easily told classes (a bright row each), and their labels."""
    random = np.random.default_rng(seed)
    labels = (np.arange(examples) % 10).astype(np.uint8)
    images = random.integers(0, 60, (examples, 28, 28)).astype(np.uint8)
    for row, label in enumerate(labels):
        images[row, 4 + 2 * int(label)] = 255
    return images, labels


def write_folder(folder: Path, train: int = 30, test: int = 20, *, zipped: bool = False) -> Path:
    """Writes the four files of a small dataset."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, examples in (("train", train), ("test", test)):
        images, labels = striped(examples, seed=examples)
        for name, array in ((IMAGES[split], images), (LABELS[split], labels)):
            content = idx_bytes(array)
            path = folder / (f"{name}.gz" if zipped else name)
            path.write_bytes(gzip.compress(content) if zipped else content)
    return folder


def spoil(path: Path, **changes: Any) -> None:
    """Rewrites a file: cut=N drops its last N bytes, prefix=b"..." overwrites its first bytes."""
    content = path.read_bytes()
    if cut := changes.get("cut"):
        content = content[:-cut]
    if prefix := changes.get("prefix"):
        content = prefix + content[len(prefix) :]
    path.write_bytes(content)
