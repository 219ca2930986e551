"""The command line as a whole: its commands, and errors as one sentence with an exit code."""

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated, NoReturn

import typer

from kfp_jax import __version__
from kfp_jax.cli.cancel import cancel
from kfp_jax.cli.cleanup import cleanup
from kfp_jax.cli.compile import compile_pipelines
from kfp_jax.cli.delete import delete
from kfp_jax.cli.doctor import doctor
from kfp_jax.cli.list import list_jobs
from kfp_jax.cli.logs import logs
from kfp_jax.cli.pipeline import pipeline
from kfp_jax.cli.render import render
from kfp_jax.cli.run import run
from kfp_jax.cli.schedule import schedule
from kfp_jax.cli.status import status
from kfp_jax.cli.sweep import sweep
from kfp_jax.cli.validate import validate
from kfp_jax.errors import KfpJaxError, OutputError

app = typer.Typer(
    name="kfp-jax",
    help="Train JAX programs, alone or in Kubeflow pipelines, here or on a cluster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="Exit codes: 0 done, 1 the job failed, 2 bad input, 65 refused by the cluster, "
    "66 not there, 69 no answer, 71 the job vanished, 73 in use, 74 output trouble, "
    "75 asked too often, 77 not allowed, 124 a limit ran out, 130 cancelled.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run)
app.command("sweep")(sweep)
app.command("pipeline")(pipeline)
app.command("validate")(validate)
app.command("render")(render)
app.command("compile")(compile_pipelines)
app.add_typer(schedule, name="schedule")
_CLUSTER = "On a cluster"
app.command("doctor", rich_help_panel=_CLUSTER)(doctor)
app.command("list", rich_help_panel=_CLUSTER)(list_jobs)
app.command("status", rich_help_panel=_CLUSTER)(status)
app.command("logs", rich_help_panel=_CLUSTER)(logs)
app.command("cancel", rich_help_panel=_CLUSTER)(cancel)
app.command("delete", rich_help_panel=_CLUSTER)(delete)
app.command("cleanup", rich_help_panel=_CLUSTER)(cleanup)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"kfp-jax {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    del version  # printed before any command is looked for


def main() -> None:
    """Runs the command line; an error of ours is one sentence on stderr and its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a folder's name may be beyond a terminal's letters
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except KfpJaxError as error:
        _leave(str(error), error.exit_code)
    except OSError as error:
        # Python would try once more to write what is left, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _leave(f"The output cannot be written: {error.strerror}.", OutputError.exit_code)


def _leave(sentence: str, code: int) -> NoReturn:
    with suppress(OSError):  # a full disk behind stderr must not hide the exit code
        sys.stderr.write(f"{sentence}\n")
    sys.exit(code)
