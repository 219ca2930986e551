import pytest
from fakes.cluster_states import (
    condition,
    ended,
    jobset,
    outlived,
    pod,
    running,
    trainjob,
    unschedulable,
    waiting,
)
from kfp_jax.backends.jobset_status import reduce_jobset
from kfp_jax.backends.pod_status import Pod
from kfp_jax.backends.trainjob_status import reduce_trainjob
from kfp_jax.status import FAILING, FOREIGN_JOBSET, SIDECAR, Phase

BOTH_RUN = (pod(0, running()), pod(1, running()))
DONE = condition("Completed", "AllJobsCompleted")
AGAIN = {"rules": [{"action": "RestartJobSetAndIgnoreMaxRestarts"}]}
BROKEN = condition("Failed", "FailedJobs", "jobset failed due to one or more job failures.")


@pytest.mark.parametrize(
    ("state", "pods", "phase", "reason"),
    [
        pytest.param(jobset(), (), Phase.STARTING, "", id="no-pods-yet"),
        pytest.param(jobset(), BOTH_RUN, Phase.RUNNING, "", id="all-run"),
        pytest.param(jobset(), BOTH_RUN[:1], Phase.STARTING, "", id="one-runs"),
        pytest.param(
            jobset(), (pod(0, ended(0)), pod(1, running())), Phase.RUNNING, "", id="one-is-done"
        ),
        pytest.param(
            jobset(), (BOTH_RUN[0], pod(1, ended(1))), Phase.RUNNING, FAILING, id="one-has-failed"
        ),
        pytest.param(
            jobset(), (pod(0, outlived("proxy")), pod(1, ended(0))), Phase.RUNNING, SIDECAR,
            id="all-are-done-but-a-sidecar",
        ),
        pytest.param(
            jobset(failurePolicy={"maxRestarts": 1}), (BOTH_RUN[0], pod(1, ended(1))),
            Phase.STARTING, "", id="one-has-failed-and-all-start-again",
        ),
        pytest.param(
            jobset(failurePolicy=AGAIN), (BOTH_RUN[0], pod(1, ended(1))),
            Phase.STARTING, "", id="one-has-failed-and-a-rule-starts-all-again",
        ),
        pytest.param(
            jobset(failurePolicy={"maxRestarts": 1}, restarts=1),
            (pod(0, running(), restart=1), pod(1, ended(1), restart=1)),
            Phase.RUNNING, FAILING, id="one-has-failed-in-the-last-attempt",
        ),
        pytest.param(
            jobset(job={"backoffLimit": 6}), (BOTH_RUN[0], pod(1, ended(1))),
            Phase.STARTING, "", id="one-has-failed-and-starts-again-alone",
        ),
        pytest.param(
            jobset(job={"podFailurePolicy": {"rules": [{"action": "Ignore"}]}}),
            (BOTH_RUN[0], pod(1, ended(1))), Phase.STARTING, "", id="one-has-failed-in-a-drain",
        ),
        pytest.param(
            jobset(), (BOTH_RUN[0], pod(1, ended(143, at=9), deleted_at=8)),
            Phase.STARTING, "", id="one-was-told-to-leave",
        ),
        pytest.param(
            jobset(),
            (BOTH_RUN[0], pod(1, unschedulable("no room"))),
            Phase.STARTING, "Unschedulable", id="no-room",
        ),
        pytest.param(
            jobset(),
            (pod(0, waiting("ErrImagePull")), pod(1, waiting("ImagePullBackOff"))),
            Phase.STARTING, "ImagePullBackOff", id="no-image",
        ),
        pytest.param(jobset(suspend=True), (), Phase.QUEUED, "Suspended", id="suspended"),
        pytest.param(
            jobset(condition("Suspended")), BOTH_RUN, Phase.QUEUED, "Suspended", id="stopping"
        ),
        pytest.param(
            jobset(condition("Suspended", status="False")), BOTH_RUN, Phase.RUNNING, "", id="on"
        ),
        pytest.param(
            jobset(restarts=1), (pod(0, ended(1)),), Phase.RESTARTING, "", id="between-attempts"
        ),
        pytest.param(
            jobset(restarts=1), (pod(0, restart=1),), Phase.STARTING, "", id="next-attempt"
        ),
        pytest.param(jobset(DONE), (pod(0, ended(0)),), Phase.SUCCEEDED, "", id="done"),
        pytest.param(jobset(BROKEN), (pod(0, ended(1)),), Phase.FAILED, "FailedJobs", id="failed"),
        pytest.param(
            jobset(), (pod(0, running(), jobset="another"),) * 2, Phase.STARTING, "",
            id="pods-of-an-earlier-jobset",
        ),
    ],
)  # fmt: skip
def test_a_jobset(
    state: dict[str, object], pods: tuple[Pod, ...], phase: Phase, reason: str
) -> None:
    status = reduce_jobset(state, pods)
    assert (status.phase, status.reason) == (phase, reason)
    assert len(status.processes) == 2


@pytest.mark.parametrize(
    ("job", "below", "phase", "reason"),
    [
        pytest.param(trainjob(), None, Phase.STARTING, "", id="created"),
        pytest.param(trainjob(suspend=True), None, Phase.QUEUED, "Suspended", id="queued"),
        pytest.param(
            trainjob(condition("Suspended")), jobset(), Phase.QUEUED, "Suspended", id="being-queued"
        ),
        # The printed state of a resumed job is the last listed condition, which is not true.
        pytest.param(
            trainjob(condition("Suspended", "Resumed", status="False")), jobset(),
            Phase.RUNNING, "", id="resumed",
        ),
        pytest.param(trainjob(), jobset(), Phase.RUNNING, "", id="running"),
        pytest.param(trainjob(), jobset(DONE), Phase.SUCCEEDED, "", id="the-jobset-is-ahead"),
        pytest.param(
            trainjob(condition("Complete", "AllJobsCompleted")), jobset(DONE),
            Phase.SUCCEEDED, "", id="complete",
        ),
        pytest.param(
            trainjob(condition("Complete", "AllJobsCompleted")), jobset(DONE, owner="another"),
            Phase.STARTING, FOREIGN_JOBSET, id="the-end-of-an-earlier-jobset",
        ),
        pytest.param(
            trainjob(condition("Failed", "FailedJobs")), jobset(BROKEN, owner=""),
            Phase.STARTING, FOREIGN_JOBSET, id="the-end-of-somebody-elses-jobset",
        ),
        pytest.param(
            trainjob(condition("Complete", "AllJobsCompleted")), jobset(),
            Phase.RUNNING, "", id="its-own-jobset-does-not-say-so",
        ),
        pytest.param(
            trainjob(condition("Failed", "DeadlineExceeded", "too long.")), None,
            Phase.FAILED, "DeadlineExceeded", id="deadline",
        ),
        pytest.param(
            trainjob(condition("Failed", "TrainingRuntimeNotSupported")), None,
            Phase.FAILED, "TrainingRuntimeNotSupported", id="runtime",
        ),
        pytest.param(
            trainjob(condition("Failed", "FailedJobs")), jobset(BROKEN),
            Phase.FAILED, "FailedJobs", id="failed",
        ),
        pytest.param(
            trainjob(condition("Complete", "AllJobsCompleted")), None,
            Phase.SUCCEEDED, "", id="its-jobset-was-removed-after-the-end",
        ),
    ],
)  # fmt: skip
def test_a_trainjob(
    job: dict[str, object], below: dict[str, object] | None, phase: Phase, reason: str
) -> None:
    status = reduce_trainjob(job, below, BOTH_RUN)
    assert (status.phase, status.reason) == (phase, reason)
    assert len(status.processes) == 2


def test_what_holds_several_up_is_told_once() -> None:
    status = reduce_jobset(jobset(), [pod(i, unschedulable("no room.")) for i in (0, 1)])
    assert status.message == "2 processes: no room"
