import itertools
import os
import sys
import time
from pathlib import Path

import pytest
from contract.backend_contract import BackendContract
from kfp_jax.backends.base import Backend, JobRef
from kfp_jax.backends.local import LocalBackend
from kfp_jax.clock import SystemClock
from kfp_jax.errors import JobCancelled, OutputError, SpecError
from kfp_jax.pods import Pods
from kfp_jax.spec import Limits, TrainSpec


class TestLocalBackend(BackendContract):
    impossible = {"command": ("no-such-command-9",)}, "no-such-command-9"

    @pytest.fixture
    def backend(self) -> Backend:
        return LocalBackend(grace=2.0)


@pytest.fixture
def slow_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that takes for ever to import."""
    (tmp_path / "slow_program.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    return "slow_program"


def test_looking_at_a_program_can_be_cancelled(tmp_path: Path, slow_program: str) -> None:
    spec = TrainSpec(name="slow", program=slow_program, output_uri=str(tmp_path / "out"))
    asked = itertools.count()
    with pytest.raises(JobCancelled, match="before it was started"):
        LocalBackend().validate(spec, lambda: next(asked) > 3)


def test_looking_at_a_program_ends_with_the_start_limit(tmp_path: Path, slow_program: str) -> None:
    spec = TrainSpec(
        name="slow",
        program=slow_program,
        output_uri=str(tmp_path / "out"),
        limits=Limits(start=0.3),
    )
    with pytest.raises(SpecError, match=r"slow_program was not loaded within 0\.3 s"):
        LocalBackend().validate(spec)


def test_logs_that_cannot_be_made_are_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file in the way")
    spec = TrainSpec(name="job", command=("true",), output_uri=str(tmp_path))
    with pytest.raises(OutputError, match="choose another output folder"):
        LocalBackend().submit(spec, JobRef("local", "job"))


class FastClock(SystemClock):
    """A clock by which a tenth of a second is a minute."""

    def now(self) -> float:
        return 600 * time.monotonic()


def test_a_progress_bar_without_a_newline_shows_life(tmp_path: Path) -> None:
    bar = "import sys, time\nfor i in range(30): print(i, end='\\r', flush=True); time.sleep(0.03)"
    spec = TrainSpec(name="job", command=(sys.executable, "-c", bar), output_uri=str(tmp_path))
    backend = LocalBackend(clock=FastClock())
    ref = backend.submit(spec, JobRef("local", "job"))
    states = [line.text for line in backend.logs(ref)]
    backend.delete(ref)
    assert len(states) > 5
    assert states[-1] == "29"


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


@pytest.mark.parametrize(
    ("environ", "nodes", "warned"),
    [
        ({"TPU_WORKER_ID": "0"}, 2, True),
        ({"CUDA_VISIBLE_DEVICES": "0"}, 2, True),
        ({"TPU_WORKER_ID": "0"}, 1, False),
        ({"TPU_WORKER_ID": "0", "JAX_PLATFORMS": "tpu"}, 2, False),
        ({}, 2, False),
    ],
)
def test_several_processes_of_a_machine_with_an_accelerator_are_said_to_run_on_cpu(
    tmp_path: Path, environ: dict[str, str], nodes: int, warned: bool
) -> None:
    spec = TrainSpec(name="j", command=("true",), num_nodes=nodes, output_uri=str(tmp_path))
    warnings = LocalBackend(environ={"PATH": os.environ["PATH"], **environ}).validate(spec)
    assert any("processes run on CPU" in warning for warning in warnings) is warned
