"""The entries of `train`, `prepare_data`, `evaluate` and `promote`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfp import dsl

from kfp_jax import storage
from kfp_jax.entry.stores import artifact_place
from kfp_jax.entry.task import (
    errors_end_the_step,
    json_numbers,
    launch_job,
    log_metrics,
    task_folder,
)
from kfp_jax.errors import SpecError
from kfp_jax.html import render_evaluation
from kfp_jax.spec import Limits, TrainSpec
from kfp_jax.task_config import job_settings


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
    task_config: dsl.TaskConfig,
    pods: Mapping[str, Any],
    backend: str,
) -> float:
    """Runs the `train` component: one job. Returns the objective's final value."""
    with errors_end_the_step("train"):
        if not objective:
            raise SpecError("objective is empty; name the metric that the step returns.")
        settings = job_settings(task_config, pods)
        spec = TrainSpec(
            name="train",
            program=program,
            parameters=json_numbers(parameters),
            num_nodes=num_nodes,
            output_uri=task_folder(outputs.model),
            dataset_uri=dataset_uri,
            max_restarts=max_restarts,
            objective=objective,
            limits=Limits(stall=stall_seconds, deadline=deadline_seconds),
            pods=settings.pods,
            env=settings.env,
        )
        outcome = launch_job(spec, backend, outputs.model, report=outputs.report)
        log_metrics(outputs.metrics, outcome.metrics)
        outputs.model.metadata.update(
            {"program": program, objective: outcome.metrics[objective], "job": outcome.job}
        )
        return outcome.metrics[objective]


def prepare_data(
    dataset: dsl.Dataset,
    *,
    name: str,
    source: str,
    folder: str,
    task_config: dsl.TaskConfig,
    pods: Mapping[str, Any],
    backend: str,
) -> str:
    """Runs the `prepare_data` component. Returns the dataset's folder, or its URI in a store."""
    with errors_end_the_step("prepare-data"):
        settings = job_settings(task_config, pods)
        spec = TrainSpec(
            name="prepare-data",
            program="kfp_jax_runtime.data.prepare",
            parameters={"dataset": name, "source": source, "folder": folder},
            output_uri=task_folder(dataset),
            pods=settings.pods,
            env=settings.env,
        )
        outcome = launch_job(spec, backend, dataset)
        written = artifact_place(outcome.output_uri, dataset)
        dataset.metadata.update(storage.read_result(written, "source.json"))
        return written


def evaluate(
    outputs: EvaluateOutputs,
    *,
    model: dsl.Model,
    dataset_uri: str,
    split: str,
    task_config: dsl.TaskConfig,
    pods: Mapping[str, Any],
    backend: str,
) -> float:
    """Runs the `evaluate` component. Returns the accuracy."""
    with errors_end_the_step("evaluate"):
        settings = job_settings(task_config, pods)
        spec = TrainSpec(
            name="evaluate",
            program="kfp_jax_runtime.evaluate",
            parameters={"model": model.path, "split": split},
            output_uri=task_folder(outputs.metrics),
            dataset_uri=dataset_uri,
            objective="accuracy",
            pods=settings.pods,
            env=settings.env,
        )
        outcome = launch_job(spec, backend, outputs.metrics, inputs={"model": model})
        log_metrics(outputs.metrics, outcome.metrics)
        evaluation = storage.read_result(outcome.output_uri, storage.EVALUATION)
        outputs.classes.log_confusion_matrix(evaluation["classes"], evaluation["confusion"])
        page = render_evaluation(evaluation, outcome.to_json())
        storage.write_text(Path(outputs.report.path), page)
        return outcome.metrics["accuracy"]


def promote(model: dsl.Model, promoted: dsl.Model, *, score: float) -> str:
    """Runs the `promote` component. Returns the model's URI."""
    promoted.uri = model.uri
    promoted.metadata.update({**model.metadata, "score": score})
    return str(model.uri)
