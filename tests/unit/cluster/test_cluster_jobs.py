"""TrainJobs and JobSets as jobs."""

from typing import Any

import pytest
from fakes.cluster_objects import RUNNING, jobset, trainjob
from kfp_jax.cluster.jobs import read_jobs, read_jobset, read_trainjob
from kfp_jax.status import Phase


def true(kind: str, reason: str = "", message: str = "") -> dict[str, str]:
    return {"type": kind, "status": "True", "reason": reason, "message": message}


def starting() -> dict[str, Any]:
    return {"jobsStatus": [{"name": "node", "ready": 0, "active": 1}]}


@pytest.mark.parametrize(
    ("manifest", "phase"),
    [
        pytest.param(trainjob(status={}), Phase.PENDING, id="nothing-yet"),
        pytest.param(trainjob(status=starting()), Phase.STARTING, id="pods-but-not-all-ready"),
        pytest.param(trainjob(status=RUNNING), Phase.RUNNING, id="all-ready"),
        pytest.param(trainjob(suspend=True, status={}), Phase.QUEUED, id="suspended"),
        pytest.param(
            trainjob(status={"conditions": [{"type": "Suspended", "status": "False"}], **RUNNING}),
            Phase.RUNNING,
            id="resumed-with-the-old-condition-last",
        ),
        pytest.param(
            trainjob(status={"conditions": [true("Complete")], **RUNNING}),
            Phase.SUCCEEDED,
            id="complete",
        ),
        pytest.param(
            trainjob(suspend=True, status={"conditions": [true("Failed")]}),
            Phase.FAILED,
            id="failed-while-suspended",
        ),
    ],
)
def test_the_phase_of_a_trainjob(manifest: dict[str, Any], phase: Phase) -> None:
    assert read_trainjob(manifest, None).phase is phase


def test_a_job_that_ended_says_why_in_the_clusters_words() -> None:
    failed = true("Failed", "FailedJobs", "jobset failed due to one or more job failures")
    job = read_trainjob(trainjob(status={"conditions": [failed]}), None)
    assert (job.reason, job.message) == (failed["reason"], failed["message"])


def test_a_trainjobs_jobset_tells_restarts_and_is_no_job_of_its_own() -> None:
    own = jobset(owner="uid-of-mnist-0a1b2c3d-1", status={"restarts": 2})
    (job,) = read_jobs([trainjob(status=starting())], [own])
    assert (job.restarts, job.phase, job.nodes) == (2, Phase.RESTARTING, 2)


def test_a_foreign_jobset_of_the_same_name_tells_nothing_of_a_trainjob() -> None:
    foreign = jobset(status={"restarts": 2, "conditions": [true("Completed")]})
    job = read_trainjob(trainjob(), foreign)
    assert (job.restarts, job.phase) == (None, Phase.RUNNING)
    assert len(read_jobs([trainjob()], [foreign])) == 2


@pytest.mark.parametrize(
    ("manifest", "phase"),
    [
        pytest.param(jobset(), Phase.PENDING, id="nothing-yet"),
        pytest.param(jobset(suspend=True), Phase.QUEUED, id="suspended"),
        pytest.param(
            jobset(status={"replicatedJobsStatus": [{"name": "node", "ready": 1}]}),
            Phase.RUNNING,
            id="ready",
        ),
        pytest.param(
            jobset(step="w", status={"replicatedJobsStatus": [{"name": "w", "ready": 1}]}),
            Phase.RUNNING,
            id="ready-under-another-name",
        ),
        pytest.param(
            jobset(status={"conditions": [true("Completed")]}), Phase.SUCCEEDED, id="completed"
        ),
    ],
)
def test_the_phase_of_a_jobset(manifest: dict[str, Any], phase: Phase) -> None:
    job = read_jobset(manifest)
    assert (job.phase, job.backend, job.nodes) == (phase, "jobset", 2)


def test_labels_tell_whose_a_job_is() -> None:
    ours, theirs = trainjob(), trainjob("hand-made", labels={})
    other, job = read_jobs([ours, theirs], [])  # of one age, so by name
    assert (other.ours, other.run, other.name) == (False, "", "hand-made")
    assert (job.ours, job.run, job.task, job.attempt) == (True, "run-7", "train", "1")


@pytest.mark.parametrize(
    ("manifest", "step", "container"),
    [
        pytest.param(jobset(), "node", "node", id="ours"),
        pytest.param(jobset(step="w", container="main"), "", "main", id="foreign"),
    ],
)
def test_where_a_job_trains(manifest: dict[str, Any], step: str, container: str) -> None:
    job = read_jobset(manifest)
    assert (job.step, job.container) == (step, container)
