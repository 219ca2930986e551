"""Datasets on disk as tensorflow-datasets lays them out, written and read without TensorFlow.

Files written here are those of the stock builder of the same name and version: stock
`tfds.data_source(name, data_dir=...)` reads them, and its `download_and_prepare` finds nothing
to do.
"""

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets
from PIL import Image

from kfp_jax_runtime.data.catalogue import Dataset, Split
from kfp_jax_runtime.data.examples import Examples
from kfp_jax_runtime.data.png import png
from kfp_jax_runtime.data.store import version_dir
from kfp_jax_runtime.errors import BadInput

# It is only partly typed.
tfds: Any = tensorflow_datasets


def write(data_dir: Path, dataset: Dataset, splits: Mapping[Split, Examples]) -> None:
    """Writes a dataset into an empty `data_dir`, as array_record files of PNG images."""
    with _quiet():
        builder = _builder_class(dataset, splits)(data_dir=data_dir, file_format="array_record")
        builder.download_and_prepare()


def read(data_dir: Path, dataset: Dataset, split: Split) -> Examples:
    """Reads a whole split; 60,000 images take seconds, so keep the result.

    Raises:
        BadInput: the files are not there or not whole.
    """
    directory = version_dir(data_dir, dataset)
    try:
        with _quiet():
            source = tfds.builder_from_directory(directory).as_data_source(
                split=split,
                # Pillow is called below instead: three times as fast, and silent.
                decoders={"image": tfds.decode.SkipDecoding()},
            )
            rows = source.__getitems__(range(len(source)))
    except (OSError, ValueError, RuntimeError, IndexError) as error:
        raise BadInput(
            f"{directory} does not hold the whole {split} split of {dataset.title}: {error}"
        ) from error
    images = np.stack([np.asarray(Image.open(io.BytesIO(row["image"]))) for row in rows])
    return Examples(images, np.array([row["label"] for row in rows], np.uint8))


def mirror_url(dataset: Dataset) -> str:
    """Returns the public address that the stock builder downloads the dataset's .gz files from."""
    url: str = tfds.builder_cls(dataset.name).URL
    return url


def _builder_class(dataset: Dataset, splits: Mapping[Split, Examples]) -> Any:
    stock: Any = tfds.builder_cls(dataset.name)

    # Not registered: the name is the stock builder's, and stays what users get by it.
    class Builder(stock, skip_registration=True):  # type: ignore[misc, call-arg]  # the base is found at run time
        """The stock builder, with examples from memory instead of a download."""

        name = dataset.name

        def _split_generators(self, dl_manager: Any) -> Any:
            return {split: self._generate_examples(part) for split, part in splits.items()}

        def _generate_examples(self, part: Examples) -> Iterator[tuple[int, dict[str, Any]]]:
            for index, (image, label) in enumerate(zip(part.images, part.labels, strict=True)):
                # Encoded here: from an array, tensorflow-datasets would call TensorFlow.
                yield index, {"image": io.BytesIO(png(image)), "label": int(label)}

    return Builder


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    # It announces a download that does not take place, draws bars into logs, and warns about
    # how it uses protobuf itself.
    tfds.disable_progress_bar()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.filterwarnings("ignore", r"label\(\) is deprecated", DeprecationWarning)
        yield
