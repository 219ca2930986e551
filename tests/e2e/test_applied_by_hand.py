"""TrainJobs as our builders make them, applied by hand: nothing of a launcher takes part."""

import json
from dataclasses import replace
from pathlib import Path

from e2e.mnist import PODS, mnist
from e2e.places import Place, until
from kfp_jax.kube.resources import CLUSTER_RUNTIMES, TRAINJOBS
from kfp_jax.manifests.dialect import Dialect
from kfp_jax.manifests.identity import Identity
from kfp_jax.manifests.pod import CPU
from kfp_jax.manifests.runtime import lost, runtime_ref
from kfp_jax.manifests.trainjob import trainjob
from kfp_jax.reports import Kind, Report, parse_line
from kfp_jax.spec import TrainSpec


def apply(place: Place, spec: TrainSpec) -> str:
    """Creates the spec's TrainJob and returns its name."""
    identity = Identity(name="mnist-0a1b2c3d-1", namespace=place.namespace)
    ref = runtime_ref(spec)
    assert ref is not None
    runtime = place.client.get(CLUSTER_RUNTIMES, "", ref.name)
    made = trainjob(spec, identity, runtime=runtime, dialect=Dialect.V2_3)
    place.create(TRAINJOBS, made, dry_run=True)
    place.create(TRAINJOBS, made)
    return identity.name


def end(place: Place, name: str) -> str:
    """Returns the condition with which the TrainJob ended, and waits for it."""

    def found() -> str:
        conditions = place.get(TRAINJOBS, name).get("status", {}).get("conditions", [])
        ended = [
            c["type"] for c in conditions if c["status"] == "True" and c["type"] != "Suspended"
        ]
        return ended[0] if ended else ""

    condition = until(f"{name} ends", found, seconds=150)
    assert isinstance(condition, str)
    return condition


def reports(place: Place, name: str) -> dict[int, list[Report]]:
    """Returns what each process reported, by its log."""
    found: dict[int, list[Report]] = {}
    for pod in place.pods(f"jobset.sigs.k8s.io/jobset-name={name}"):
        index = int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])
        lines = place.log(pod["metadata"]["name"]).splitlines()
        parsed = [parse_line(line, number) for number, line in enumerate(lines, 1)]
        found[index] = [report for report in parsed if isinstance(report, Report)]
    return found


def test_two_jax_processes_meet_by_dns_and_train(place: Place, dataset: Path) -> None:
    spec = mnist(place.folder, dataset)
    name = apply(place, spec)
    assert end(place, name) == "Complete", place.story()
    heard = reports(place, name)
    assert {index: Kind.JOINED in [r.kind for r in said] for index, said in heard.items()} == {
        0: True,
        1: True,
    }
    (result,) = [report for report in heard[0] if report.kind is Kind.RESULT]
    assert result.values["accuracy"] > 0.5
    assert (place.folder / "mnist" / "model" / "model.json").is_file()


def test_a_refused_parameter_is_told_in_the_termination_message(
    place: Place, dataset: Path
) -> None:
    name = apply(place, mnist(place.folder, dataset, parameters={"epochs": 0}, num_nodes=1))
    assert end(place, name) == "Failed", place.story()
    (pod,) = place.pods(f"jobset.sigs.k8s.io/jobset-name={name}")
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 64
    assert "epochs must be at least 1, not 0" in ended["message"]


def test_the_stock_runtime_trains_too_and_we_say_what_is_lost(place: Place, dataset: Path) -> None:
    place.admit("baseline")  # it is not restricted
    pods = replace(PODS, runtime="jax-distributed", image=CPU.image)
    spec = mnist(place.folder, dataset, pods=pods)
    (warning,) = lost(spec, place.client.get(CLUSTER_RUNTIMES, "", "jax-distributed"))
    assert "restarts single processes" in warning
    name = apply(place, spec)
    assert end(place, name) == "Complete", place.story()
    assert len(reports(place, name)) == 2
    assert json.loads((place.folder / "mnist" / "model" / "model.json").read_text())
