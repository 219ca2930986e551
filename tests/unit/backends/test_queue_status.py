"""What Kueue's Workload says of a job that is queued. Workloads as Kueue 0.19 writes them."""

from typing import Any

import pytest
from kfp_jax.backends.queue_status import explained_by_queue
from kfp_jax.status import JobStatus, Phase

QUEUED = JobStatus(Phase.QUEUED, "Suspended", "queue team has not admitted it")
NO_ROOM = (
    "couldn't assign flavors to pod set node: insufficient unused quota for cpu in flavor a, 1 more"
    " needed"
)
PREEMPTED = (
    "Preempted to accommodate a workload (UID: 1, JobUID: 2) due to prioritization in the"
    " ClusterQueue"
)


def condition(kind: str, value: str, reason: str, message: str) -> dict[str, Any]:
    return {"type": kind, "status": value, "reason": reason, "message": message}


def workload(*conditions: dict[str, Any], created: str = "2026-12-01T00:00:00Z") -> Any:
    return {"metadata": {"creationTimestamp": created}, "status": {"conditions": conditions}}


WAITS = condition("QuotaReserved", "False", "Pending", NO_ROOM)
EVICTED = condition("Evicted", "True", "Preempted", PREEMPTED)
NO_QUEUE = condition("QuotaReserved", "False", "Inadmissible", "LocalQueue team doesn't exist")


@pytest.mark.parametrize(
    ("conditions", "reason", "message"),
    [
        pytest.param((), "Suspended", "queue team has not admitted it", id="nothing-yet"),
        pytest.param((WAITS,), "Pending", f"it waits in queue team: {NO_ROOM}", id="no-room"),
        pytest.param(
            (NO_QUEUE,),
            "Inadmissible",
            "it waits in queue team: LocalQueue team doesn't exist",
            id="no-such-queue",
        ),
        pytest.param(
            (WAITS, EVICTED),
            "Preempted",
            f"it was preempted in queue team: {PREEMPTED}: {NO_ROOM}",
            id="preempted",
        ),
        pytest.param(
            (condition("QuotaReserved", "False", "Pending", PREEMPTED), EVICTED),
            "Preempted",
            f"it was preempted in queue team: {PREEMPTED}",
            id="said-twice",
        ),
        pytest.param(
            (condition("Evicted", "True", "SomethingNew", "for a reason."),),
            "SomethingNew",
            "it was put back in queue team: for a reason",
            id="a-word-of-tomorrow",
        ),
        pytest.param(
            (
                condition("Evicted", "False", "QuotaReserved", PREEMPTED),
                condition("QuotaReserved", "True", "QuotaReserved", "reserved"),
            ),
            "Suspended",
            "queue team has not admitted it",
            id="about-to-start",
        ),
    ],
)
def test_a_queued_job_says_what_it_waits_for(
    conditions: tuple[dict[str, Any], ...], reason: str, message: str
) -> None:
    found = explained_by_queue(QUEUED, "team", [workload(*conditions)])
    assert found == JobStatus(Phase.QUEUED, reason, message)


def test_the_newest_workload_holds() -> None:
    older = workload(EVICTED)
    newer = workload(WAITS, created="2026-12-01T00:00:09Z")
    assert explained_by_queue(QUEUED, "team", [newer, older]).reason == "Pending"


def test_a_job_that_no_queue_holds_back_stays_as_it_is() -> None:
    running = JobStatus(Phase.RUNNING)
    assert explained_by_queue(running, "team", [workload(EVICTED)]) == running
    assert explained_by_queue(QUEUED, "", [workload(EVICTED)]) == QUEUED
    assert explained_by_queue(QUEUED, "team", []) == QUEUED
