from typing import Any

import pytest
from fakes.jobs import identity, job
from kfp_jax.errors import SpecError
from kfp_jax.manifests.jobset import jobset
from kfp_jax.spec import Limits, TrainSpec
from kfp_jax.status import FINAL_EXITS


def spec_of(spec: TrainSpec) -> Any:
    return jobset(spec, identity())["spec"]


def job_of(spec: TrainSpec) -> Any:
    return spec_of(spec)["replicatedJobs"][0]["template"]["spec"]


def node_patch(pod: dict[str, Any]) -> dict[str, Any]:
    template = {"spec": {"template": {"spec": pod}}}
    return {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": template}]}}}


def test_nothing_restarts_unless_it_is_asked_for() -> None:
    assert "failurePolicy" not in spec_of(job())
    assert job_of(job())["backoffLimit"] == 0
    assert job_of(job())["template"]["spec"]["restartPolicy"] == "Never"


def test_restarts_are_of_the_whole_set_and_not_for_what_would_end_the_same_way() -> None:
    made = spec_of(job(max_restarts=3))
    policy = made["failurePolicy"]
    assert (policy["maxRestarts"], policy["restartStrategy"]) == (3, "BlockingRecreate")
    assert policy["rules"][0]["onJobFailureReasons"][0] == "PodFailurePolicy"
    (rule,) = job_of(job(max_restarts=3))["podFailurePolicy"]["rules"]
    assert set(rule["onExitCodes"]["values"]) == FINAL_EXITS
    assert job_of(job(max_restarts=3))["backoffLimit"] == 0


@pytest.mark.parametrize(("deadline", "seconds"), [(0.0, None), (0.5, 301), (3600.0, 3900)])
def test_the_clusters_deadline_comes_after_the_launchers(
    deadline: float, seconds: int | None
) -> None:
    assert job_of(job(limits=Limits(deadline=deadline))).get("activeDeadlineSeconds") == seconds


def test_every_node_has_its_index() -> None:
    found = job_of(job(num_nodes=5))
    assert (found["completionMode"], found["completions"], found["parallelism"]) == (
        "Indexed",
        5,
        5,
    )


def test_a_queue_is_a_label() -> None:
    made = jobset(job(pods={"queue": "training"}), identity())
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "training"


def test_a_patch_reaches_any_field() -> None:
    patch = node_patch({"hostNetwork": True, "containers": [{"name": "node", "workingDir": "/w"}]})
    pod = job_of(job(pods={"patch": patch}))["template"]["spec"]
    assert pod["hostNetwork"] is True
    assert pod["containers"][0]["workingDir"] == "/w"
    assert pod["containers"][0]["command"][0] == "python"


def test_our_labels_win_over_those_of_a_patch() -> None:
    patch = {"template": {"metadata": {"labels": {"kfp-jax/job": "other", "team": "ml"}}}}
    made = jobset(job(pods={"patch": patch}), identity())["metadata"]["labels"]
    assert (made["kfp-jax/job"], made["team"]) == ("mnist-0a1b2c3d-1", "ml")


@pytest.mark.parametrize(
    ("patch", "named"),
    [
        pytest.param({"podGroupPolicy": {}}, "'podGroupPolicy' in patch", id="trainer-only"),
        pytest.param({"template": {"status": {}}}, "'status' in patch template", id="status"),
        pytest.param({"template": {"metadata": {"name": "x"}}}, "'name' in patch", id="name"),
        pytest.param(
            node_patch({"containers": [{"name": "node", "env": [{"name": "PROCESS_ID"}]}]}),
            "patch sets PROCESS_ID",
            id="reserved-variable",
        ),
        pytest.param(
            node_patch({"containers": [{"name": "trainer", "workingDir": "/work"}]}),
            "container 'trainer' without an image in replicated job 'node', beside node",
            id="no-such-container",
        ),
        pytest.param(
            node_patch({"containers": [{"name": "node", "$patch": "delete"}, {"name": "main"}]}),
            "no container 'node'.* it has main",
            id="container-renamed",
        ),
        pytest.param(
            {"template": {"spec": {"replicatedJobs": [{"name": "node", "replicas": 2}]}}},
            "2 replicas",
            id="replicas",
        ),
        pytest.param(
            {"template": {"spec": {"network": {"subdomain": "x"}}}}, "subdomain", id="subdomain"
        ),
        pytest.param(
            {"template": {"spec": {"network": {"enableDNSHostnames": False}}}},
            "enableDNSHostnames",
            id="no-host-names",
        ),
    ],
)
def test_a_patch_that_breaks_the_job_is_refused(patch: dict[str, Any], named: str) -> None:
    with pytest.raises(SpecError, match=named):
        jobset(job(pods={"patch": patch}), identity())


def test_a_jobset_has_no_runtime() -> None:
    with pytest.raises(SpecError, match="runtime jax-distributed belongs to a TrainJob"):
        jobset(job(pods={"runtime": "jax-distributed"}), identity())


def test_a_name_that_is_too_long_is_refused() -> None:
    jobset(job(), identity(name="a" * 48))
    with pytest.raises(SpecError, match="room for 48"):
        jobset(job(), identity(name="a" * 49))
