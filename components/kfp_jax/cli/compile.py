"""`kfp-jax compile`: our pipelines as YAML, for people who upload."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from kfp_jax import storage
from kfp_jax.cli.pipeline import require_kfp


def compile_pipelines(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the YAML files.")],
) -> None:
    """Write every reference pipeline as YAML.

    Example: kfp-jax compile --output build/pipelines
    """
    require_kfp()
    storage.writable_folder(output, "--output")
    command = [sys.executable, "-m", "kfp_jax_pipelines", "compile", "--folder", str(output)]
    raise typer.Exit(subprocess.run(command, check=False).returncode)
