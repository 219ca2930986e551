"""`kfp-jax list`: the jobs of a namespace, whoever made them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from kfp_jax.cli import options
from kfp_jax.cli.cluster import connected, note
from kfp_jax.cli.tables import age, print_json, print_table
from kfp_jax.cluster.jobs import ClusterJob
from kfp_jax.cluster.lookup import find_jobs


def list_jobs(
    namespace: options.Namespace = "",
    context: options.Context = "",
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Those of all namespaces.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """List the jobs on a cluster: TrainJobs and JobSets, also those that others made.

    Example: kfp-jax list --namespace team
    """
    with connected(context, namespace) as (client, where):
        found = find_jobs(client, "" if everywhere else where)
    if as_json:
        print_json([job.to_json() for job in found.jobs])
    elif found.jobs:
        columns, rows = job_table(found.jobs, datetime.now(UTC), namespaces=everywhere)
        print_table(columns, rows)
    else:
        note("No jobs on the cluster." if everywhere else f"No jobs in namespace {where}.")
    for text in found.notes:
        note(text)


def job_table(
    jobs: Sequence[ClusterJob], now: datetime, *, namespaces: bool
) -> tuple[list[str], list[list[str]]]:
    """Returns the columns and rows of a table of jobs. Pure."""
    columns = ["job", "backend", "phase", "nodes", "restarts", "age", "run", "study", "made by"]
    rows = [
        [
            job.name,
            job.backend,
            job.phase.value + (" (being deleted)" if job.ending else ""),
            _count(job.nodes),
            _count(job.restarts),
            age(job.created, now),
            job.run or "-",
            job.study or "-",
            "kfp-jax" if job.ours else "others",
        ]
        for job in jobs
    ]
    if namespaces:
        columns = ["namespace", *columns]
        rows = [[job.namespace, *row] for job, row in zip(jobs, rows, strict=True)]
    return columns, rows


def _count(number: int | None) -> str:
    return "-" if number is None else str(number)
