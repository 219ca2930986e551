"""The files in a sweep's output folder: what it is, its trials, and what is made of them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kfp_jax import storage
from kfp_jax.contained import open_text
from kfp_jax.errors import OutputError, SpecError
from kfp_jax.html.leaderboard import render_leaderboard
from kfp_jax.sweep.end import SweepEnd, summary_of
from kfp_jax.sweep.importance import importances
from kfp_jax.sweep.spec import SweepSpec
from kfp_jax.sweep.summary import SweepSummary
from kfp_jax.sweep.table import read_trials, to_csv, to_json_lines
from kfp_jax.sweep.trial import Trial

STUDY = "study.json"
JOURNAL = "journal.jsonl"
SUMMARY = "sweep.json"
TRIALS = "trials.jsonl"
TRIALS_CSV = "trials.csv"
LEADERBOARD = "leaderboard.html"


@contextmanager
def sweep_folder(spec: SweepSpec, *, resume: bool) -> Iterator[Path]:
    """Makes a sweep's output folder and holds it, so that two sweeps never write into one.

    Args:
        spec: The sweep.
        resume: Whether to go on with one that the folder holds.

    Raises:
        SpecError: It holds another sweep, or one that was not asked for; or it cannot be written.
        Conflict: A running sweep holds it.
    """
    with storage.output_folder(spec.job.output_uri) as folder:
        path = folder / STUDY
        # One that was refused or stopped before its first trial holds nothing to go on with.
        if path.exists() and (folder / JOURNAL).exists():
            _check_same(storage.read_json(path), spec.lasting(), folder, resume=resume)
        storage.write_json(path, {"schema": 1, **spec.lasting()})
        yield folder


def _check_same(
    found: Mapping[str, Any], asked: Mapping[str, Any], folder: Path, *, resume: bool
) -> None:
    if not resume:
        raise SpecError(
            f"{folder} holds a sweep already; go on with it by --resume, or choose another folder."
        )
    for name, value in asked.items():
        if found.get(name) != value:
            raise SpecError(
                f"{folder} holds a sweep whose {name} is {found.get(name)!r:.80}, and now it is"
                f" {value!r:.80}; leave it as it was, or choose another folder."
            )


class FolderJournal:
    """Trials as lines appended to a file; the last line of a trial holds."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / JOURNAL

    def read(self) -> list[Trial]:
        """Returns the trials, and drops from the file what they no longer are.

        Raises:
            OutputError: The file cannot be read or written.
        """
        if not self._path.exists():
            return []
        try:
            with open_text(self._path, "r") as file:
                lines = file.read().split("\n")
            # What follows the last newline is the half line of a launcher that was killed.
            trials = {trial.number: trial for trial in map(_trial, lines[:-1])}
        except (OSError, ValueError, SpecError) as error:
            raise OutputError(
                f"{self._path} cannot be read: {error}; choose another folder."
            ) from error
        storage.write_text(self._path, to_json_lines(trials.values()))
        return list(trials.values())

    def write(self, trial: Trial) -> None:
        """Appends the trial.

        Raises:
            OutputError: The file cannot be written.
        """
        try:
            with open_text(self._path, "a") as file:
                file.write(to_json_lines([trial]))
        except OSError as error:
            raise OutputError(
                f"{self._path} cannot be written: {error.strerror}; free space and go on with the"
                " sweep."
            ) from error


def _trial(line: str) -> Trial:
    return Trial.from_json(json.loads(line))


def write_results(folder: Path, spec: SweepSpec, end: SweepEnd) -> SweepSummary:
    """Writes summary, tables and leaderboard of a sweep that has ended.

    Raises:
        OutputError: A file cannot be written.
    """
    summary = summary_of(spec, end)
    weights = importances(spec.study.space, end.trials, spec.study.direction)
    page = render_leaderboard(summary, end.trials, weights)
    storage.write_json(folder / SUMMARY, summary.to_json())
    storage.write_text(folder / TRIALS, to_json_lines(end.trials))
    storage.write_text(folder / TRIALS_CSV, to_csv(end.trials))
    storage.write_text(folder / LEADERBOARD, page)
    return summary


def read_warm(paths: Iterable[str]) -> tuple[Trial, ...]:
    """Returns the trials of earlier sweeps' tables, or of the folders that hold one.

    Raises:
        SpecError: A table is missing or holds something else.
    """
    trials: list[Trial] = []
    for text in paths:
        path = storage.local_path(text, "warm start")
        table = path / TRIALS if path.is_dir() else path
        try:
            trials += read_trials(table.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(
                f"Warm start {table} cannot be read: {error}; give the {TRIALS} of a sweep."
            ) from error
    return tuple(trials)
