"""What all entries share: this task's backend, news, folder, errors and metrics."""

import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfp import dsl
from kfp_jax_store import is_remote

from kfp_jax import job_folder, storage
from kfp_jax.backends.base import Backend
from kfp_jax.backends.choice import Cluster, connect, is_local, on_cluster
from kfp_jax.backends.local import LocalBackend
from kfp_jax.cancellation import cancel_on_signals
from kfp_jax.errors import KfpJaxError
from kfp_jax.kfp_store import find_access, own_variables, with_store
from kfp_jax.kfp_task import Task, enter_task
from kfp_jax.launch import launch
from kfp_jax.manifests.identity import STUDY
from kfp_jax.sinks import EVENTS_VARIABLE, EventFileSink, ManySinks, PlainSink, Sink
from kfp_jax.spec import TrainSpec
from kfp_jax.status import Outcome

if TYPE_CHECKING:
    from kfp_jax.kube.client import Client


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


def launch_job(spec: TrainSpec, backend: str, report: dsl.HTML | None = None) -> Outcome:
    """Runs a job to its end; writes the training report, after a failure too.

    Raises:
        JobError: It did not succeed.
    """
    sink = task_sink(spec.name)
    with cancel_on_signals() as cancellation:
        place = task_place(backend, sink)
        outcome = launch(place.fitted(spec), place.backend, sink=sink, cancellation=cancellation)
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


@dataclass(frozen=True)
class TaskPlace:
    """Where this task's jobs run, and what it has of a cluster.

    Attributes:
        backend: Takes the jobs.
        client: To the cluster; None on one machine.
        task: What the jobs belong to.
    """

    backend: Backend
    client: "Client | None" = None
    task: Task = field(default_factory=Task)

    def fitted(self, spec: TrainSpec) -> TrainSpec:
        """Returns a job that reaches the store of KFP's artifacts; this process does from now on.

        Raises:
            SpecError: The keys to it cannot be read.
        """
        if self.client is None or not is_remote(spec.output_uri):
            return spec
        access = find_access(self.client, spec.output_uri)
        os.environ.update(own_variables(self.client, access, os.environ))
        return with_store(spec, access)


def task_place(name: str, sink: Sink, study: str = "") -> TaskPlace:
    """Returns the backend of that name; on a cluster its jobs belong to the run of this task."""
    if is_local(name):
        return TaskPlace(LocalBackend())
    client = connect(warn=sink.note)
    task = enter_task(client, os.environ, os.getpid())
    for note in task.notes:
        sink.note(note)
    labels = {**task.labels, STUDY: study} if study else task.labels
    backend = on_cluster(name, client, Cluster(labels=labels, owner=task.owner))
    return TaskPlace(backend, client, task)


def task_sink(task: str) -> Sink:
    """Returns where this task's news go: the step's log, and the screen of `kfp-jax pipeline`."""
    plain = PlainSink(sys.stdout)
    events = _events(task)
    return ManySinks(plain, events) if events else plain


def _events(task: str) -> EventFileSink | None:
    path = os.environ.get(EVENTS_VARIABLE)
    return EventFileSink(Path(path), task) if path else None


def task_folder(artifact: dsl.Artifact, backend: str) -> str:
    """Returns the folder of a task's outputs.

    It is the job's output folder: what the program writes into `model` there is KFP's artifact
    `model`, in place. Its name holds the task's identity, equal over retries of the task.
    """
    return artifact_place(artifact, backend).rpartition("/")[0]


def artifact_place(artifact: dsl.Artifact, backend: str) -> str:
    """Returns where a job has an artifact: its path, or its URI where other pods write or read it.

    What KFP finds nothing of at the path it records with the URI, and copies nothing.
    """
    if is_remote(artifact.uri or "") and not is_local(backend):
        return str(artifact.uri).rstrip("/")
    return str(artifact.path)


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
