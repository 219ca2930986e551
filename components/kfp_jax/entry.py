"""From KFP's parameters and artifacts to a launch, and back: what the components' bodies call.

Not a module of `kfp_jax.components`: in a task KFP offers its artifact types only, and the
component definitions beside this would not import.
"""

import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfp import dsl

from kfp_jax import job_folder, storage
from kfp_jax.backends.base import Backend
from kfp_jax.backends.choice import Cluster, connect, is_local, on_cluster
from kfp_jax.backends.local import LocalBackend
from kfp_jax.cancellation import cancel_on_signals
from kfp_jax.clock import SystemClock
from kfp_jax.cluster.ending import clean_up_behind
from kfp_jax.errors import KfpJaxError, SpecError
from kfp_jax.html import render_evaluation
from kfp_jax.kfp_task import enter_task, own_run
from kfp_jax.launch import launch
from kfp_jax.sinks import EVENTS_VARIABLE, EventFileSink, ManySinks, PlainSink, Sink
from kfp_jax.spec import Limits, TrainSpec
from kfp_jax.status import Outcome


@dataclass(frozen=True)
class TrainOutputs:
    """The output artifacts of `train`."""

    model: dsl.Model
    metrics: dsl.Metrics
    report: dsl.HTML


@dataclass(frozen=True)
class EvaluateOutputs:
    """The output artifacts of `evaluate`."""

    classes: dsl.ClassificationMetrics
    metrics: dsl.Metrics
    report: dsl.HTML


def train(
    outputs: TrainOutputs,
    *,
    program: str,
    parameters: Mapping[str, Any],
    num_nodes: int,
    dataset_uri: str,
    objective: str,
    max_restarts: int,
    stall_seconds: float,
    deadline_seconds: float,
    backend: str,
) -> float:
    """Runs the `train` component: one job. Returns the objective's final value."""
    with _errors_end_the_step("train"):
        if not objective:
            raise SpecError("objective is empty; name the metric that the step returns.")
        spec = TrainSpec(
            name="train",
            program=program,
            parameters=_json_numbers(parameters),
            num_nodes=num_nodes,
            output_uri=_task_folder(outputs.model),
            dataset_uri=dataset_uri,
            max_restarts=max_restarts,
            objective=objective,
            limits=Limits(stall=stall_seconds, deadline=deadline_seconds),
        )
        outcome = _launch(spec, backend, report=outputs.report)
        _log_metrics(outputs.metrics, outcome.metrics)
        outputs.model.metadata.update(
            {"program": program, objective: outcome.metrics[objective], "job": outcome.job}
        )
        return outcome.metrics[objective]


def prepare_data(dataset: dsl.Dataset, *, name: str, source: str, folder: str, backend: str) -> str:
    """Runs the `prepare_data` component. Returns the dataset's folder."""
    with _errors_end_the_step("prepare-data"):
        spec = TrainSpec(
            name="prepare-data",
            program="kfp_jax_runtime.data.prepare",
            parameters={"dataset": name, "source": source, "folder": folder},
            output_uri=_task_folder(dataset),
        )
        _launch(spec, backend)
        dataset.metadata.update(storage.read_json(Path(dataset.path) / "source.json"))
        return str(dataset.path)


def evaluate(
    outputs: EvaluateOutputs, *, model: dsl.Model, dataset_uri: str, split: str, backend: str
) -> float:
    """Runs the `evaluate` component. Returns the accuracy."""
    with _errors_end_the_step("evaluate"):
        spec = TrainSpec(
            name="evaluate",
            program="kfp_jax_runtime.evaluate",
            parameters={"model": model.path, "split": split},
            output_uri=_task_folder(outputs.metrics),
            dataset_uri=dataset_uri,
            objective="accuracy",
        )
        outcome = _launch(spec, backend)
        _log_metrics(outputs.metrics, outcome.metrics)
        evaluation = storage.read_json(Path(outcome.output_uri) / storage.EVALUATION)
        outputs.classes.log_confusion_matrix(evaluation["classes"], evaluation["confusion"])
        page = render_evaluation(evaluation, outcome.to_json())
        storage.write_text(Path(outputs.report.path), page)
        return outcome.metrics["accuracy"]


def promote(model: dsl.Model, promoted: dsl.Model, *, score: float) -> str:
    """Runs the `promote` component. Returns the model's URI."""
    promoted.uri = model.uri
    promoted.metadata.update({**model.metadata, "score": score})
    return str(model.uri)


def cleanup(*, run_id: str, namespace: str, backend: str) -> int:
    """Runs the `cleanup` component. Returns how many objects were deleted."""
    with _errors_end_the_step("cleanup"):
        if is_local(backend):
            sys.stdout.write("Jobs on one machine end with their task: nothing is left.\n")
            return 0
        client = connect()
        run = run_id or own_run(client, os.environ)
        where = namespace or client.namespace
        done = clean_up_behind(client, where, run, clock=SystemClock())
        for item in done:
            verb = "deleted" if item.removed else "kept"
            sys.stdout.write(f"{item.kind} {item.name} was {verb}: {item.why}.\n")
        return sum(item.removed for item in done)


@contextmanager
def _errors_end_the_step(task: str) -> Iterator[None]:
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


def _launch(spec: TrainSpec, backend: str, report: dsl.HTML | None = None) -> Outcome:
    """Runs a job to its end; writes the training report, after a failure too.

    Raises:
        JobError: It did not succeed.
    """
    sink = _sink(spec.name)
    with cancel_on_signals() as cancellation:
        outcome = launch(spec, _backend(backend, sink), sink=sink, cancellation=cancellation)
    error = outcome.error()
    if report is not None:
        with job_folder.a_failed_job_matters_more(error, sink):
            written = job_folder.write_report(Path(outcome.output_uri))
            storage.write_text(Path(report.path), written.read_text(encoding="utf-8"))
    if error:
        raise error
    return outcome


def _backend(name: str, sink: Sink) -> Backend:
    """Returns the backend of that name; on a cluster its jobs belong to the run of this task."""
    if is_local(name):
        return LocalBackend()
    client = connect(warn=sink.note)
    task = enter_task(client, os.environ, os.getpid())
    for note in task.notes:
        sink.note(note)
    return on_cluster(name, client, Cluster(labels=task.labels, owner=task.owner))


def _sink(task: str) -> Sink:
    plain = PlainSink(sys.stdout)
    events = _events(task)
    return ManySinks(plain, events) if events else plain


def _events(task: str) -> EventFileSink | None:
    path = os.environ.get(EVENTS_VARIABLE)
    return EventFileSink(Path(path), task) if path else None


def _task_folder(artifact: dsl.Artifact) -> str:
    """Returns the folder of a task's outputs.

    It is the job's output folder: what the program writes into `model` there is KFP's artifact
    `model`, in place. Its name holds the task's identity, equal over retries of the task.
    """
    return str(Path(artifact.path).parent)


def _log_metrics(metrics: dsl.Metrics, values: Mapping[str, float]) -> None:
    """Logs what KFP can hold: a NaN or an infinity would fail the step after all its work."""
    for name, value in values.items():
        if math.isfinite(value):
            metrics.log_metric(name, value)
        else:
            sys.stdout.write(f"Metric {name} is {value} and is left out of the Metrics artifact.\n")


def _json_numbers(value: Any) -> Any:
    """Returns JSON with whole numbers as integers: KFP hands 2 over as 2.0."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _json_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_json_numbers(item) for item in value]
    return value
