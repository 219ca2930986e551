"""The files in a sweep's output folder: what it is, its trials, and what is made of them."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from kfp_jax import storage
from kfp_jax.backends.base import Backend
from kfp_jax.backends.local import LocalBackend
from kfp_jax.cancellation import cancel_on_signals
from kfp_jax.checks import json_object
from kfp_jax.contained import open_text
from kfp_jax.errors import OutputError, SpecError
from kfp_jax.html.leaderboard import render_leaderboard
from kfp_jax.sweep.end import SweepEnd, summary_of
from kfp_jax.sweep.importance import importances
from kfp_jax.sweep.spec import SweepSpec
from kfp_jax.sweep.summary import SweepSummary
from kfp_jax.sweep.table import read_trials, to_csv, to_json_lines
from kfp_jax.sweep.trial import Trial, TrialState
from kfp_jax.tuning import Journal, SweepSink, run_sweep, trial_backend

STUDY = "study.json"
JOURNAL = "journal.jsonl"
SUMMARY = "sweep.json"
TRIALS = "trials.jsonl"
TRIALS_CSV = "trials.csv"
LEADERBOARD = "leaderboard.html"


# What may change from start to start, but not for a job that has begun.
_OF_A_JOB = "trials_run_with"
_HERE = LocalBackend.where


@contextmanager
def sweep_folder(spec: SweepSpec, *, resume: bool, where: str = _HERE) -> Iterator[Path]:
    """Makes a sweep's output folder and holds it, so that two sweeps never write into one.

    Args:
        spec: The sweep.
        resume: Whether to go on with one that the folder holds.
        where: The backend's `where`.

    Raises:
        SpecError: It holds another sweep, or one that was not asked for, or one whose trials may
            still run as what they can no longer be; or it cannot be written.
        Conflict: A running sweep holds it.
    """
    with storage.output_folder(spec.job.output_uri) as folder:
        path = folder / STUDY
        # One that was refused or stopped before its first trial holds nothing to go on with.
        if path.exists() and (folder / JOURNAL).exists():
            found = storage.read_json(path)
            _check_same(found, spec.lasting(), folder, resume=resume)
            _check_running(found.get(_OF_A_JOB), _of_a_job(spec, where), folder)
        of_a_job = _of_a_job(spec, where)
        storage.write_json(path, {"schema": 1, **spec.lasting(), _OF_A_JOB: of_a_job})
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


def _check_running(found: Mapping[str, Any] | None, asked: Mapping[str, Any], folder: Path) -> None:
    """Refuses another job for a trial whose job may still be in the cluster.

    Such a trial is one that the launcher has begun and not ended: it was killed. On one machine its
    processes have ended with it.
    """
    if not found or found.get("backend") == _HERE:
        return
    changed = sorted(name for name in {*found, *asked} if found.get(name) != asked.get(name))
    left = [t.number for t in FolderJournal(folder).read() if t.state is TrialState.RUNNING]
    if changed and left:
        raise SpecError(
            f"{folder} holds a sweep whose trial {left[0]} may still run ({found.get('backend')}),"
            f" but {', '.join(changed)} changed since it was started; leave that as it was until it"
            " has ended, or go on as it was and press Ctrl-C to end it."
        )


def _of_a_job(spec: SweepSpec, where: str) -> dict[str, Any]:
    """Returns what a trial's job is made of beside what lasts; of variables no value."""
    job = spec.job.to_json()
    limits, pods = ({f"{of}.{k}": v for k, v in job[of].items()} for of in ("limits", "pods"))
    env = {f"env.{name}": _digest(value) for name, value in spec.job.env.items()}
    return json_object("the sweep", {"backend": where, **limits, **pods, **env})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


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


class Ran(NamedTuple):
    """A sweep that has ended, and the folder that holds what it came to."""

    folder: Path
    end: SweepEnd
    summary: SweepSummary


@contextmanager
def ran_in_folder(
    spec: SweepSpec,
    backend: Backend,
    news: AbstractContextManager[SweepSink],
    *,
    resume: bool,
    journal: Callable[[Path], Journal] = FolderJournal,
) -> Iterator[Ran]:
    """Runs a sweep and leaves what it came to in its folder; signals cancel it.

    The folder is held until the block ends: of a sweep in a store there is none after that.

    Args:
        spec: What to try.
        backend: Where.
        news: Entered for the news once the folder is held, as a refusal is none.
        resume: Whether to go on with a sweep that the folder holds.
        journal: From the folder to what remembers the trials.

    Raises:
        KfpJaxError: As `sweep_folder`, `tuning.run_sweep` and `write_results`.
    """
    with (
        sweep_folder(spec, resume=resume, where=backend.where) as folder,
        cancel_on_signals() as cancellation,
    ):
        with news as sink, trial_backend(backend, spec.parallel) as trials:
            end = run_sweep(spec, trials, journal(folder), sink=sink, cancellation=cancellation)
        yield Ran(folder, end, write_results(folder, spec, end))


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


def read_tables(paths: Iterable[str]) -> tuple[Trial, ...]:
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
