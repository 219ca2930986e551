"""Reports: one tagged JSON line on stdout each, for the launcher; standard library only."""

import fcntl
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TAG = b"@kfp-jax "
VERSION = 1
MAX_LINE_BYTES = 256 * 1024
MAX_NAME_CHARACTERS = 128
MAX_MESSAGE_CHARACTERS = 2000
MAX_TRACEBACK_BYTES = 16 * 1024
MAX_TERMINATION_BYTES = 4096
"""What Kubernetes keeps of a termination log."""


def number(name: str, value: object) -> int | float:
    """Returns `value` as a Python number: from a number, a scalar or an array of shape ().

    Raises:
        TypeError: it is not one number; the message names the metric.
    """
    if isinstance(value, int | float) and not hasattr(value, "dtype"):
        return int(value) if isinstance(value, int) else value
    shape = getattr(value, "shape", ())
    if shape != ():
        raise TypeError(
            f"metric {name!r} is an array of shape {tuple(shape)}; report one number, such as "
            "its mean"
        )
    if isinstance(value, str | bytes):
        raise TypeError(f"metric {name!r} is the text {value!r}; report a number")
    scalar: Any = value
    try:
        # item() keeps integers integers; that of bfloat16 is no Python number, hence float().
        item = scalar.item() if hasattr(scalar, "item") else scalar
        return int(item) if isinstance(item, int) else float(item)
    except (TypeError, ValueError) as error:
        raise TypeError(f"metric {name!r} is a {type(value).__name__}; report a number") from error


def values_of(metrics: Mapping[str, object]) -> dict[str, int | float | str]:
    """Returns metrics as JSON holds them; what is not finite becomes text.

    Raises:
        TypeError: a metric is not one number.
        ValueError: a name is empty or too long.
    """
    return {_name(name): json_number(number(name, value)) for name, value in metrics.items()}


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a metric's name must be text, not {name!r}")
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS:
        raise ValueError(
            f"metric name {name[:40]!r} has {len(name)} characters; "
            f"it must have 1 to {MAX_NAME_CHARACTERS}"
        )
    return name


def json_number(value: float) -> int | float | str:
    """Returns a number as JSON has it: `NaN`, `Infinity` and `-Infinity` become text."""
    if isinstance(value, int) or math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def line_of(report: Mapping[str, object]) -> bytes:
    """Returns one report as the line that the launcher reads.

    Raises:
        ValueError: it would be longer than a line may be.
    """
    line = TAG + _json(report) + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(
            f"a report of kind {report['kind']!r} has {len(line)} bytes; "
            f"at most {MAX_LINE_BYTES} fit: report fewer metrics at once"
        )
    return line


def installed_versions() -> dict[str, str]:
    """Returns the versions that a result depends on; what is not installed is left out."""
    # A third of this package's import time, and needed only once, at the end.
    from importlib import metadata

    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for package in ("jax", "jaxlib", "flax", "kfp_jax"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def write_stdout(line: bytes) -> None:
    """Writes a line past Python's buffer, after what the program printed before it."""
    sys.stdout.flush()
    rest = memoryview(line)
    while rest:
        # A pipe may take a long line in parts.
        rest = rest[os.write(1, rest) :]


@dataclass
class Reporter:
    """Writes the reports of one process."""

    process: int
    processes: int
    termination_log: Path | None = None
    write: Callable[[bytes], None] = write_stdout
    clock: Callable[[], float] = time.time
    also: Callable[[Mapping[str, object]], None] | None = None
    """Is given each report after it has been written."""
    _started: float = field(init=False)

    def __post_init__(self) -> None:
        self._started = self._now()

    def metrics(self, step: int, metrics: Mapping[str, object]) -> None:
        """Reports metrics of a step; see `values_of` for what is refused."""
        self._send("metrics", step=step, values=values_of(metrics))

    def progress(self, done: int, total: int, unit: str) -> None:
        """Reports how far the program is."""
        self._send("progress", done=done, total=total, unit=unit)

    def waiting(self) -> None:
        """Reports that this process is ready to meet the others."""
        self._send("waiting", process=self.process, processes=self.processes)

    def joined(self, parameters: Mapping[str, object]) -> None:
        """Reports that this process has met all the others, and with what it will train."""
        self._send(
            "joined",
            process=self.process,
            processes=self.processes,
            parameters=dict(parameters) if self.process == 0 else {},
        )

    def restored(self, step: int, saved_with: Mapping[str, object]) -> None:
        """Reports that training goes on from a checkpoint.

        Args:
            step: of the checkpoint.
            saved_with: those of its parameters that were others than this training's.
        """
        self._send("restored", step=step, saved_with=dict(saved_with))

    def result(
        self, metrics: Mapping[str, object], model: str | None, versions: Mapping[str, str]
    ) -> None:
        """Reports the end of a program that succeeded; process 0 does it.

        Args:
            metrics: final metrics.
            model: path of the exported model in the output directory, if there is one.
            versions: see `installed_versions`.
        """
        fields: dict[str, object] = {"values": values_of(metrics)}
        if model is not None:
            fields["model"] = model
        report = self._send("result", **fields, versions=dict(versions))
        self._keep(report)

    def error(
        self, reason: str, message: str, traceback: str = "", step: int | None = None
    ) -> None:
        """Reports why this process failed; the first of all goes to the termination log."""
        fields: dict[str, object] = {
            "process": self.process,
            "reason": reason,
            "message": one_line(message),
            "traceback": tail(traceback, MAX_TRACEBACK_BYTES),
        }
        if step is not None:
            fields["step"] = step
        report = self._send("error", **fields)
        self._keep(report)

    def _now(self) -> float:
        return round(self.clock(), 3)

    def _send(self, kind: str, **fields: object) -> dict[str, object]:
        report = {"v": VERSION, "kind": kind, "time": self._now(), **fields}
        self.write(line_of(report))
        if self.also is not None:
            self.also(report)
        return report

    def _keep(self, report: dict[str, object]) -> None:
        if self.termination_log is None:
            return
        try:
            with self.termination_log.open("r+b") as file:
                # Processes on one machine share the file.
                fcntl.flock(file, fcntl.LOCK_EX)
                if self._holds_error_since_start(file.read(MAX_TERMINATION_BYTES)):
                    return
                file.seek(0)
                file.truncate()
                file.write(termination_message(report))
        except OSError as error:
            # The launcher has the line already; a lost copy must not fail the job.
            sys.stderr.write(f"kfp-jax: cannot write {self.termination_log}: {error}\n")

    def _holds_error_since_start(self, content: bytes) -> bool:
        """Returns whether a process of this attempt has failed already; earlier ones are over."""
        try:
            held = json.loads(content)
            return bool(held["kind"] == "error" and held["time"] >= self._started)
        except (ValueError, TypeError, KeyError):
            return False


def one_line(message: str) -> str:
    """Returns a message without line breaks, shortened to what a report may hold."""
    text = " ".join(message.split())
    return text if len(text) <= MAX_MESSAGE_CHARACTERS else text[: MAX_MESSAGE_CHARACTERS - 1] + "…"


def tail(text: str, limit: int) -> str:
    """Returns the end of `text`, at most `limit` bytes of UTF-8."""
    return text.encode(errors="replace")[-limit:].decode(errors="ignore") if limit > 0 else ""


def termination_message(report: Mapping[str, object]) -> bytes:
    """Returns a report as JSON that fits a termination log; what matters least is cut first."""
    for cut in (0, 1, 2, 4, 8, 16, 32, 64, 128):
        message = _json(_shortened(report, cut) if cut else report)
        if len(message) <= MAX_TERMINATION_BYTES:
            return message
    # Only a message full of characters that JSON escapes gets here.
    return _json({**report, "message": "", "traceback": "", "values": {}})


def _shortened(report: Mapping[str, object], parts: int) -> dict[str, object]:
    """Returns a report without versions, with a `parts`-th of what a termination log can hold."""
    short = {key: value for key, value in report.items() if key != "versions"}
    if isinstance(text := short.get("traceback"), str):
        short["traceback"] = tail(text, MAX_TERMINATION_BYTES // parts)
    if isinstance(values := short.get("values"), dict):
        short["values"] = dict(list(values.items())[: MAX_TERMINATION_BYTES // 8 // parts])
    return short


def _json(report: Mapping[str, object]) -> bytes:
    return json.dumps(report, separators=(",", ":"), allow_nan=False).encode()


def termination_log(environ: Mapping[str, str]) -> Path | None:
    """Returns the file that survives the container, where there is one that can be written."""
    path = Path(environ.get("KFP_JAX_TERMINATION_LOG") or "/dev/termination-log")
    return path if path.is_file() and os.access(path, os.W_OK) else None
