"""TrainJobs and JobSets as jobs."""

from typing import Any

import pytest
from fakes.cluster_objects import container, jobset, pod, trainjob
from kfp_jax.cluster.jobs import read_jobs, read_jobset, read_trainjob
from kfp_jax.status import Phase


def true(kind: str, reason: str = "", message: str = "") -> dict[str, str]:
    return {"type": kind, "status": "True", "reason": reason, "message": message}


UID = "uid-of-mnist-0a1b2c3d-1"
RUNS = {"containerStatuses": container(running={})}
PODS = [pod(0, **RUNS), pod(1, **RUNS)]


@pytest.mark.parametrize(
    ("trainjob_status", "jobset_status", "pods", "phase"),
    [
        pytest.param({}, None, [], Phase.STARTING, id="nothing-yet"),
        pytest.param({}, {}, [pod(0, **RUNS)], Phase.STARTING, id="not-all-run"),
        pytest.param({}, {}, PODS, Phase.RUNNING, id="all-run"),
        pytest.param({"conditions": [true("Complete")]}, None, [], Phase.SUCCEEDED, id="complete"),
        pytest.param({}, {"restarts": 1}, PODS, Phase.RESTARTING, id="pods-of-the-attempt-before"),
    ],
)
def test_a_trainjob_stands_as_the_launcher_sees_it(
    trainjob_status: dict[str, Any],
    jobset_status: dict[str, Any] | None,
    pods: list[dict[str, Any]],
    phase: Phase,
) -> None:
    sets = [] if jobset_status is None else [jobset(owner=UID, status=jobset_status)]
    (job,) = read_jobs([trainjob(status=trainjob_status)], sets, pods)
    assert (job.phase, job.nodes) == (phase, 2)
    assert job.restarts == (None if jobset_status is None else jobset_status.get("restarts", 0))


def test_a_job_that_ended_says_why_in_the_clusters_words() -> None:
    failed = true("Failed", "FailedJobs", "jobset failed due to one or more job failures")
    job = read_trainjob(trainjob(status={"conditions": [failed]}), None, ())
    assert (job.reason, job.message) == (failed["reason"], failed["message"])


def test_a_foreign_jobset_of_the_same_name_tells_nothing_of_a_trainjob() -> None:
    foreign = jobset(status={"restarts": 2, "conditions": [true("Completed")]})
    job = read_trainjob(trainjob(), foreign, ())
    assert (job.restarts, job.phase, job.reason) == (None, Phase.STARTING, "ForeignJobSet")
    assert len(read_jobs([trainjob()], [foreign], [])) == 2


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        pytest.param({}, Phase.STARTING, id="nothing-yet"),
        pytest.param(
            {"replicatedJobsStatus": [{"name": "w", "ready": 0, "succeeded": 0}]},
            Phase.STARTING,
            id="not-ready",
        ),
        pytest.param(
            {"replicatedJobsStatus": [{"name": "w", "ready": 1, "succeeded": 0}]},
            Phase.RUNNING,
            id="ready",
        ),
        pytest.param({"conditions": [true("Completed")]}, Phase.SUCCEEDED, id="completed"),
    ],
)
def test_a_jobset_without_our_names_stands_as_its_counts_say(
    status: dict[str, Any], phase: Phase
) -> None:
    job = read_jobset(jobset(step="w", container="main", status=status), ())
    assert (job.phase, job.backend, job.nodes) == (phase, "jobset", 2)


def test_labels_tell_whose_a_job_is() -> None:
    ours, theirs = trainjob(), trainjob("hand-made", labels={})
    other, job = read_jobs([ours, theirs], [], [])  # of one age, so by name
    assert (other.ours, other.run, other.name) == (False, "", "hand-made")
    assert (job.ours, job.run, job.study, job.attempt) == (True, "run-7", "lr-search", "1")


@pytest.mark.parametrize(
    ("manifest", "step", "container"),
    [
        pytest.param(jobset(), "node", "node", id="ours"),
        pytest.param(jobset(step="w", container="main"), "", "main", id="foreign"),
    ],
)
def test_where_a_job_trains(manifest: dict[str, Any], step: str, container: str) -> None:
    job = read_jobset(manifest, ())
    assert (job.step, job.container) == (step, container)
