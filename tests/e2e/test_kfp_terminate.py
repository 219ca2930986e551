"""Terminate in the KFP UI, at a task that trains: with our annotation on its pod, and without."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2e.argo import KILL_COMMAND, terminate
from e2e.jobs import left_in
from e2e.kfp_runs import KfpRun, compiled_here
from e2e.places import Place, kubectl, until
from e2e.stores import ClusterStore
from fakes.kfp.scope import Ended, State
from kfp import dsl
from kfp_jax.components import cleanup, train
from kfp_jax.kube.resources import PODS

pytestmark = pytest.mark.timeout(700)


@dsl.pipeline(name="endless")
def endless() -> None:
    train(program="kfp_jax_runtime.mnist", parameters={"epochs": 10_000}, num_nodes=2)


@contextmanager
def training(
    place: Place, store: ClusterStore, folder: Path
) -> Iterator[tuple[KfpRun, list[Ended]]]:
    """Yields a run of one task whose job has nodes, and later how it ended."""
    run = KfpRun(place, compiled_here(endless, folder), store)
    ended: list[Ended] = []
    thread = threading.Thread(target=lambda: ended.append(run.start()))
    thread.start()
    until(
        "a node runs",
        lambda: (
            ended
            or any(
                pod["status"]["phase"] == "Running"
                for pod in place.pods("jobset.sigs.k8s.io/jobset-name")
            )
        ),
    )
    assert not ended, ended[0].why
    yield run, ended
    thread.join(60)


def jobs_in(place: Place) -> list[str]:
    """Returns what is left of jobs; the tasks' own pods stay."""
    return [name for name in left_in(place) if "system-container-impl" not in name]


def test_with_the_annotation_the_step_sees_its_job_end_and_says_so(
    place: Place, store: ClusterStore, tmp_path: Path
) -> None:
    with training(place, store, tmp_path) as (run, ended):
        pod = run.done[0].pod
        annotations = place.get(PODS, pod)["metadata"]["annotations"]
        assert "kill -$0" in annotations[KILL_COMMAND]
        terminate(place, pod)
    assert ended[0].state is State.FAILED
    assert "cancelled" in ended[0].why.lower()
    # KFP's launcher outlived it.
    assert "failed to execute component" in ended[0].why
    until("nothing of the job is left", lambda: not jobs_in(place), seconds=60)


def test_without_it_the_second_that_is_left_or_a_cleanup_ends_the_job(
    place: Place, store: ClusterStore, tmp_path: Path
) -> None:
    with training(place, store, tmp_path) as (run, ended):
        # As where the account may not annotate its pod.
        pod = run.done[0].pod
        kubectl("annotate", "pod", "-n", place.namespace, pod, f"{KILL_COMMAND}-")
        terminate(place, pod)
    assert ended[0].state is State.FAILED
    # KFP's launcher died with it, and with that whatever else the step would have done.
    assert "failed to execute component" not in ended[0].why
    if jobs_in(place):  # on a busy machine a second may be too short for one request

        @dsl.pipeline(name="cleaned")
        def cleaned() -> None:
            cleanup(run_id=run.run.id)

        after = KfpRun(place, compiled_here(cleaned, tmp_path), store).start()
        assert after.state is State.SUCCEEDED, after.why
    until("the job goes", lambda: not jobs_in(place), seconds=60)
