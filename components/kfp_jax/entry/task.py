"""What all entries share: this task's backend, news, folder, errors and metrics."""

import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kfp import dsl

from kfp_jax import job_folder, storage
from kfp_jax.cancellation import cancel_on_signals
from kfp_jax.entry.place import task_place
from kfp_jax.entry.stores import in_store
from kfp_jax.errors import KfpJaxError
from kfp_jax.launch import launch
from kfp_jax.sinks import EVENTS_VARIABLE, EventFileSink, ManySinks, PlainSink, Sink
from kfp_jax.spec import TrainSpec
from kfp_jax.status import Outcome


@contextmanager
def errors_end_the_step(task: str) -> Iterator[None]:
    """Makes the sentence of an error the last line of the step's log."""
    try:
        yield
    except KfpJaxError as error:
        sys.stdout.flush()
        sys.stderr.write(f"{error}\n")
        events = _events(task)
        if events:
            events.error(str(error), error.exit_code)
        raise SystemExit(error.exit_code) from error


def launch_job(
    spec: TrainSpec,
    backend: str,
    output: dsl.Artifact,
    *,
    inputs: Mapping[str, dsl.Artifact] | None = None,
    report: dsl.HTML | None = None,
) -> Outcome:
    """Runs a job to its end; writes the training report, after a failure too.

    Args:
        spec: The job, with the folder of `output`, or one below it, as its output.
        backend: Where.
        output: An output artifact of the task. Where the job's nodes do not see its path, the job
            writes to the folder of its URI.
        inputs: Parameters of the program that name an artifact.
        report: Takes the report.

    Raises:
        JobError: It did not succeed.
    """
    sink = task_sink(spec.name)
    with cancel_on_signals() as cancellation:
        place = task_place(backend, sink)
        spec = in_store(spec, output, place.cluster, os.environ, inputs=inputs)
        outcome = launch(spec, place.backend, sink=sink, cancellation=cancellation)
    error = outcome.error()
    if report is not None:
        with (
            job_folder.a_failed_job_matters_more(error, sink),
            storage.results(outcome.output_uri) as folder,
        ):
            written = job_folder.write_report(folder)
            storage.write_text(Path(report.path), written.read_text(encoding="utf-8"))
    if error:
        raise error
    return outcome


def task_sink(task: str) -> Sink:
    """Returns where this task's news go: the step's log, and the screen of `kfp-jax pipeline`."""
    plain = PlainSink(sys.stdout)
    events = _events(task)
    return ManySinks(plain, events) if events else plain


def _events(task: str) -> EventFileSink | None:
    path = os.environ.get(EVENTS_VARIABLE)
    return EventFileSink(Path(path), task) if path else None


def task_folder(artifact: dsl.Artifact) -> str:
    """Returns the folder of a task's outputs.

    It is the job's output folder: what the program writes into `model` there is KFP's artifact
    `model`, in place. Its name holds the task's identity, equal over retries of the task.
    """
    return str(Path(artifact.path).parent)


def log_metrics(metrics: dsl.Metrics, values: Mapping[str, float]) -> None:
    """Logs what KFP can hold: a NaN or an infinity would fail the step after all its work."""
    for name, value in values.items():
        if math.isfinite(value):
            metrics.log_metric(name, value)
        else:
            sys.stdout.write(f"Metric {name} is {value} and is left out of the Metrics artifact.\n")


def json_numbers(value: Any) -> Any:
    """Returns JSON with whole numbers as integers: KFP hands 2 over as 2.0."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: json_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [json_numbers(item) for item in value]
    return value
