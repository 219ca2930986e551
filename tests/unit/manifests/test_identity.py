import pytest
from fakes.jobs import WORKFLOW, identity, job
from kfp_jax.errors import SpecError
from kfp_jax.manifests.identity import check_name, labels, metadata
from kfp_jax.names import job_name


@pytest.mark.parametrize(
    ("nodes", "coordinator", "limit"),
    [
        pytest.param({"node": 2}, False, 48, id="up-to-10-nodes"),
        pytest.param({"node": 10}, False, 48, id="10-nodes"),
        pytest.param({"node": 11}, False, 47, id="11-nodes"),
        pytest.param({"node": 1000}, False, 46, id="1000-nodes"),
        pytest.param({"node": 1001}, False, 45, id="1001-nodes"),
        pytest.param({"node": 2, "dataset-initializer": 1}, False, 33, id="initializer"),
        pytest.param({"node": 2}, True, 26, id="coordinator"),
    ],
)
def test_the_longest_name_is_the_one_whose_pods_can_be_named(
    nodes: dict[str, int], coordinator: bool, limit: int
) -> None:
    check_name("a" * limit, nodes, coordinator=coordinator)
    with pytest.raises(SpecError, match=f"has {limit + 1} characters.* room for {limit};"):
        check_name("a" * (limit + 1), nodes, coordinator=coordinator)


def test_our_own_names_fit_every_stock_runtime() -> None:
    name = job_name("x" * 100, "identity", 999)
    check_name(name, {"node": 10_000, "dataset-initializer": 1}, coordinator=False)


@pytest.mark.parametrize("name", ["", "Mnist", "1mnist", "mnist-", "a.b", "a_b"])
def test_a_name_that_dns_does_not_take_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match="not valid"):
        check_name(name, {"node": 1}, coordinator=False)


def test_free_text_makes_valid_labels() -> None:
    found = labels(identity(labels={"trial": 'lr="1e-3/adam β"', "task": "x" * 80, "study": ""}))
    assert found["kfp-jax/trial"] == "lr-1e-3-adam"
    assert len(found["kfp-jax/task"]) == 63
    assert "kfp-jax/study" not in found


def test_a_spec_is_known_again_by_its_hash() -> None:
    one, two = (
        metadata(identity(), job(parameters={"seed": seed}))["annotations"]["kfp-jax/spec-hash"]
        for seed in (1, 2)
    )
    assert one == job(parameters={"seed": 1}).hash()
    assert one != two


def test_a_job_goes_with_its_owner_and_does_not_hold_it_back() -> None:
    assert "ownerReferences" not in metadata(identity(), job())
    (reference,) = metadata(identity(owner=WORKFLOW), job())["ownerReferences"]
    assert (reference["kind"], reference["uid"]) == ("Workflow", WORKFLOW.uid)
    assert reference["blockOwnerDeletion"] is False
