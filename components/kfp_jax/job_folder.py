"""The files in a job's output folder, and the report made from them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kfp_jax import storage
from kfp_jax.contained import open_text
from kfp_jax.errors import KfpJaxError, OutputError
from kfp_jax.html import render_report
from kfp_jax.sinks import Sink
from kfp_jax.storage import EVALUATION, HISTORY, REPORT, RESULT


def write_report(folder: Path) -> Path:
    """Writes `report.html` from the other files of a finished job and returns its path.

    Raises:
        OutputError: `result.json` is missing or the report cannot be written.
    """
    result = storage.read_json(folder / RESULT)
    evaluated = (folder / EVALUATION).is_file() and result["phase"] == "SUCCEEDED"
    evaluation = storage.read_json(folder / EVALUATION) if evaluated else None
    path = folder / REPORT
    storage.write_text(path, render_report(result, _history(folder / HISTORY), evaluation))
    return path


@contextmanager
def a_failed_job_matters_more(error: KfpJaxError | None, sink: Sink) -> Iterator[None]:
    """Lets trouble with the report pass as a note where the job itself has failed.

    Args:
        error: How the job failed, or None.
        sink: Takes the note.

    Raises:
        OutputError: The report cannot be written, of a job that succeeded.
    """
    try:
        yield
    except OutputError as trouble:
        if error is None:
            raise
        sink.note(str(trouble))


def _history(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the reports one by one: a long job has millions."""
    if path.is_file():
        with open_text(path, "r") as lines:
            for line in lines:
                if line.endswith("\n"):  # a killed launcher left half of one
                    yield json.loads(line)
