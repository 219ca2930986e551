"""Trouble with the API server and with the controllers: no job, no line and no end is lost.

Both backends go through each trouble side by side, in one namespace.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2e.chaos import Chaos, find_chaos
from e2e.jobs import BACKENDS, Running, shell
from e2e.mnist import mnist
from e2e.places import Place, until
from kfp_jax.reports import Kind
from kfp_jax.status import Outcome, Phase

pytestmark = pytest.mark.usefixtures("nothing_is_left")

COUNT = 120


@pytest.fixture
def chaos() -> Chaos:
    return find_chaos()


@contextmanager
def both(place: Place, script: str) -> Iterator[list[Running]]:
    """Gives a job of each backend, whose start leaves a line in `ran-BACKEND`."""
    yield [
        Running(
            place,
            name,
            shell(
                place,
                f"echo run >> {place.folder}/ran-{name}; {script}",
                name=name,
                output_uri=str(place.folder / f"out-{name}"),
            ),
        )
        for name in BACKENDS
    ]


def assert_all_is_well(place: Place, jobs: list[Running], lines: list[str]) -> None:
    for job in jobs:
        outcome = job.outcome()
        assert outcome.phase is Phase.SUCCEEDED, outcome.message
        assert (outcome.attempts, job.lines[0]) == (1, lines)
        assert (place.folder / f"ran-{outcome.backend}").read_text() == "run\n"


def paused(chaos: Chaos) -> None:
    chaos("pause-api", "20")


def restarted(chaos: Chaos) -> None:
    chaos("restart-api")


def cut_each_second(chaos: Chaos) -> None:
    enough = threading.Event()
    for _ in range(15):
        chaos("drop-api-connections")
        enough.wait(1)


@pytest.mark.parametrize(
    "trouble", [paused, restarted, cut_each_second], ids=lambda trouble: trouble.__name__
)
def test_an_api_server_in_trouble_costs_a_run_nothing(
    place: Place, chaos: Chaos, trouble: Callable[[Chaos], None]
) -> None:
    with both(place, f"for i in $(seq {COUNT}); do echo $i; sleep 0.2; done") as jobs:
        for job in jobs:
            job.heard("5")
        trouble(chaos)
    assert_all_is_well(place, jobs, [str(number) for number in range(1, COUNT + 1)])


@pytest.mark.parametrize("manager", BACKENDS)
def test_a_webhook_that_is_down_is_waited_for(place: Place, chaos: Chaos, manager: str) -> None:
    with chaos.without(manager):
        job = Running(place, manager, shell(place, "echo done"))
        with pytest.raises(AssertionError, match="not within 5 s"):
            job.outcome(seconds=5)
    outcome = job.outcome()
    assert outcome.phase is Phase.SUCCEEDED, outcome.message
    assert job.lines[0] == ["done"]


@pytest.mark.parametrize("manager", BACKENDS)
def test_controllers_that_stop_during_a_run_end_it_when_they_are_back(
    place: Place, chaos: Chaos, manager: str
) -> None:
    with both(place, f"echo up; until [ -e {place.folder}/go ]; do sleep 0.2; done") as jobs:
        for job in jobs:
            job.heard("up")
        with chaos.without(manager):
            (place.folder / "go").touch()
            until(
                "the pods have done their work",
                lambda: all(p["status"]["phase"] == "Succeeded" for p in place.pods()),
            )
    assert_all_is_well(place, jobs, ["up"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_process_that_is_killed_from_outside_is_named(
    place: Place, chaos: Chaos, backend: str
) -> None:
    job = Running(place, backend, shell(place, "echo up; sleep 100", num_nodes=2))
    job.heard("up", process=0)
    job.heard("up", process=1)
    (pod,) = (p["metadata"]["name"] for p in place.pods() if "-node-0-1-" in p["metadata"]["name"])
    chaos("kill-pod-process", place.namespace, pod)
    outcome = job.outcome(seconds=20)  # process 0 heeds no SIGTERM
    assert (outcome.phase, outcome.failed_process) == (Phase.FAILED, 1), outcome.message
    assert outcome.reason == "killed"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_restarted_set_goes_on_from_its_checkpoint(
    place: Place, chaos: Chaos, backend: str, dataset: Path, local_outcome: Outcome
) -> None:
    parameters = {**local_outcome.parameters, "checkpoint_every_steps": 20}
    spec = mnist(place.folder, dataset, parameters=parameters, max_restarts=2)
    job = Running(place, backend, spec)
    checkpoints = place.folder / "mnist" / "checkpoints"

    def whole() -> list[str]:
        return [path.name for path in checkpoints.glob("*") if path.name.isdigit()]

    until("a checkpoint is there", whole, seconds=120)
    (pod,) = (p["metadata"]["name"] for p in place.pods() if "-node-0-1-" in p["metadata"]["name"])
    chaos("kill-pod-process", place.namespace, pod)
    outcome = job.outcome(seconds=180)
    assert outcome.phase is Phase.SUCCEEDED, outcome.message
    assert outcome.attempts == 2
    assert outcome.metrics["accuracy"] == pytest.approx(local_outcome.metrics["accuracy"], abs=0.02)
    (restored,) = [report.step for report in job.reports if report.kind is Kind.RESTORED]
    assert restored is not None
    assert restored >= 20
    assert steps(place.folder / "mnist") == steps(Path(local_outcome.output_uri))


def steps(folder: Path) -> list[int]:
    """Returns the steps in a job's history."""
    lines = (folder / "history.jsonl").read_text().splitlines()
    return [json.loads(line)["step"] for line in lines]
