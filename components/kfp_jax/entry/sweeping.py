"""The entry of `sweep`."""

import os
import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kfp import dsl
from kfp_jax_store import is_remote

from kfp_jax import storage
from kfp_jax.cluster.journal import ConfigMapJournal
from kfp_jax.contained import refuse_links
from kfp_jax.entry.place import TaskPlace, task_place
from kfp_jax.entry.stores import in_store
from kfp_jax.entry.task import (
    errors_end_the_step,
    json_numbers,
    log_metrics,
    task_folder,
    task_sink,
)
from kfp_jax.errors import OutputError
from kfp_jax.spec import Limits, TrainSpec
from kfp_jax.sweep.end import error_of
from kfp_jax.sweep.space import Space
from kfp_jax.sweep.spec import SweepSpec
from kfp_jax.sweep.study import Pruner, Sampler, Study
from kfp_jax.sweep.summary import SweepSummary
from kfp_jax.sweep.trial import Direction
from kfp_jax.sweep_folder import (
    LEADERBOARD,
    TRIALS,
    FolderJournal,
    ran_in_folder,
    read_tables,
)
from kfp_jax.sweep_news import SweepNews
from kfp_jax.task_config import job_settings
from kfp_jax.tuning import Journal, default_parallel, study_name


@dataclass(frozen=True)
class SweepOutputs:
    """The output artifacts of `sweep`."""

    model: dsl.Model
    metrics: dsl.Metrics
    leaderboard: dsl.HTML
    trials_table: dsl.Dataset


def sweep(
    outputs: SweepOutputs,
    *,
    program: str,
    space: Mapping[str, Any],
    max_trials: int,
    parallel: int,
    parameters: Mapping[str, Any],
    objective: str,
    direction: str,
    sampler: str,
    pruner: str,
    min_step: int,
    seed: int,
    max_failed: int,
    time_budget_seconds: float,
    num_nodes: int,
    dataset_uri: str,
    warm_start: str,
    max_restarts: int,
    stall_seconds: float,
    deadline_seconds: float,
    task_config: dsl.TaskConfig,
    pods: Mapping[str, Any],
    backend: str,
) -> dict[str, Any]:
    """Runs the `sweep` component: many jobs. Returns all parameters of the best one."""
    with errors_end_the_step("sweep"):
        settings = job_settings(task_config, pods)
        job = TrainSpec(
            name="sweep",
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
        study = Study(  # it reads the names, or refuses them
            space=Space.from_json(json_numbers(space)),
            direction=cast("Direction", direction),
            sampler=cast("Sampler", sampler),
            pruner=cast("Pruner", pruner),
            seed=seed,
            max_trials=max_trials,
            min_step=min_step,
        )
        sink = task_sink("sweep")
        place = task_place(backend, sink, study_name(job))
        job = in_store(job, outputs.model, place.cluster, os.environ)
        where = place.backend
        spec = SweepSpec(
            job=job,
            study=study,
            parallel=parallel or default_parallel(where, num_nodes),
            max_failed=max_failed,
            time_budget=time_budget_seconds,
            earlier=read_tables([warm_start] if warm_start else []),
        )
        with ran_in_folder(
            spec,
            where,
            nullcontext(SweepNews(spec, sink)),
            resume=True,
            journal=lambda folder: _journal(place, spec, folder),
        ) as (folder, end, summary):
            _publish(outputs, folder, summary)  # of a sweep in a store the folder goes after this
        error = error_of(spec, end, going_on="the step, started again,")
        if error:
            raise error
        best = summary.best
        return {**job.parameters, **(best.parameters if best else {})}


def _journal(place: TaskPlace, spec: SweepSpec, folder: Path) -> Journal:
    """Returns what outlives this task: on a cluster its folder goes with its pod."""
    if place.cluster is None:
        return FolderJournal(folder)
    client, task = place.cluster.client, place.cluster.task
    return ConfigMapJournal(
        client,
        client.namespace,
        study_name(spec.job),
        spec.identity(),
        task.labels,
        task.owner,
    )


def _publish(outputs: SweepOutputs, folder: Path, summary: SweepSummary) -> None:
    """Makes artifacts of what the sweep wrote, after a failure too."""
    for name, artifact in ((LEADERBOARD, outputs.leaderboard), (TRIALS, outputs.trials_table)):
        text = (folder / name).read_text(encoding="utf-8")
        storage.write_text(Path(artifact.path), text)
    counts = {f"trials_{state.value.lower()}": n for state, n in summary.counts.items() if n}
    best = summary.best
    score = {summary.objective: best.score} if best and best.score is not None else {}
    log_metrics(outputs.metrics, {**score, **counts})
    # A program may write the folder without our exporter, and say nothing of it.
    model = best.model_uri or f"{best.output_uri}/model" if best else ""
    if best and storage.exists(model):
        if is_remote(model):
            outputs.model.uri = model  # of this task's own folder, where it stays
        else:
            copy_model(Path(model), Path(outputs.model.path))
        facts = {"program": summary.program, "job": best.job, "trial": best.number}
        outputs.model.metadata.update(facts | score)


def copy_model(source: Path, target: Path) -> None:
    """Copies the best model to where the artifact is; that of a trial stays where it is."""
    refuse_links(source, "Model")
    try:
        shutil.rmtree(target, ignore_errors=True)
        copy = shutil.copytree if source.is_dir() else shutil.copy2
        copy(source, target)
    except OSError as error:
        raise OutputError(
            f"Model {source} cannot be copied to {target}: {error}; free space and run it again."
        ) from error
