"""Pods and events of a job as what a person asks."""

from datetime import timedelta
from typing import Any

import pytest
from fakes.cluster_objects import container, event, jobset, pod, trainjob
from kfp_jax.cluster.jobs import read_jobset, read_trainjob
from kfp_jax.cluster.nodes import missing, read_events, read_node, read_nodes, trains

UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available: 1 Insufficient cpu.",
}
REPORT = '@kfp-jax {"v": 1, "kind": "error", "time": 1, "message": "ValueError: no"}'
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("status", "state", "detail"),
    [
        pytest.param(
            {"containerStatuses": container(running={"startedAt": "x"})}, "Running", "", id="runs"
        ),
        pytest.param(
            {"containerStatuses": container(terminated={"exitCode": 0, "reason": "Completed"})},
            "exited 0",
            "",
            id="done",
        ),
        pytest.param(
            {"containerStatuses": container(terminated={"exitCode": 137, "reason": "OOMKilled"})},
            "exited 137 (OOMKilled)",
            "",
            id="out-of-memory",
        ),
        pytest.param(
            {
                "containerStatuses": container(
                    terminated={"exitCode": 1, "reason": "Error", "message": f"{REPORT}\n"}
                )
            },
            "exited 1",
            "ValueError: no",
            id="its-own-report-in-words",
        ),
        pytest.param(
            {
                "phase": "Pending",
                "containerStatuses": container(
                    waiting={"reason": "ImagePullBackOff", "message": "no\n such image"}
                ),
            },
            "ImagePullBackOff",
            "no such image",
            id="no-image",
        ),
        pytest.param(
            {
                "containerStatuses": container(
                    restarts=2,
                    waiting={"reason": "CrashLoopBackOff"},
                    lastState={"terminated": {"exitCode": 3, "reason": "Error"}},
                )
            },
            "CrashLoopBackOff",
            "before: exited 3",
            id="crash-loop",
        ),
        pytest.param(
            {"phase": "Pending", "conditions": [UNSCHEDULABLE]},
            "Unschedulable",
            UNSCHEDULABLE["message"],
            id="no-room",
        ),
        pytest.param(
            {"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
            "Evicted",
            "low on memory",
            id="evicted",
        ),
        pytest.param(
            {
                "phase": "Pending",
                "initContainerStatuses": container(
                    "fetch", terminated={"exitCode": 2, "message": "404"}
                ),
                "containerStatuses": container(waiting={"reason": "PodInitializing"}),
            },
            "init fetch exited 2",
            "404",
            id="init-container",
        ),
        pytest.param({"phase": "Pending"}, "Pending", "", id="just-made"),
    ],
)
def test_the_state_of_a_process(status: dict[str, Any], state: str, detail: str) -> None:
    node = read_node(pod(1, **status))
    assert (node.process, node.state, node.detail) == (1, state, detail)


def test_processes_come_in_their_order_and_what_prepares_after_them() -> None:
    nodes = read_nodes([pod(0, step="dataset-initializer"), pod(10), pod(2), pod(0)])
    assert [(node.step, node.process) for node in nodes] == [
        ("node", 0),
        ("node", 2),
        ("node", 10),
        ("dataset-initializer", 0),
    ]
    job = read_jobset(jobset(), ())
    assert [trains(job, node) for node in nodes] == [True, True, True, False]


def test_events_are_those_of_the_job_and_no_namesake_the_newest_last() -> None:
    name = "mnist-0a1b2c3d-1"
    events = [
        event("Pod", f"{name}-node-0-0-abcd0", "Started", "container started", 2 * MINUTE),
        event("Pod", f"{name}-node-0-1-zzzzz", "Killing", "a pod that is gone", MINUTE),
        event("Pod", f"{name}0-node-0-0-abcd0", "Started", "another job", MINUTE),
        event("Pod", f"{name}-2-node-0-0-abcd0", "Started", "another job", MINUTE),
        event("Job", f"{name}-node-0", "FailedCreate", "exceeded quota", 3 * MINUTE, count=4),
        event("TrainJob", name, "TrainJobResourcesCreationFailed", "no", 4 * MINUTE),
        event(
            "JobSet",
            name,
            "Made",
            "of the newer API",
            timedelta(0),
            lastTimestamp=None,
            eventTime="2026-12-01T11:59:30.000000Z",
        ),
        event("Workload", f"trainjob-{name}-1a2b3", "Pending", "no quota", 5 * MINUTE),
    ]
    job = read_trainjob(trainjob(), None, ())
    found = read_events(events, job, read_nodes([pod()]))
    assert [item.reason for item in found] == [
        "Pending",
        "TrainJobResourcesCreationFailed",
        "FailedCreate",
        "Started",
        "Killing",
        "Made",
    ]
    assert [item.count for item in found] == [1, 1, 4, 1, 1, 1]


def test_events_of_one_second_come_as_the_server_counts_them() -> None:
    name, now = "mnist-0a1b2c3d-1", timedelta(0)
    pairs = [("Started", "12"), ("Created", "9"), ("Scheduled", "8")]
    events = [event("TrainJob", name, reason, "", now) for reason, _ in pairs]
    for item, (_, version) in zip(events, pairs, strict=True):
        item["metadata"]["resourceVersion"] = version
    events[2] |= {"lastTimestamp": None, "eventTime": "2026-12-01T12:00:00.900000Z"}
    found = read_events(events, read_trainjob(trainjob(), None, ()), [])
    assert [item.reason for item in found] == ["Scheduled", "Created", "Started"]


def test_a_job_that_others_made_says_what_it_lacks() -> None:
    job = read_trainjob(trainjob("hand-made", labels={}), None, ())
    lacks = missing(job, [pod(env=False, policy="OnFailure")])
    for part, text in zip(("did not make", "JAX_*", "OnFailure"), lacks, strict=True):
        assert part in text
    assert len(missing(job, [pod()])) == 1
    assert missing(read_trainjob(trainjob(), None, ()), [pod(policy="OnFailure")]) == []
