"""What people and earlier objects do to a job, and what a job does to its launcher."""

import os
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from e2e.jobs import BACKENDS, KINDS, Running, left_in, shell
from e2e.mnist import PODS
from e2e.places import Place, kubectl, until
from fakes.proxy import Seen, proxy_to
from kfp_jax.errors import Conflict, SpecError
from kfp_jax.kube.access import find_access
from kfp_jax.kube.client import Client
from kfp_jax.kube.resources import JOBSETS, SERVICES, TRAINJOBS
from kfp_jax.kube.resources import PODS as ALL_PODS
from kfp_jax.launch import job_ref, launch
from kfp_jax.spec import MAX_NAME
from kfp_jax.status import Phase

pytestmark = pytest.mark.usefixtures("nothing_is_left")

LEAVES = "trap 'exit 0' TERM; sleep 100 & wait"
FOREIGN: dict[str, dict[str, Any]] = {
    "trainjob": {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "spec": {"runtimeRef": {"name": "kfp-jax-cpu"}, "suspend": True},
    },
    "jobset": {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "spec": {
            "suspend": True,
            "replicatedJobs": [
                {
                    "name": "node",
                    "template": {
                        "spec": {
                            "template": {
                                "spec": {"containers": [{"name": "node", "image": "none:1"}]}
                            }
                        }
                    },
                }
            ],
        },
    },
    "service": {"spec": {"clusterIP": "None", "selector": {"a": "b"}}},
}
KIND_OF = {"trainjob": TRAINJOBS, "jobset": JOBSETS, "service": SERVICES}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_job_that_somebody_suspends_and_resumes_goes_on(place: Place, backend: str) -> None:
    ran = place.folder / "ran"
    script = f"echo run >> {ran}; echo up; [ $(wc -l < {ran}) = 2 ] || {{ {LEAVES}; }}"
    job = Running(place, backend, shell(place, script))
    job.heard("up")

    def suspend(value: bool) -> None:
        changes = {"spec": {"suspend": value}}
        place.client.patch(KINDS[backend], place.namespace, job.name, changes)

    suspend(True)
    until("it is held", lambda: job.phases[-1] is Phase.QUEUED)
    until("its pod is gone", lambda: not place.pods())
    suspend(False)
    outcome = job.outcome()
    assert outcome.phase is Phase.SUCCEEDED, outcome.message
    assert job.lines[0] == ["up", "up"]
    assert ran.read_text() == "run\nrun\n"
    assert outcome.seconds["queued"] > 0


def test_a_job_that_somebody_deletes_is_lost(place: Place, backend: str) -> None:
    job = Running(place, backend, shell(place, f"echo up; {LEAVES}"))
    job.heard("up")
    kubectl("delete", str(KINDS[backend]), job.name, "-n", place.namespace)
    outcome = job.outcome()
    assert outcome.phase is Phase.LOST
    assert "deleted by somebody else" in outcome.message


def test_a_pod_that_somebody_deletes_is_named(place: Place, backend: str) -> None:
    script = "echo up; trap 'exit 143' TERM; sleep 100 & wait"
    job = Running(place, backend, shell(place, script, num_nodes=2))
    job.heard("up", process=0)
    job.heard("up", process=1)
    (pod,) = (p["metadata"]["name"] for p in place.pods() if "-node-0-1-" in p["metadata"]["name"])
    place.client.delete(ALL_PODS, place.namespace, pod)
    outcome = job.outcome()
    assert (outcome.phase, outcome.failed_process) == (Phase.FAILED, 1), outcome.message
    assert "the pod of process 1 was deleted by somebody" in outcome.message


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_has_the_name_and_is_somebody_elses_is_left_alone(
    place: Place, backend: str, kind: str
) -> None:
    if (backend, kind) == ("jobset", "trainjob"):
        pytest.skip("a JobSet and a TrainJob of one name do not meet")
    spec = shell(place, "true")
    ref = BACKENDS[backend](place.client, namespace=place.namespace)
    name = job_ref(spec, ref).name
    resource = KIND_OF[kind]
    made = place.create(resource, {"metadata": {"name": name}, **FOREIGN[kind]})
    with pytest.raises(Conflict, match=f"{name} .*is not of this task"):
        launch(spec, ref)
    found = place.get(resource, name)
    assert found["metadata"]["uid"] == made["metadata"]["uid"]
    assert "deletionTimestamp" not in found["metadata"]
    place.client.delete(resource, place.namespace, name)


def test_a_create_whose_answer_is_lost_makes_one_job(place: Place, backend: str) -> None:
    ran = place.folder / "ran"
    lost: list[Seen] = []

    def lose_first(seen: Seen) -> bool:
        creates = seen.method == "POST" and f"/{KINDS[backend].plural}?" in seen.path
        if lost or not creates or "dryRun" in seen.path:
            return False
        lost.append(seen)
        return True

    with proxy_to(find_access(os.environ)()) as proxy:
        proxy.loses = lose_first
        config = proxy.kubeconfig(place.folder, place.namespace)
        client = Client(find_access({"KUBECONFIG": config}))
        spec = shell(place, f"echo run >> {ran}; echo done", max_restarts=1)
        outcome = Running(place, backend, spec, client=client).outcome()
        client.close()
    assert outcome.phase is Phase.SUCCEEDED, outcome.message
    assert len(lost) == 1
    assert ran.read_text() == "run\n"


def test_a_runtime_that_is_not_there_starts_nothing(place: Place) -> None:
    backend = BACKENDS["trainer"](place.client, namespace=place.namespace)
    spec = shell(place, "true", pods=replace(PODS, runtime="no-such-runtime"))
    with pytest.raises(SpecError, match=r"no-such-runtime is not on this cluster, which has .*jax"):
        launch(spec, backend)
    assert not left_in(place)


@pytest.mark.timeout(240)
def test_every_line_of_a_long_log_is_read_once(place: Place, backend: str) -> None:
    count = 200_000
    # Short, so that all fits the 10 MiB after which a kubelet puts a log aside: the line that is
    # being written at that moment is torn, for everybody who reads it. And not over at once: what
    # containerd has not taken by then it drops.
    script = f"seq -f $JAX_PROCESS_ID:%.0f {count}; sleep 6"
    job = Running(place, backend, shell(place, script, num_nodes=2))
    outcome = job.outcome(seconds=200)
    assert outcome.phase is Phase.SUCCEEDED, outcome.message
    for process in (0, 1):
        wanted = [f"{process}:{number}" for number in range(1, count + 1)]
        found = job.lines[process]
        assert len(found) == count, missed(found, wanted)
        assert found == wanted, missed(found, wanted)


def missed(found: list[str], wanted: list[str]) -> str:
    twice = [line for line, times in Counter(found).items() if times > 1]
    lost = sorted(set(wanted) - set(found))
    return f"{len(twice)} twice: {twice[:3]}; {len(lost)} lost: {lost[:3]}"


def test_the_longest_name_runs(place: Place, backend: str) -> None:
    spec = shell(place, "echo $HOSTNAME", name="n" * MAX_NAME, num_nodes=2)
    job = Running(place, backend, spec)
    outcome = job.outcome()
    assert outcome.phase is Phase.SUCCEEDED, outcome.message
    assert job.lines[1] == [f"{job.name}-node-0-1"]
