from kfp_jax.status import Outcome, Phase

SUCCEEDED = Outcome(
    job="mnist-1a2b3c4d-1",
    backend="local",
    phase=Phase.SUCCEEDED,
    reason="",
    message="",
    program="kfp_jax_runtime.mnist",
    parameters={"epochs": 10, "learning_rate": 0.004, "widths": [32, 64]},
    num_processes=2,
    seconds={"queued": 0.0, "starting": 4.1, "training": 31.0, "total": 37.2},
    metrics={"accuracy": 0.9912, "loss": 0.03125},
    attempts=1,
    output_uri="/output",
    dataset_uri="/data/dataset",
    model_uri="/output/model",
    versions={"python": "3.12.4", "jax": "0.10.2"},
)
