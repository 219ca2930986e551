"""`history.jsonl`: every metrics report of a job, once, across attempts and launches."""

import json
from io import TextIOWrapper
from pathlib import Path

from kfp_jax.contained import open_text
from kfp_jax.reports import Kind, Report, json_number


class HistoryFile:
    """Appends reports; when training goes back to a checkpoint, so does the file.

    A killed attempt has reported steps past its last checkpoint, and the next one reports them
    again. Whatever lies beyond the step that training goes on from is dropped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = self._append()
        self._resumed = False

    def add(self, report: Report) -> None:
        """Writes one report; a `restored` report rewinds the file instead."""
        if report.kind is Kind.RESTORED:
            self._rewind(report.step or 0)
            self._resumed = True
        elif report.kind is Kind.METRICS:
            if not self._resumed:  # a start from nothing: an earlier launch's history is over
                self._rewind(-1)
                self._resumed = True
            self._file.write(_line(report))

    def next_attempt(self) -> None:
        """Says that the coming reports are of a new attempt."""
        self._resumed = False

    def close(self) -> None:
        """Ends writing."""
        self._file.close()

    def _rewind(self, step: int) -> None:
        self._file.close()
        kept = self.path.with_name(f".{self.path.name}.partial")
        kept.unlink(missing_ok=True)
        with open_text(self.path, "r") as old, open_text(kept, "x") as new:
            new.writelines(line for line in old if _step(line) <= step)
        kept.replace(self.path)
        self._file = self._append()

    def _append(self) -> TextIOWrapper:
        file = open_text(self.path, "a")
        file.reconfigure(line_buffering=True)  # readers follow the file while the job runs
        return file


def _line(report: Report) -> str:
    return (
        json.dumps(
            {
                "kind": report.kind.value,
                "time": report.time,
                "step": report.step,
                "values": {name: json_number(value) for name, value in report.values.items()},
            }
        )
        + "\n"
    )


def _step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")  # the half line of a killed launcher is not worth keeping
