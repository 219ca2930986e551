"""A launcher that is killed or told to stop at any moment: one job each time, or none."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.mnist import PODS
from e2e.places import Place, until
from kfp_jax.kube.resources import JOBSETS, RUNTIMES, TRAINJOBS
from kfp_jax.kube.resources import PODS as ALL_PODS
from kfp_jax.spec import TrainSpec

LAUNCHER = Path(__file__).with_name("launcher.py")
SECONDS = 6.0  # from the start of a launcher to the end of its job, about
BACKENDS = ("trainer", "jobset")


class Launchers:
    """Starts launchers of one job; none is left running."""

    def __init__(self, place: Place, backend: str, script: str) -> None:
        spec = TrainSpec(
            name="drill",
            command=("sh", "-c", script),
            output_uri=str(place.folder / "out"),
            max_restarts=1,  # the job brings a runtime of its own
            pods=PODS,
        )
        self._argv = [backend, place.namespace, json.dumps(spec.to_json())]
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(LAUNCHER), *self._argv]
        self._started.append(subprocess.Popen(command, env=os.environ, stdout=subprocess.PIPE))
        return self._started[-1]

    def close(self) -> None:
        for launcher in self._started:
            launcher.kill()
            launcher.communicate()


@pytest.fixture
def started() -> Iterator[list[Launchers]]:
    made: list[Launchers] = []
    yield made
    for launchers in made:
        launchers.close()


def nothing_is_left(place: Place) -> bool:
    kinds = (TRAINJOBS, JOBSETS, RUNTIMES, ALL_PODS)
    return not any(place.client.list(kind, place.namespace).items for kind in kinds)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("backend", BACKENDS)
def test_killed_and_started_again_the_job_runs_once(
    place: Place, started: list[Launchers], backend: str, seed: int
) -> None:
    ran = place.folder / "ran"
    launchers = Launchers(place, backend, f"echo run >> {ran}; sleep 2; echo done")
    started.append(launchers)
    first = launchers.start()
    try:
        first.wait(timeout=random.Random(seed).uniform(0.5, SECONDS))
    except subprocess.TimeoutExpired:
        first.kill()
        first.wait()
        said, _ = launchers.start().communicate(timeout=60)
        assert b"SUCCEEDED" in said, said
    assert ran.read_text() == "run\n"
    until("nothing is left", lambda: nothing_is_left(place))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("backend", BACKENDS)
def test_told_to_stop_nothing_is_left(
    place: Place, started: list[Launchers], backend: str, seed: int
) -> None:
    launchers = Launchers(place, backend, "trap 'exit 0' TERM; sleep 100 & wait")
    started.append(launchers)
    launcher = launchers.start()
    with pytest.raises(subprocess.TimeoutExpired):
        launcher.wait(timeout=random.Random(seed).uniform(0.5, SECONDS))
    launcher.send_signal(signal.SIGTERM)
    launcher.communicate(timeout=60)
    assert launcher.returncode != 0
    until("nothing is left", lambda: nothing_is_left(place))
