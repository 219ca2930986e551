from typing import Any

import pytest
from kfp_jax.backends.event_status import explained
from kfp_jax.status import (
    JOB_REFUSED,
    POD_REFUSED,
    QUOTA,
    WEBHOOK_DOWN,
    JobStatus,
    Phase,
)

QUOTA_TEXT = 'pods "j-node-0-0" is forbidden: exceeded quota: q, requested: cpu=1, used: cpu=4'
STARTING = JobStatus(Phase.STARTING)


def event(reason: str, message: str = "m.", about: str = "j", **more: Any) -> dict[str, Any]:
    moment = {} if more else {"lastTimestamp": "2026-12-01T00:00:01Z"}
    return {
        "reason": reason,
        "message": message,
        "involvedObject": {"name": about},
        **moment,
        **more,
    }


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        pytest.param([], "", id="none"),
        pytest.param([event("FailedCreate", QUOTA_TEXT, "j-node-0")], QUOTA, id="quota"),
        pytest.param(
            [event("FailedCreate", "violates PodSecurity restricted", "j-node-0")], POD_REFUSED,
            id="pod-security",
        ),
        pytest.param([event("TrainJobResourcesCreationFailed")], JOB_REFUSED, id="no-jobset"),
        pytest.param([event("JobCreationFailed")], JOB_REFUSED, id="no-job"),
        pytest.param(
            [event("TrainJobResourcesCreationFailed", 'failed calling webhook "vjobset.kb.io"')],
            WEBHOOK_DOWN, id="webhook-down",
        ),
        pytest.param([event("FailedMount", about="j-node-0-0-x")], "FailedMount", id="volume"),
        pytest.param([event("FailedCreate", about="jj-node-0")], "", id="another-job"),
        pytest.param([event("BackOff")], "", id="what-the-pod-tells-itself"),
        pytest.param(
            [
                event("FailedMount", eventTime="2026-12-01T00:00:03.000001Z", lastTimestamp=None),
                event("FailedCreate", series={"lastObservedTime": "2026-12-01T00:00:09Z"}),
                event("JobCreationFailed"),
            ],
            POD_REFUSED, id="the-newest-by-whatever-time-it-has",
        ),
    ],
)  # fmt: skip
def test_events_explain_a_job_that_does_not_start(
    events: list[dict[str, Any]], reason: str
) -> None:
    assert explained(STARTING, "j", events).reason == reason


@pytest.mark.parametrize(
    "status", [JobStatus(Phase.RUNNING), JobStatus(Phase.STARTING, "Unschedulable", "no room")]
)
def test_a_job_that_runs_or_tells_itself_is_left_as_it_is(status: JobStatus) -> None:
    assert explained(status, "j", [event("JobCreationFailed")]) is status
