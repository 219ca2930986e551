"""One step of training, as pure functions of state, data and numbers."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax as _optax
from flax import nnx
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec
from jax.typing import ArrayLike
from numpy.typing import NDArray

from kfp_jax_runtime.mesh import DATA_AXIS, replicate
from kfp_jax_runtime.mnist import batches, model
from kfp_jax_runtime.mnist.batches import Augmentation, Number
from kfp_jax_runtime.mnist.config import MnistConfig

# JAX, too, leaves some functions without types.
optax: Any = _optax
_mean_over_devices: Callable[..., jax.Array] = jax.lax.pmean
_spec: Callable[..., PartitionSpec] = PartitionSpec

WHOLE = _spec()
ROWS = _spec(DATA_AXIS)


class State(NamedTuple):
    """All that training needs to go on; what a checkpoint holds."""

    params: model.Params
    optimizer: Any
    step: jax.Array
    """Steps done. It is the position in the data too: a batch is a function of seed and step."""


class Hyper(NamedTuple):
    """Numbers that the compiled step takes as arguments, so that a sweep compiles it once."""

    seed: np.uint32
    learning_rate: np.float32
    warmup_steps: np.float32
    total_steps: np.float32
    weight_decay: np.float32
    label_smoothing: np.float32
    dropout: np.float32
    augmentation: Augmentation


class Data(NamedTuple):
    """The training split on each device, and the order in which this epoch sees it."""

    images: jax.Array | NDArray[np.uint8]
    """(examples, 28, 28)."""
    labels: jax.Array | NDArray[np.uint8]
    order: jax.Array | NDArray[np.int32]


class Batch(NamedTuple):
    """What one step trains on, each with as many rows."""

    pixels: jax.Array
    """(rows, 28, 28), from 0 to 255."""
    targets: jax.Array
    """(rows, 10), smoothed."""
    keep: jax.Array
    """(rows, hidden): dropout."""


def hyper(config: MnistConfig, total_steps: int) -> Hyper:
    """Returns the numbers of a config."""
    return Hyper(
        seed=np.uint32(config.seed),
        learning_rate=np.float32(config.learning_rate),
        warmup_steps=np.float32(config.warmup_fraction * total_steps),
        total_steps=np.float32(total_steps),
        weight_decay=np.float32(config.weight_decay),
        label_smoothing=np.float32(config.label_smoothing),
        dropout=np.float32(config.dropout),
        augmentation=Augmentation(
            np.float32(config.max_shift_pixels),
            np.float32(config.max_rotation_degrees),
            np.float32(config.max_scale),
            np.float32(config.max_shear),
        ),
    )


def one_cycle(step: jax.Array, numbers: Hyper) -> jax.Array:
    """Returns the learning rate of a step: up in a line, then down to zero in a cosine."""
    at = step + 1.0
    warmup = numbers.warmup_steps
    rising = at / jnp.maximum(warmup, 1.0)
    done = (at - warmup) / jnp.maximum(numbers.total_steps - warmup, 1.0)
    falling = 0.5 * (1 + jnp.cos(jnp.pi * jnp.clip(done, 0.0, 1.0)))
    return numbers.learning_rate * jnp.where(at < warmup, rising, falling)


def optimizer(rate: Number, weight_decay: Number) -> Any:
    """Returns AdamW; its state is all zeros at first, and does not depend on the numbers."""
    return optax.adamw(rate, weight_decay=weight_decay)


def initial_state(config: MnistConfig, mesh: Mesh) -> State:
    """Returns the state before the first step, whole on each device."""
    params = model.initial_parameters(config.channels, config.hidden, config.seed)
    zeros = jax.tree.map(
        lambda leaf: np.zeros(leaf.shape, leaf.dtype),
        _optimizer_shapes(config.channels, config.hidden),
    )
    step: Any = np.zeros((), np.int32)
    return replicate(mesh, State(params, zeros, step))


@functools.lru_cache(model.NETS_KEPT)
def _optimizer_shapes(channels: tuple[int, ...], hidden: int) -> Any:
    params = model.initial_parameters(channels, hidden, seed=0)
    return jax.eval_shape(optimizer(0.0, 0.0).init, params)


def make_batch(
    hidden: int, global_batch_size: int, data: Data, step: ArrayLike, numbers: Hyper
) -> Batch:
    """Returns this device's rows of what a step trains on; to be called under `shard_map`.

    Args:
        hidden: width of the dense layer that drops outputs.
        global_batch_size: rows of all devices together; a multiple of their number.
        data: with the order of the epoch that the step is in.
        step: how many were done before, in all epochs.
        numbers: of the config.
    """
    rows_here = global_batch_size // jax.lax.axis_size(DATA_AXIS)
    rows = jax.lax.axis_index(DATA_AXIS) * rows_here + jnp.arange(rows_here)
    step_in_epoch = jnp.asarray(step) % (len(data.order) // global_batch_size)
    chosen = jnp.asarray(data.order)[step_in_epoch * global_batch_size + rows]
    keys = batches.row_keys(numbers.seed, jnp.asarray(step), rows)
    targets = jax.nn.one_hot(jnp.asarray(data.labels)[chosen], model.CLASSES)
    return Batch(
        batches.augment(keys, data.images, chosen, numbers.augmentation),
        optax.smooth_labels(targets, numbers.label_smoothing),
        batches.dropout_factors(keys, numbers.dropout, hidden),
    )


def loss_and_gradient(
    net: nnx.GraphDef[model.Net], params: model.Params, batch: Batch
) -> tuple[jax.Array, model.Params]:
    """Returns mean loss and gradient of the whole batch; to be called under `shard_map`.

    One all-reduce carries the loss and all gradients: one for each parameter takes two to five
    times as long over Gloo.
    """

    def loss_of(params: model.Params) -> jax.Array:
        logits = nnx.merge(net, params)(batch.pixels, batch.keep)
        loss: jax.Array = optax.softmax_cross_entropy(logits, batch.targets).mean()
        return loss

    flat, unravel = ravel_pytree(jax.value_and_grad(loss_of)(params))
    loss, gradient = unravel(_mean_over_devices(flat, DATA_AXIS))
    return loss, gradient


def train_step(
    net: nnx.GraphDef[model.Net], state: State, batch: Batch, numbers: Hyper
) -> tuple[State, jax.Array]:
    """Returns the state after one more step, and the loss of the step's batch before it."""
    loss, gradient = loss_and_gradient(net, state.params, batch)
    rule = optimizer(one_cycle(state.step, numbers), numbers.weight_decay)
    updates, opt_state = rule.update(gradient, state.optimizer, state.params)
    params = optax.apply_updates(state.params, updates)
    return State(params, opt_state, state.step + 1), loss


def batch_function(config: MnistConfig, mesh: Mesh) -> Callable[[Data, ArrayLike, Hyper], Batch]:
    """Returns `make_batch` over all devices, compiled.

    Apart from the step, because XLA on CPU would merge the two into loops that take half as long
    again. Like the other two, the same for all configs that differ in traced numbers only, so that
    trainings in one process compile it once.
    """
    return _batch_function(config.hidden, config.global_batch_size, mesh)


def gradient_function(
    config: MnistConfig, mesh: Mesh
) -> Callable[[model.Params, Batch], tuple[jax.Array, model.Params]]:
    """Returns `loss_and_gradient` over all devices, compiled."""
    return _gradient_function(config.channels, config.hidden, mesh)


def step_function(
    config: MnistConfig, mesh: Mesh
) -> Callable[[State, Batch, Hyper], tuple[State, jax.Array]]:
    """Returns `train_step` over all devices, compiled; it takes the old state's memory."""
    return _step_function(config.channels, config.hidden, mesh)


@functools.lru_cache(model.NETS_KEPT)
def _batch_function(hidden: int, global_batch_size: int, mesh: Mesh) -> Callable[..., Batch]:
    bound = functools.partial(make_batch, hidden, global_batch_size)
    return jax.jit(_over_devices(bound, mesh, (WHOLE, WHOLE, WHOLE), ROWS))


@functools.lru_cache(model.NETS_KEPT)
def _gradient_function(channels: tuple[int, ...], hidden: int, mesh: Mesh) -> Callable[..., Any]:
    bound = functools.partial(loss_and_gradient, model.structure(channels, hidden))
    return jax.jit(_over_devices(bound, mesh, (WHOLE, ROWS), WHOLE))


@functools.lru_cache(model.NETS_KEPT)
def _step_function(channels: tuple[int, ...], hidden: int, mesh: Mesh) -> Callable[..., Any]:
    bound = functools.partial(train_step, model.structure(channels, hidden))
    return jax.jit(_over_devices(bound, mesh, (WHOLE, ROWS, WHOLE), WHOLE), donate_argnums=0)


def _over_devices(
    function: Callable[..., Any],
    mesh: Mesh,
    in_specs: tuple[PartitionSpec, ...],
    out_specs: PartitionSpec,
) -> Callable[..., Any]:
    # With check_vma JAX would sum the gradients of replicated parameters by itself, and the mean
    # would come out as many times too large as there are devices.
    return jax.shard_map(
        function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
    )
