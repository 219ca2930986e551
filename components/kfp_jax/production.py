"""Which model is in production: a folder with a pointer, and the rule by which it moves.

    <folder>/current.json     what is in production, and what it took the place of
    <folder>/history/0003.json  the same of every version, so that the line of models can be read
    <folder>/models/<name>    the models

A promotion is made against the version that it was compared with. When that is no longer the one
in production, it is refused, and whoever asked compares again: two never both win against the same.
"""

import fcntl
import hashlib
import json
import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kfp_jax import storage
from kfp_jax.contained import open_text, path_below, refuse_links
from kfp_jax.errors import OutputError, SpecError

CURRENT = "current.json"
_HISTORY = "history"
_MODELS = "models"
_LOCK = ".lock"


@dataclass(frozen=True)
class InProduction:
    """What current.json says.

    Attributes:
        version: Counts promotions, from 1.
        model: The model's folder, below the production folder.
        model_uri: What it is a copy of.
        score: What it had when it was promoted; more is better.
        data: Tells the examples that it was scored on; "" where that is not known.
        run: The pipeline run that promoted it.
        promoted_at: When, in UTC.
        replaced: What it took the place of: version, run, and the score on the same examples.
    """

    version: int
    model: str
    model_uri: str
    score: float
    data: str
    run: str
    promoted_at: str
    replaced: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Decision:
    """Whether a model is promoted, and why in one sentence."""

    promote: bool
    why: str


def decide(score: float, current: float | None, min_score: float, min_gain: float) -> Decision:
    """Returns whether a model with this score takes the place of the one in production.

    Args:
        score: The candidate's.
        current: That of the model in production on the same examples; None when there is none.
        min_score: What a model must have in any case.
        min_gain: By how much it must be better; equal is not better.
    """
    if not math.isfinite(score):
        return Decision(False, f"its score is {score}")
    if score < min_score:
        return Decision(False, f"its score {score:.4g} is less than min_score {min_score:.4g}")
    if current is None:
        return Decision(True, "no model is in production")
    if math.isfinite(current) and not (score > current and score - current >= min_gain):
        needed = f" by {min_gain:.4g}" if min_gain else ""
        return Decision(
            False, f"its score {score:.4g} does not beat {current:.4g} of production{needed}"
        )
    return Decision(True, f"its score {score:.4g} beats {current:.4g} of production")


class ProductionFolder:
    """The folder on a file system that all runs see, with working flock (NFS 4 has it)."""

    def __init__(self, uri: str) -> None:
        """Makes the folder.

        Raises:
            SpecError: It is no folder, or cannot be written.
        """
        self.path = storage.local_path(uri, "production")
        for folder in (self.path, self.path / _HISTORY, self.path / _MODELS):
            storage.writable_folder(folder, "production")

    def current(self) -> InProduction | None:
        """Returns what is in production, or None.

        Raises:
            OutputError: current.json is broken, or names a model of another folder.
        """
        file = self.path / CURRENT
        if not file.exists():
            return None
        try:
            found = InProduction(**storage.read_json(file))
        except TypeError as error:
            raise OutputError(
                f"{file} does not say what is in production: {error}; restore it from"
                f" {self.path / _HISTORY}."
            ) from error
        path_below(self.path, found.model, "Model")
        return found

    def bring(self, model: Path, uri: str, run: str) -> str:
        """Copies a model in, whole or not at all. Returns its folder below this one.

        Raises:
            OutputError: There is no model, it cannot be copied, or it holds a link out of it.
        """
        if not model.is_dir() or not any(model.iterdir()):
            raise OutputError(f"Model {model} is no folder with files; run the training again.")
        refuse_links(model, "Model")
        # Of a task that is tried again it is the same.
        name = hashlib.sha256(f"{run}\n{uri}".encode()).hexdigest()[:16]
        target = self.path / _MODELS / name
        try:
            if not target.exists():
                with tempfile.TemporaryDirectory(prefix=".", dir=target.parent) as partial:
                    shutil.copytree(model, Path(partial) / name)
                    (Path(partial) / name).rename(target)
        except OSError as error:  # shutil.Error is one
            if not target.exists():  # else another attempt of the same was faster
                raise OutputError(
                    f"Model {model} cannot be copied to {target}: {error.strerror or error}; free"
                    " space, or see to the rights of the folder."
                ) from error
        return f"{_MODELS}/{name}"

    def move(self, to: InProduction) -> bool:
        """Makes a model the one in production if that is still the version before it.

        Raises:
            OutputError: It cannot be written; the old one stays.
        """
        with self._locked():
            now = self.current()
            if (now.version if now else 0) != to.version - 1:
                return False
            line = self.path / _HISTORY / f"{to.version:04d}.json"
            storage.write_json(line, asdict(to))
            storage.write_json(self.path / CURRENT, asdict(to))
            return True

    def drop(self, model: str) -> None:
        """Removes a model that was brought and not promoted."""
        with self._locked():
            now = self.current()
            if now is None or now.model != model:
                shutil.rmtree(self.path / model, ignore_errors=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open_text(self.path / _LOCK, "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def data_key(dataset_uri: str, split: str = "test") -> str:
    """Returns what tells the examples of a split from others; "" where it cannot be told.

    It is the digest of their files: the same folder may hold other examples tomorrow.
    """
    try:
        folder = storage.local_path(dataset_uri, "dataset_uri")
    except SpecError:
        return ""
    files = sorted(path for path in folder.rglob(f"*{split}*") if path.is_file())
    digest = hashlib.sha256(json.dumps([str(path.relative_to(folder)) for path in files]).encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16] if files else ""
