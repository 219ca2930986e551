import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.backend_contract import BackendContract
from kfp_jax.backends.base import Backend
from kfp_jax.backends.warm import WarmBackend
from kfp_jax.spec import TrainSpec


class TestWarmBackend(BackendContract):
    impossible = {"command": ("no-such-command-9",)}, "no-such-command-9"

    @pytest.fixture
    def backend(self) -> Iterator[Backend]:
        with WarmBackend(grace=2.0) as backend:
            yield backend


@pytest.mark.parametrize(
    ("workers", "environ", "said"),
    [
        (2, {}, "the 2 processes run on CPU"),
        (2, {"JAX_PLATFORMS": "cuda"}, ""),
        (1, {}, ""),
    ],
)
def test_workers_on_a_machine_with_an_accelerator_are_said_to_run_on_cpu(
    tmp_path: Path, workers: int, environ: dict[str, str], said: str
) -> None:
    spec = TrainSpec(name="t", program="returns:nothing", output_uri=str(tmp_path))
    programs = Path(__file__).parents[1] / "programs"
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "0", "PYTHONPATH": str(programs), **environ}
    with WarmBackend(workers, environ=environ) as backend:
        warnings = backend.validate(spec)
    assert len(warnings) == bool(said)
    assert all(said in warning for warning in warnings)
