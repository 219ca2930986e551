"""Kueue: jobs that wait for a place, get one, lose it to others and go on."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.jobs import BACKENDS, Running, shell
from e2e.mnist import PODS, SMALL, mnist
from e2e.places import Place, kubectl, launcher_overlay, require_kueue, until
from kfp_jax.doctor import Finding, Level, examine_cluster
from kfp_jax.kube.client import Client
from kfp_jax.kube.requests import Resource
from kfp_jax.pods import Pods
from kfp_jax.reports import Kind
from kfp_jax.spec import Limits
from kfp_jax.status import Phase
from kfp_jax.survey import survey_cluster

pytestmark = pytest.mark.usefixtures("nothing_is_left")

GROUP, VERSION = "kueue.x-k8s.io", "v1beta2"
CLUSTER_QUEUES = Resource(GROUP, VERSION, "clusterqueues")
QUEUE = "training"  # as our overlay calls it
URGENT = "kfp-jax-e2e-urgent"
# Room for one job of two nodes.
PLATFORM = f"""
apiVersion: {GROUP}/{VERSION}
kind: ResourceFlavor
metadata: {{name: {QUEUE}}}
---
apiVersion: {GROUP}/{VERSION}
kind: ClusterQueue
metadata: {{name: {QUEUE}}}
spec:
  namespaceSelector: {{}}
  preemption: {{withinClusterQueue: LowerPriority}}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: {QUEUE}
      resources:
      - {{name: cpu, nominalQuota: 500m}}
      - {{name: memory, nominalQuota: 8Gi}}
---
apiVersion: {GROUP}/{VERSION}
kind: WorkloadPriorityClass
metadata: {{name: {URGENT}}}
value: 1000
"""


@pytest.fixture(scope="module")
def platform(client: Client) -> Iterator[None]:
    """The platform's part of the queues. They take their time to go, so all tests share it."""
    require_kueue(client)
    kubectl("apply", "--server-side", "-f", "-", text=PLATFORM)
    yield
    kubectl("delete", "--wait=false", "-f", "-", text=PLATFORM)


@pytest.fixture
def queue(platform: None, place: Place, manifests: Path) -> Place:
    """A place with the queue of our overlay."""
    hold(place, "None")
    overlay = launcher_overlay(manifests, place.namespace, overlay="standalone-queued")
    kubectl("apply", "--server-side", "--force-conflicts", "-k", str(overlay))
    until("the queue is active", lambda: doctors_word(place).level is Level.OK)
    return place


def doctors_word(place: Place, pods: Pods | None = None) -> Finding:
    facts = survey_cluster(place.client, place.namespace)
    checkup = examine_cluster(facts, pods or Pods(queue=QUEUE))
    (found,) = (item for item in checkup.findings if item.check == "Kueue")
    return found


def queued(priority: str = "", *, name: str = QUEUE) -> Pods:
    return replace(PODS, queue=name, priority=priority)


def hold(place: Place, policy: str) -> None:
    place.client.patch(CLUSTER_QUEUES, "", QUEUE, {"spec": {"stopPolicy": policy}})


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_job_that_waits_runs_into_no_limit_but_its_own_and_says_what_for(
    queue: Place, backend: str
) -> None:
    hold(queue, "Hold")
    limits = Limits(start=1, stall=1, deadline=1, queue=6)
    job = Running(queue, backend, shell(queue, "true", pods=queued(), limits=limits))
    outcome = job.outcome()
    assert (outcome.phase, outcome.reason) == (Phase.FAILED, "queue-timeout"), outcome.message
    assert outcome.seconds["queued"] >= 6
    assert job.phases == [Phase.QUEUED, Phase.FAILED]
    assert any("it waits in queue training: ClusterQueue" in text for text in job.said), job.said


def test_a_queue_that_is_not_there_is_told_by_the_job_and_by_doctor(queue: Place) -> None:
    pods = queued(name="nowhere")
    job = Running(queue, "trainer", shell(queue, "true", pods=pods, limits=Limits(queue=5)))
    outcome = job.outcome()
    assert outcome.reason == "queue-timeout"
    assert any("LocalQueue nowhere doesn't exist" in text for text in job.said), job.said
    found = doctors_word(queue, pods)
    assert (found.level, found.seen) == (
        Level.PROBLEM,
        "no queue nowhere in the namespace; it has: training",
    )


def test_doctor_tells_of_a_queue_that_lets_nothing_through(queue: Place) -> None:
    assert doctors_word(queue).seen == "queues of the namespace: training"
    hold(queue, "Hold")
    found = until(
        "the queue is held", lambda: (word := doctors_word(queue)).level is Level.PROBLEM and word
    )
    assert "training admits no job" in found.seen
    assert "kubectl describe" in found.remedy


@pytest.mark.timeout(400)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_preempted_job_says_so_waits_goes_on_from_its_checkpoint_and_ends_well(
    queue: Place, dataset: Path, backend: str
) -> None:
    parameters: dict[str, Any] = {**SMALL, "epochs": 3, "checkpoint_every_steps": 10}
    spec = mnist(queue.folder, dataset, parameters=parameters, pods=queued())
    job = Running(queue, backend, spec)
    until("it has saved", lambda: (step := last_step(job)) and step >= 20, seconds=150)

    urgent = shell(
        queue,
        "echo ran",
        name="urgent",
        num_nodes=2,
        pods=queued(URGENT),
        output_uri=str(queue.folder / "urgent"),
    )
    began = time.monotonic()
    other = Running(queue, backend, urgent).outcome()
    assert other.phase is Phase.SUCCEEDED, other.message
    assert time.monotonic() - began < 120

    outcome = job.outcome(seconds=200)
    assert outcome.phase is Phase.SUCCEEDED, outcome.message
    preempted = "it was preempted in queue training: Preempted to acc"
    assert any(preempted in text for text in job.said), job.said
    assert outcome.seconds["queued"] > 0
    assert outcome.metrics["accuracy"] > 0.5
    after = job.phases.index(Phase.RUNNING)
    assert Phase.QUEUED in job.phases[after:]
    (restored,) = (item for item in job.reports if item.kind is Kind.RESTORED)
    assert restored.step
    assert restored.step >= 20
    history = (queue.folder / "mnist" / "history.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in history]
    assert steps[:-1] == sorted(set(steps))  # the last has its test accuracy in a report of its own
    assert steps[0] <= 20


def last_step(job: Running) -> int | None:
    steps = [item.step for item in job.reports if item.kind is Kind.METRICS]
    return steps[-1] if steps else None


def test_the_queue_of_our_overlay_is_the_one_that_we_document(manifests: Path) -> None:
    text = kubectl("kustomize", str(manifests / "overlays" / "standalone-queued"))
    kinds = {(item["kind"], item["metadata"]["name"]) for item in yaml.safe_load_all(text)}
    assert ("LocalQueue", QUEUE) in kinds
