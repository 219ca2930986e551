import pytest
from fakes.cluster_states import (
    disrupted,
    ended,
    moment,
    pod,
    running,
    unschedulable,
    waiting,
)
from kfp_jax.backends.pod_status import Pod, reduce_pods, seconds
from kfp_jax.status import DELETED, INIT_FAILED, ProcessStatus

ROOM = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


def reduced(*pods: Pod, failed: bool = True, restart: int = 0) -> tuple[ProcessStatus, ...]:
    return reduce_pods(pods, nodes=2, restart=restart, failed=failed)


def at(second: int) -> float:
    return seconds(moment(second))


@pytest.mark.parametrize(
    ("status", "alive", "code", "failed_at", "reason", "message"),
    [
        pytest.param(running(), True, None, None, "", "", id="running"),
        pytest.param(ended(0), False, 0, None, "", "", id="ended-well"),
        pytest.param(ended(3, 7), False, 3, 7, "", "", id="exit"),
        pytest.param(
            ended(137, 7, "OOMKilled"), False, 137, 7, "OOMKilled", "pod j-node-0-0-0", id="oom"
        ),
        pytest.param(
            ended(128, 7, "StartError"), False, 128, 7, "StartError", "", id="bad-command"
        ),
        pytest.param(
            ended(137, 7, reason="Error", message="The node was low on memory.")
            | {"reason": "Evicted"},
            False, 137, 7, "Evicted", "The node was low on memory", id="evicted",
        ),
        pytest.param(
            {
                "phase": "Failed",
                "reason": "Evicted",
                "message": "The node had disk pressure.",
                "conditions": disrupted("TerminationByKubelet", at=4),
            },
            False, None, 4, "Evicted", "The node had disk pressure", id="evicted-before-it-ran",
        ),
        pytest.param(
            running() | {"conditions": disrupted("DeletionByTaintManager", "no heartbeat")},
            True, None, 4, "DeletionByTaintManager", "no heartbeat", id="machine-lost",
        ),
        pytest.param(
            ended(143, 7, conditions=disrupted("PreemptionByScheduler", at=5)),
            False, 143, 7, "PreemptionByScheduler", "", id="preempted",
        ),
        pytest.param(
            waiting("ErrImagePull", "not found"),
            False, None, None, "ImagePullBackOff", "not found", id="image",
        ),
        pytest.param(
            waiting("ImagePullBackOff", "Back-off pulling\n image"),
            False, None, None, "ImagePullBackOff", "Back-off pulling image", id="image-later",
        ),
        pytest.param(
            waiting("ContainerCreating"), False, None, None, "", "", id="on-its-way"
        ),
        pytest.param(
            waiting("CreateContainerConfigError", 'secret "s" not found'),
            False, None, None, "CreateContainerConfigError", 'secret "s" not found', id="secret",
        ),
        pytest.param(
            unschedulable(ROOM), False, None, None, "Unschedulable", ROOM[:-1], id="no-room"
        ),
        pytest.param(
            {
                "phase": "Pending",
                "initContainerStatuses": [
                    {"name": "fetch", "state": {"terminated": {"exitCode": 2}}}
                ],
            },
            False, None, None, INIT_FAILED, "fetch exited with code 2", id="init",
        ),
        pytest.param(
            {
                "phase": "Running",
                "containerStatuses": [
                    {
                        "name": "node",
                        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                        "lastState": {"terminated": {"exitCode": 1, "finishedAt": moment(9)}},
                    }
                ],
            },
            False, 1, 9, "CrashLoopBackOff", "back-off", id="crash-loop",
        ),
        pytest.param(
            {"phase": "Running", "containerStatuses": [
                {"name": "sidecar", "state": {"terminated": {"exitCode": 1}}},
                {"name": "node", "state": {"running": {}}},
            ]},
            True, None, None, "", "", id="a-sidecar-counts-for-nothing",
        ),
    ],
)  # fmt: skip
def test_what_a_pod_tells(
    status: dict[str, object],
    alive: bool,
    code: int | None,
    failed_at: int | None,
    reason: str,
    message: str,
) -> None:
    found = reduced(pod(0, status), pod(1, running()))[0]
    moment = None if failed_at is None else at(failed_at)
    assert found == ProcessStatus(0, alive, code, moment, False, reason, message)


def test_a_pod_without_memory_is_told_with_its_limit() -> None:
    killed = pod(0, ended(137, 7, "OOMKilled"))
    node = {"name": "node", "resources": {"limits": {"memory": "2Gi"}}}
    manifest = {**killed.manifest, "spec": {"containers": [{"name": "sidecar"}, node]}}
    assert reduced(Pod(manifest))[0].message == "pod j-node-0-0-0, limit 2Gi"


def test_the_first_to_fail_is_found_among_victims() -> None:
    found = reduced(pod(0, ended(134, 9)), pod(1, ended(1, 8)))
    assert [item.failed_at for item in found] == [at(9), at(8)]


@pytest.mark.parametrize(
    ("status", "deleted_at", "failed"),
    [
        pytest.param(ended(143, 9), 8, False, id="ended-after"),
        pytest.param(ended(137, 8), 8, False, id="told-in-that-second"),
        pytest.param(ended(75, 8), 8, False, id="saved-in-that-second"),
        pytest.param(ended(1, 8), 8, True, id="failed-in-that-second"),
        pytest.param(ended(143, 7), 8, True, id="ended-before"),
        pytest.param(running(), 8, False, id="still-leaving"),
    ],
)
def test_a_pod_that_was_deleted_did_not_fail_by_itself(
    status: dict[str, object], deleted_at: int, failed: bool
) -> None:
    found = reduced(pod(0, status, deleted_at=deleted_at), pod(1, ended(1, 7)))
    assert (found[0].failed_at is not None) is failed


def test_the_kubelets_last_word_does_not_hide_when_the_pod_was_told() -> None:
    told = pod(0, running(), deleted_at=8)
    last = pod(0, ended(1, 10), deleted_at=11, grace=0).manifest
    found = reduced(Pod.seen(last, gone=True, before=told), pod(1, ended(3, 7)))
    assert found[0].failed_at is None
    # Where that alone was seen, an end that follows from being told is taken for one.
    for code, failed in ((137, False), (143, False), (1, True)):
        alone = pod(0, ended(code, 10), deleted_at=11, grace=0)
        assert (reduced(alone)[0].reason != DELETED) is failed


def test_without_another_failure_the_pod_deleted_first_is_the_cause() -> None:
    pods = (
        pod(0, ended(143, 12), deleted_at=11, gone=True),
        pod(1, running(), deleted_at=10, gone=True),
    )
    found = reduced(*pods)
    assert [(item.failed_at, item.reason) for item in found] == [(None, ""), (at(10), DELETED)]
    assert [item.failed_at for item in reduced(*pods, failed=False)] == [None, None]


def test_only_the_newest_attempt_counts() -> None:
    found = reduced(pod(0, ended(1)), pod(1, ended(1)), pod(1, running(), restart=1), restart=1)
    assert found == (ProcessStatus(0, alive=False), ProcessStatus(1, alive=True))


def test_pods_that_train_nothing_are_left_out() -> None:
    other = pod(0, ended(1))
    other.manifest["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = "initializer"
    assert other.process is None
    assert reduced(other) == (ProcessStatus(0, alive=False), ProcessStatus(1, alive=False))
