"""Trouble with the cluster itself, which only the tool that started it can make."""

import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

TOOL = "KFP_JAX_E2E_CLUSTER"


class Chaos:
    """Runs the tool of KFP_JAX_E2E_CLUSTER, such as `../shared/cluster/cluster --name ci`."""

    def __init__(self, command: str) -> None:
        self._command = shlex.split(command)

    def __call__(self, *arguments: str) -> None:
        command = [*self._command, "chaos", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"

    @contextmanager
    def without(self, manager: str) -> Iterator[None]:
        """Stops a controller, jobset or trainer, and starts it again after the block."""
        self("stop-manager", manager)
        try:
            yield
        finally:
            self("start-manager", manager)


def find_chaos() -> Chaos:
    """Returns the tool; without one the test is skipped, and in CI it fails."""
    command = os.environ.get(TOOL, "")
    if command:
        return Chaos(command)
    message = f"{TOOL} is not set: a cluster that others started is not ours to break"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)
