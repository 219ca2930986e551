"""The Kubeflow SDK in an environment of its own: kfp allows no client that it would take."""

import os
import subprocess
import venv
from pathlib import Path

import pytest

VERSION = "kubeflow==0.5.0"


def python_with_sdk(folder: Path) -> Path:
    """Returns a Python that has the SDK, made in that folder unless it is there; skips without."""
    python = folder / "bin" / "python"
    if (folder / "ready").exists():
        return python
    venv.create(folder, with_pip=True)
    install = [python, "-m", "pip", "install", "--quiet", VERSION]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"the Kubeflow SDK cannot be installed: {done.stderr[-500:]}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    (folder / "ready").touch()
    return python
