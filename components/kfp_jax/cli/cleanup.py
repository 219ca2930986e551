"""`kfp-jax cleanup`: removes what a pipeline run left on a cluster."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from kfp_jax.cli import options
from kfp_jax.cli.cluster import connected, note
from kfp_jax.cli.tables import print_json
from kfp_jax.cluster.ending import clean_up


def cleanup(
    run: Annotated[str, typer.Option("--run", help="Id of the run.", show_default=False)],
    followed: Annotated[
        bool,
        typer.Option(
            "--followed", help="Also jobs that a launcher still follows: the run is over."
        ),
    ] = False,
    namespace: options.Namespace = "",
    context: options.Context = "",
    as_json: options.Json = False,
) -> None:
    """Delete the jobs of a run that no launcher follows any more, and their runtimes.

    Example: kfp-jax cleanup --run 4f1c2d3e-5a6b-4c7d-8e9f-0a1b2c3d4e5f --namespace team
    """
    with connected(context, namespace) as (client, where):
        done = clean_up(client, where, run, now=datetime.now(UTC), followed=followed)
    if as_json:
        print_json([item.to_json() for item in done])
        return
    for item in done:
        verb = "deleted" if item.removed else "kept"
        note(f"{item.kind} {item.name} was {verb}: {item.why}.")
    if not done:
        note(f"Run {run} left nothing in namespace {where}.")
