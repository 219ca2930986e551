"""`kfp-jax compile`: our pipelines as YAML, for people who upload."""

import subprocess
import sys
from typing import Annotated

import typer

from kfp_jax import storage
from kfp_jax.cli.pipeline import require_kfp
from kfp_jax.images import prefix


def compile_pipelines(
    output: Annotated[str, typer.Option("--output", "-o", help="Folder for the YAML files.")],
) -> None:
    """Write every reference pipeline as YAML.

    Example: kfp-jax compile --output build/pipelines
    """
    require_kfp()
    prefix()  # is refused here: the compiler would end with a traceback
    folder = storage.local_path(output, "--output")
    storage.writable_folder(folder, "--output")
    command = [sys.executable, "-m", "kfp_jax_pipelines", "compile", "--folder", str(folder)]
    raise typer.Exit(subprocess.run(command, check=False).returncode)
