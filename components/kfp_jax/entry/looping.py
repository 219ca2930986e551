"""The entries of `suggest`, `trial`, `halve` and `select_best`: a sweep as a loop in a pipeline."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from kfp import dsl

from kfp_jax import storage
from kfp_jax.cancellation import cancel_on_signals
from kfp_jax.checks import whole
from kfp_jax.clock import SystemClock
from kfp_jax.entry.place import task_place
from kfp_jax.entry.stores import artifact_place, in_store
from kfp_jax.entry.task import (
    errors_end_the_step,
    json_numbers,
    log_metrics,
    task_folder,
    task_sink,
)
from kfp_jax.errors import JobCancelled, KfpJaxError, SpecError
from kfp_jax.html.leaderboard import render_leaderboard
from kfp_jax.launch import launch
from kfp_jax.reports import Report
from kfp_jax.sinks import ManySinks, NullSink, Sink, show_number
from kfp_jax.spec import Limits, TrainSpec
from kfp_jax.status import Outcome, Phase
from kfp_jax.sweep.end import failure_of, state_of
from kfp_jax.sweep.halving import survivors
from kfp_jax.sweep.importance import importances
from kfp_jax.sweep.loop import (
    MAX_LOOP_TRIALS,
    after_round,
    loop_end,
    loop_item,
    loop_items,
    read_item,
    read_results,
    to_result,
    without,
)
from kfp_jax.sweep.space import Space
from kfp_jax.sweep.study import Sampler, Study
from kfp_jax.sweep.summary import SweepSummary, summarize
from kfp_jax.sweep.table import to_json_lines
from kfp_jax.sweep.trial import Direction, Trial, TrialState, extended
from kfp_jax.sweep_folder import read_tables
from kfp_jax.sweep_news import parameters_text
from kfp_jax.task_config import job_settings
from kfp_jax.trial_end import ended, point_of, refused

# Set by the process that runs a pipeline on this machine, once somebody has asked it to stop.
CANCELLED_VARIABLE = "KFP_JAX_CANCELLED"


@dataclass(frozen=True)
class TrialOutputs:
    """The output artifacts of `trial`."""

    model: dsl.Model
    metrics: dsl.Metrics


@dataclass(frozen=True)
class BestOutputs:
    """The output artifacts of `select_best`."""

    model: dsl.Model
    metrics: dsl.Metrics
    leaderboard: dsl.HTML
    trials_table: dsl.Dataset


def suggest(
    *, space: Mapping[str, Any], max_trials: int, sampler: str, seed: int, dataset_uri: str
) -> list[dict[str, Any]]:
    """Runs the `suggest` component. Returns one item for each trial."""
    with errors_end_the_step("suggest"):
        study = Study(
            space=Space.from_json(json_numbers(space)),
            sampler=cast("Sampler", sampler),  # Study reads its name, or refuses it
            seed=seed,
            max_trials=max_trials,
        )
        return loop_items(study, dataset_uri)


def trial(
    outputs: TrialOutputs,
    *,
    item: Mapping[str, Any],
    program: str,
    parameters: Mapping[str, Any],
    budget: Mapping[str, Any],
    num_nodes: int,
    objective: str,
    max_restarts: int,
    stall_seconds: float,
    deadline_seconds: float,
    task_config: dsl.TaskConfig,
    pods: Mapping[str, Any],
    backend: str,
) -> dict[str, Any]:
    """Runs the `trial` component: one job. Returns how it ended, also when it failed.

    A step that failed would fail its loop, and with it all other trials; KFP has no other way.
    """
    with errors_end_the_step("trial"):
        if os.environ.get(CANCELLED_VARIABLE):
            raise JobCancelled("The pipeline was cancelled before this trial was started.")
        asked = read_item(json_numbers(item))
        made = asked.trial
        sink = task_sink(f"trial-{made.number}")
        curve = _Curve(made, objective)
        clock = SystemClock()
        began = clock.now()
        try:
            settings = job_settings(task_config, pods)
            spec = TrainSpec(
                name=f"trial-{made.number}",
                program=program,
                parameters=_together(parameters, budget, made.parameters),
                num_nodes=num_nodes,
                output_uri=task_folder(outputs.model),
                dataset_uri=asked.dataset_uri,
                max_restarts=max_restarts,
                objective=_objective(objective),
                limits=Limits(stall=stall_seconds, deadline=deadline_seconds),
                pods=settings.pods,
                env=settings.env,
            )
            with cancel_on_signals() as cancellation:
                place = task_place(backend, sink)
                spec = in_store(spec, outputs.model, place.cluster, os.environ)
                outcome = launch(
                    spec, place.backend, sink=ManySinks(sink, curve), cancellation=cancellation
                )
            # Not the job, which is deleted when the next steps are told of the trial, and the
            # model's URI in place of the folder that only this step sees.
            model = _publish_trial(outputs, outcome, made.number)
            over = replace(ended(curve.trial, outcome, objective), job="", model_uri=model)
        except JobCancelled:
            raise
        except KfpJaxError as error:
            over = refused(curve.trial, error, clock.now() - began)
        sink.note(_sentence(over, objective))
        return to_result(over)


def _objective(name: str) -> str:
    if not name:
        raise SpecError("objective is empty; name the metric that trials are compared by.")
    return name


def _together(*groups: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parameters of all groups.

    Raises:
        SpecError: Two of them give the same one.
    """
    together: dict[str, Any] = {}
    for group in groups:
        twice = sorted(set(together) & set(group))
        if twice:
            raise SpecError(
                f"Parameter {twice[0]} comes from two of: the search space, the budget of the round"
                " and the parameters that all trials share; give it once."
            )
        together |= json_numbers(group)
    return together


def _publish_trial(outputs: TrialOutputs, outcome: Outcome, number: int) -> str:
    """Makes artifacts of what a job left; the model is where it should be already.

    Returns:
        The model's URI, or "".

    Raises:
        JobCancelled: Somebody asked for its end: that is no trial's failure.
    """
    if outcome.phase is Phase.CANCELLED:
        raise JobCancelled(outcome.message)
    log_metrics(outputs.metrics, outcome.metrics)
    model = artifact_place(outcome.output_uri, outputs.model)
    # A program may write the folder without our exporter, and say nothing of it.
    made = outcome.phase is Phase.SUCCEEDED and (outcome.model_uri or storage.exists(model))
    if not made:
        return ""
    outputs.model.metadata.update({"program": outcome.program, "trial": number, "job": outcome.job})
    return str(outputs.model.uri)


class _Curve(NullSink):
    """A job's sink that makes its reports the trial's curve."""

    def __init__(self, trial: Trial, objective: str) -> None:
        self.trial = trial
        self._objective = objective

    def report(self, process: int, report: Report) -> None:
        point = point_of(report, self._objective)
        if point is not None:
            self.trial = extended(self.trial, *point)


def _sentence(trial: Trial, objective: str) -> str:
    if trial.state is TrialState.FAILED:
        return f"Trial {trial.number} failed ({parameters_text(trial)}): {trial.message}"
    score = show_number(trial.score) if trial.score is not None else "unknown"
    return f"Trial {trial.number}: {objective} {score} ({parameters_text(trial)})"


def halve(
    trials_table: dsl.Dataset,
    *,
    results: Sequence[Mapping[str, Any]],
    earlier: dsl.Dataset | None,
    keep: int,
    direction: str,
    max_failed: int,
    dataset_uri: str,
) -> list[dict[str, Any]]:
    """Runs the `halve` component. Returns the items of the trials that go on."""
    with errors_end_the_step("halve"):
        sink = task_sink("halve")
        trials = after_round(_earlier(earlier), read_results(json_numbers(results)))
        _write_table(trials_table, trials)
        _tell_failures(trials, sink)
        end, words = loop_end(trials, max_failed)
        error = failure_of(end, words)
        if error:
            raise error
        going_on = survivors(trials, whole("keep", keep, 1, MAX_LOOP_TRIALS), _direction(direction))
        _write_table(trials_table, without(trials, going_on))
        numbers = ", ".join(str(trial.number) for trial in going_on)
        sink.note(f"Of {len(results)} trials these go on: {numbers}")
        return [loop_item(trial, dataset_uri) for trial in going_on]


def select_best(
    outputs: BestOutputs,
    *,
    results: Sequence[Mapping[str, Any]],
    earlier: dsl.Dataset | None,
    objective: str,
    direction: str,
    space: Mapping[str, Any],
    sampler: str,
    seed: int,
    program: str,
    parameters: Mapping[str, Any],
    budget: Mapping[str, Any],
    num_nodes: int,
    max_failed: int,
) -> dict[str, Any]:
    """Runs the `select_best` component. Returns all parameters of the best trial."""
    with errors_end_the_step("select-best"):
        sink = task_sink("select-best")
        known = Space.from_json(json_numbers(space)) if space else None
        before = _earlier(earlier)
        trials = after_round(before, read_results(json_numbers(results), known))
        shared = json_numbers({**parameters, **budget})
        end, words = loop_end(trials, max_failed)
        error = failure_of(end, words)
        summary = summarize(
            trials,
            objective=objective,
            direction=_direction(direction),
            program=program,
            parameters=shared,
            sampler=sampler,
            pruner="successive halving" if before else "",
            seed=seed,
            state=state_of(end),
            ended=words,
            num_nodes=num_nodes,
        )
        weights = importances(known, trials, summary.direction) if known else {}
        page = render_leaderboard(summary, trials, weights)
        storage.write_text(Path(outputs.leaderboard.path), page)
        _write_table(outputs.trials_table, trials)
        _tell_failures(trials, sink)
        if error:
            raise error
        _publish_best(outputs, summary)
        best = summary.best
        sink.note("Best: " + _sentence(best, objective) if best else "")
        return {**shared, **(best.parameters if best else {})}


def _publish_best(outputs: BestOutputs, summary: SweepSummary) -> None:
    best = summary.best
    counts = {f"trials_{state.value.lower()}": n for state, n in summary.counts.items() if n}
    score = {summary.objective: best.score} if best and best.score is not None else {}
    log_metrics(outputs.metrics, {**score, **counts})
    if best and best.model_uri:
        # The winner's own place: nothing is copied, and a later step reads it from there.
        outputs.model.uri = best.model_uri
        outputs.model.metadata.update({"program": summary.program, "trial": best.number, **score})


def _direction(name: str) -> Direction:
    try:
        return Direction(name)
    except ValueError as error:
        valid = ", ".join(Direction)
        raise SpecError(f"direction is {name!r:.60}; give one of {valid}.") from error


def _earlier(table: dsl.Dataset | None) -> Iterable[Trial]:
    return read_tables([table.path]) if table else ()


def _write_table(table: dsl.Dataset, trials: Iterable[Trial]) -> None:
    storage.write_text(Path(table.path), to_json_lines(trials))


def _tell_failures(trials: Iterable[Trial], sink: Sink) -> None:
    for trial in trials:
        if trial.state is TrialState.FAILED:
            sink.note(_sentence(trial, ""))
