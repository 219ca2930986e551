"""A launcher that is killed or told to stop at any moment: one job each time, or none.

KFP_JAX_E2E_SEEDS says at how many moments, for each backend and each of the two: else 5.
"""

import os
import random
import signal
import subprocess
from collections.abc import Iterator

import pytest
from e2e.jobs import BACKENDS, Launchers
from e2e.places import Place

pytestmark = pytest.mark.usefixtures("nothing_is_left")

SECONDS = 6.0  # from the start of a launcher to the end of its job, about
SEEDS = range(int(os.environ.get("KFP_JAX_E2E_SEEDS") or 5))


@pytest.fixture
def started() -> Iterator[list[Launchers]]:
    made: list[Launchers] = []
    yield made
    for launchers in made:
        launchers.close()


@pytest.mark.parametrize("seed", SEEDS)
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


@pytest.mark.parametrize("seed", SEEDS)
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
