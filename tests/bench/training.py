"""The MNIST training that benches run, as a job of the local backend."""

from pathlib import Path
from typing import Any

from kfp_jax.backends.local import LocalBackend
from kfp_jax.launch import launch
from kfp_jax.spec import Limits, TrainSpec

BATCH = 512


def prepare(folder: Path, source: str = "bundled") -> Path:
    """Prepares MNIST, by default the bundled subset, and returns its folder."""
    spec = TrainSpec(
        name="bench",
        program="kfp_jax_runtime.data.prepare",
        parameters={"source": source},
        output_uri=str(folder / "prepare"),
    )
    error = launch(spec, LocalBackend()).error()
    if error:
        raise error
    return folder / "prepare" / "dataset"


def training(
    output: Path,
    dataset: Path,
    *,
    processes: int,
    epochs: int,
    stall: float = 0,
    devices: int = 1,
) -> TrainSpec:
    """Returns a training that reports every step and saves no checkpoint before its last.

    Args:
        output: Where its results go; compiled steps are kept beside it for the next one.
        dataset: From `prepare`.
        processes: How many.
        epochs: How many times 23 steps.
        stall: The limit of that name, in seconds.
        devices: How many devices JAX makes of each process's cores.
    """
    parameters: dict[str, Any] = {
        "global_batch_size": BATCH,
        "epochs": epochs,
        "report_every_steps": 1,
        "checkpoint_every_steps": 10**9,
    }
    return TrainSpec(
        name="bench",
        program="kfp_jax_runtime.mnist",
        parameters=parameters,
        num_nodes=processes,
        dataset_uri=str(dataset),
        output_uri=str(output),
        limits=Limits(stall=stall),
        env={
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": str(devices),
            "JAX_COMPILATION_CACHE_DIR": str(output.parent / "compiled"),
        },
    )
