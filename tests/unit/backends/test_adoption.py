from typing import Any

import pytest
from fakes.jobs import WORKFLOW, identity, job
from kfp_jax.backends.adoption import Verdict, judge
from kfp_jax.manifests.identity import MANAGED_BY, Owner, metadata
from kfp_jax.status import Phase

ME = identity(owner=WORKFLOW)
SPEC = job()
OTHER_RUN = Owner("argoproj.io/v1alpha1", "Workflow", "mnist-zzzzz", "another-uid")


def made(who: Any = ME, spec: Any = SPEC, **more: Any) -> dict[str, Any]:
    return {"metadata": metadata(who, spec) | more}


@pytest.mark.parametrize(
    ("found", "phase", "verdict"),
    [
        pytest.param(made(), Phase.RUNNING, Verdict.ADOPT, id="ours-runs"),
        pytest.param(made(), Phase.QUEUED, Verdict.ADOPT, id="ours-waits"),
        pytest.param(made(), Phase.SUCCEEDED, Verdict.ADOPT, id="ours-has-done-its-work"),
        pytest.param(made(), Phase.FAILED, Verdict.NEXT, id="ours-has-failed"),
        pytest.param(
            made(spec=job(num_nodes=3)), Phase.RUNNING, Verdict.BUSY, id="another-spec-runs"
        ),
        pytest.param(
            made(spec=job(num_nodes=3)), Phase.SUCCEEDED, Verdict.NEXT, id="another-spec-is-done"
        ),
        pytest.param(
            made(deletionTimestamp="2026-12-01T00:00:00Z"), Phase.RUNNING, Verdict.LEAVING,
            id="ours-is-being-deleted",
        ),
        pytest.param(
            made(identity(owner=OTHER_RUN)), Phase.RUNNING, Verdict.FOREIGN, id="of-another-run"
        ),
        pytest.param(made(identity()), Phase.RUNNING, Verdict.FOREIGN, id="of-no-run"),
        pytest.param(
            made(labels={MANAGED_BY: "kfp-jax"}), Phase.FAILED, Verdict.FOREIGN, id="another-name"
        ),
        pytest.param({"metadata": {"name": ME.name}}, Phase.FAILED, Verdict.FOREIGN, id="foreign"),
    ],
)  # fmt: skip
def test_what_follows_from_a_name_that_is_taken(
    found: dict[str, Any], phase: Phase, verdict: Verdict
) -> None:
    assert judge(found, phase, ME, SPEC.hash()) is verdict
