from pathlib import Path

import pytest
from contract.backend_contract import BackendContract
from kfp_jax.backends.base import Backend
from kfp_jax.backends.local import LocalBackend
from kfp_jax.pods import Pods
from kfp_jax.spec import TrainSpec


class TestLocalBackend(BackendContract):
    @pytest.fixture
    def backend(self) -> Backend:
        return LocalBackend(grace=2.0)


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        pytest.param(Pods(), [], id="nothing"),
        pytest.param(Pods(image="a", queue="q"), ["image, queue will not be used"], id="named"),
    ],
)
def test_what_only_pods_have_is_said_not_to_be_used(
    pods: Pods, said: list[str], tmp_path: Path
) -> None:
    spec = TrainSpec(name="t", command=("true",), output_uri=str(tmp_path), pods=pods)
    warnings = LocalBackend().validate(spec)
    assert len(warnings) == len(said)
    assert all(text in warning for text, warning in zip(said, warnings, strict=True))
