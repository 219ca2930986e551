"""MNIST on one, two and four pods through both backends: what it gives on one machine."""

import json
from pathlib import Path
from typing import Any

import pytest
from e2e.mnist import mnist
from e2e.places import Place, until
from kfp_jax.backends.cluster import ClusterBackend
from kfp_jax.backends.jobset import JobSetBackend
from kfp_jax.backends.trainer import TrainerBackend
from kfp_jax.launch import launch
from kfp_jax.status import Outcome

BACKENDS: dict[str, type[ClusterBackend]] = {"trainer": TrainerBackend, "jobset": JobSetBackend}
# What tells one run from another and says nothing of what was learnt.
OF_THE_RUN = {"job", "backend", "seconds", "output_uri", "model_uri", "num_processes", "versions"}


def steps(folder: Path) -> list[int]:
    """Returns the steps of the history whose metrics were reported."""
    reports = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    return [report["step"] for report in reports if report["step"] is not None]


def what_was_learnt(outcome: Outcome) -> dict[str, Any]:
    result = json.loads((Path(outcome.output_uri) / "result.json").read_text())
    metrics = result.pop("metrics")
    kept = {name: value for name, value in result.items() if name not in OF_THE_RUN}
    return kept | {"metrics": sorted(metrics), "steps": metrics["steps"]}


@pytest.mark.parametrize("nodes", [1, 2, 4])
@pytest.mark.parametrize("name", BACKENDS)
def test_pods_learn_what_local_processes_learn(
    place: Place, dataset: Path, local_outcome: Outcome, name: str, nodes: int
) -> None:
    backend = BACKENDS[name](place.client, namespace=place.namespace)
    outcome = launch(mnist(place.folder, dataset, num_nodes=nodes), backend)
    assert outcome.error() is None, f"{outcome.message}\n{place.story()}"
    assert outcome.metrics["accuracy"] == pytest.approx(local_outcome.metrics["accuracy"], abs=0.01)
    assert what_was_learnt(outcome) == what_was_learnt(local_outcome)
    assert (outcome.backend, outcome.num_processes) == (name, nodes)
    assert steps(Path(outcome.output_uri)) == steps(Path(local_outcome.output_uri))
    assert (Path(outcome.model_uri) / "model.json").is_file()
    until("nothing of the job is left", lambda: not place.pods(), seconds=10)
