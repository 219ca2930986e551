"""What of an ended run is removed."""

from datetime import timedelta

import pytest
from fakes.cluster_objects import NOW, at, trainjob
from kfp_jax.cluster.ending import judge, orphans
from kfp_jax.cluster.jobs import read_trainjob

MINUTE = timedelta(minutes=1)
RENEWED = "kfp-jax/renewed-at"


@pytest.mark.parametrize(
    ("created", "renewed", "followed", "removed"),
    [
        pytest.param(60, 1, False, False, id="its-launcher-renews"),
        pytest.param(60, 5, False, True, id="its-launcher-is-silent"),
        pytest.param(60, None, False, True, id="never-renewed-and-old"),
        pytest.param(1, None, False, False, id="just-made"),
        pytest.param(60, 1, True, True, id="renewed-but-the-run-is-over"),
    ],
)
def test_a_job_is_left_when_nobody_follows_it(
    created: int, renewed: int | None, followed: bool, removed: bool
) -> None:
    annotations = {RENEWED: at(renewed * MINUTE)} if renewed else {}
    job = read_trainjob(trainjob(created=at(created * MINUTE), annotations=annotations), None)
    assert judge(job, NOW, followed=followed).removed is removed


def test_a_runtime_without_a_job_is_left_when_no_job_can_come() -> None:
    made = {"old": at(10 * MINUTE), "new": at(timedelta(seconds=5)), "kept": at(10 * MINUTE)}
    runtimes = [
        {"metadata": {"name": name, "creationTimestamp": when}} for name, when in made.items()
    ]
    assert orphans(runtimes, {"kept"}, NOW, followed=False) == ["old"]
    assert orphans(runtimes, {"kept"}, NOW, followed=True) == ["old", "new"]
