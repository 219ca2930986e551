"""`kfp-jax sweep`: many jobs that differ in their parameters, and the best of them."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from kfp_jax import storage
from kfp_jax.cli import options
from kfp_jax.cli.cluster import place
from kfp_jax.cli.progress import print_summary, shown
from kfp_jax.cli.sweep_progress import sweep_screen
from kfp_jax.errors import SpecError
from kfp_jax.spec import TrainSpec
from kfp_jax.sweep.end import error_of
from kfp_jax.sweep.space import Space
from kfp_jax.sweep.spec import SweepSpec
from kfp_jax.sweep.study import Pruner, Sampler, Study
from kfp_jax.sweep.summary import SweepSummary
from kfp_jax.sweep.trial import Direction, TrialState
from kfp_jax.sweep_folder import LEADERBOARD, SUMMARY, TRIALS_CSV, ran_in_folder, read_tables
from kfp_jax.tuning import default_parallel, study_name

SpaceJson = Annotated[
    str,
    typer.Option("--space", help="Search space, as JSON or a file of it: docs/search-space.md."),
]
MaxTrials = Annotated[
    int, typer.Option("--max-trials", help="How many; 0: every point of the space.")
]
Parallel = Annotated[
    int,
    typer.Option("--parallel", help="How many at once; 0: one a core here, 4 on a cluster."),
]
SamplerName = Annotated[Sampler, typer.Option("--sampler", help="How parameters are suggested.")]
PrunerName = Annotated[Pruner, typer.Option("--pruner", help="How trials are ended early.")]
MinStep = Annotated[
    int,
    typer.Option(
        "--min-step", help="Pruners spare trials before it; 0: follows from the first complete one."
    ),
]
Minimize = Annotated[
    bool, typer.Option("--minimize", help="Smaller objectives are better, as for a loss.")
]
Seed = Annotated[int, typer.Option("--seed", help="Same seed, same suggestions.")]
MaxFailed = Annotated[
    int,
    typer.Option("--max-failed", help="How many trials may fail; -1: half of them."),
]
TimeBudget = Annotated[
    float, typer.Option("--time-budget-seconds", help="Stop the trials after so long; 0: never.")
]
WarmStart = Annotated[
    list[str] | None,
    typer.Option("--warm-start", help="Folder of an earlier sweep to learn from; repeat it."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with the sweep that the output folder holds.")
]


@options.takes_spec
def sweep(
    job: TrainSpec,
    *,
    space: SpaceJson = "",
    max_trials: MaxTrials = 0,
    parallel: Parallel = 0,
    sampler: SamplerName = Sampler.TPE,
    pruner: PrunerName = Pruner.NONE,
    min_step: MinStep = 0,
    minimize: Minimize = False,
    seed: Seed = 0,
    max_failed: MaxFailed = -1,
    time_budget_seconds: TimeBudget = 0.0,
    warm_start: WarmStart = None,
    resume: Resume = False,
    backend: options.BackendName = "auto",
    namespace: options.Namespace = "",
    context: options.Context = "",
    as_json: Annotated[bool, typer.Option("--json", help=f"Print {SUMMARY}.")] = False,
) -> None:
    """Search for the best parameters: many training jobs, several at once.

    Ctrl-C stops the trials and keeps what has ended; --resume goes on. The options for a job are
    those of every trial; -p gives parameters that all trials share.

    Examples:
    kfp-jax sweep --program kfp_jax_runtime.mnist -p epochs=1 --max-trials 12 --output build/sweep
    --space '{"learning_rate": {"type": "loguniform", "low": 1e-4, "high": 1e-1}}'

    kfp-jax sweep --program my.train --objective loss --minimize --pruner asha --space space.json
    --max-trials 40 --backend trainer --volume data:/data --output /data/sweep
    """
    if not space:
        raise SpecError("No search space was given; give --space, as JSON or a file of it.")
    study = Study(
        space=Space.from_json(options.read_json(space, "--space")),
        direction=Direction.MINIMIZE if minimize else Direction.MAXIMIZE,
        sampler=sampler,
        pruner=pruner,
        seed=seed,
        max_trials=max_trials,
        min_step=min_step,
    )
    output = storage.local_path(job.output_uri, "output_uri")
    where = place(backend, namespace, context, study=study_name(job))
    spec = SweepSpec(
        job=replace(job, objective=job.objective or "accuracy", output_uri=str(output)),
        study=study,
        parallel=parallel or default_parallel(where, job.num_nodes),
        max_failed=max_failed,
        time_budget=time_budget_seconds,
        earlier=read_tables(warm_start or ()),
    )
    with ran_in_folder(spec, where, sweep_screen(spec), resume=resume) as (folder, end, summary):
        error = error_of(spec, end, going_on="the same command with --resume")
        if as_json:
            sys.stdout.write((folder / SUMMARY).read_text(encoding="utf-8"))
        else:
            title = f"Sweep {summary.state.value.lower()}: {summary.ended}"
            print_summary(title, _rows(summary, folder), good=error is None)
    if error:
        raise error


def _rows(summary: SweepSummary, folder: Path) -> dict[str, str]:
    """Returns what a person wants to know of a sweep that has ended."""
    counts = [
        f"{count} {state.value.lower()}"
        for state, count in summary.counts.items()
        if count and state is not TrialState.RUNNING
    ]
    rows = {"trials": ", ".join(counts) or "none"}
    if summary.best is not None:
        best = summary.best
        rows[f"best {summary.objective}"] = (
            f"{shown(summary.objective, best.score or 0.0)} (trial {best.number})"
        )
        rows |= {name: str(value) for name, value in best.parameters.items()}
        if best.model_uri:
            rows["model"] = best.model_uri
    rows["trials table"] = str(folder / TRIALS_CSV)
    rows["leaderboard"] = str(folder / LEADERBOARD)
    return rows
