"""Learns y = sin(x): a small program that uses what a `Run` offers."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from kfp_jax_runtime.errors import Stopped
from kfp_jax_runtime.export import export_model
from kfp_jax_runtime.mesh import data_mesh, global_batch, local_rows, replicate
from kfp_jax_runtime.run import Run


@dataclass(frozen=True)
class Config:
    """The parameters of this program."""

    steps: int = 300
    global_batch_size: int = 64
    learning_rate: float = 1e-2
    hidden: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuses what makes no sense, before anything is started."""
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1, not {self.steps}")


def main(run: Run, config: Config) -> Mapping[str, object]:
    """Trains, exports the model, and returns its final metrics."""
    mesh = data_mesh()
    rows = local_rows(config.global_batch_size, mesh)
    mine = slice(run.process_index * rows, (run.process_index + 1) * rows)
    optimizer = optax.adam(config.learning_rate)
    params = initial_params(config)
    state = replicate(mesh, {"params": params, "optimizer": optimizer.init(params)})

    done = 0
    if restored := run.checkpoints.restore(state):
        done, state = restored

    for step in range(done + 1, config.steps + 1):
        x, y = samples(config, step)
        batch = global_batch(mesh, (x[mine], y[mine]))
        state, loss = train_step(optimizer, state, batch)
        run.progress(step, config.steps)
        if step % 50 == 0:
            run.report(step, loss=loss)
        if step % 100 == 0:
            run.checkpoints.save(step, state)
        if run.stop_requested:
            run.checkpoints.save(step, state)
            raise Stopped(step)

    # As numpy arrays: what follows is small, and needs no other process.
    params = jax.tree.map(np.asarray, state["params"])
    x = np.linspace(-3, 3, 200, dtype=np.float32)[:, None]
    export_model(run.model_dir, predict, params, example=x, metadata={"learns": "sin"})
    return {"error": np.abs(predict(params, x) - np.sin(x)).max()}


def initial_params(config: Config) -> dict[str, np.ndarray]:
    """Returns the same parameters in every process."""
    random = np.random.default_rng(config.seed)
    return {
        "weights": random.normal(size=(1, config.hidden)).astype(np.float32),
        "bias": random.normal(size=config.hidden).astype(np.float32),
        "output": np.zeros((config.hidden, 1), np.float32),
    }


def samples(config: Config, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the global batch of a step, whoever asks: nothing depends on the process count."""
    random = np.random.default_rng([config.seed, step])
    x = random.uniform(-3, 3, size=(config.global_batch_size, 1)).astype(np.float32)
    return x, np.sin(x)


def predict(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Returns y of shape (batch, 1) for x of shape (batch, 1)."""
    return jnp.tanh(x @ params["weights"] + params["bias"]) @ params["output"]


@partial(jax.jit, static_argnums=0)
def train_step(optimizer, state, batch):
    """Returns the next state and the loss; JAX averages the gradients over all processes."""

    def loss_of(params):
        x, y = batch
        return jnp.mean((predict(params, x) - y) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(state["params"])
    updates, optimizer_state = optimizer.update(gradients, state["optimizer"])
    params = optax.apply_updates(state["params"], updates)
    return {"params": params, "optimizer": optimizer_state}, loss
