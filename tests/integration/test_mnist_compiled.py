"""MNIST's compiled parts on small nets: batches depend on seed and step alone, steps learn."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fakes.idx_files import striped
from kfp_jax_runtime.mesh import data_mesh, replicate
from kfp_jax_runtime.mnist.batches import (
    Augmentation,
    augment,
    dropout_factors,
    epoch_order,
    row_keys,
)
from kfp_jax_runtime.mnist.config import MnistConfig
from kfp_jax_runtime.mnist.step import (
    Data,
    State,
    batch_function,
    gradient_function,
    hyper,
    initial_state,
    one_cycle,
    step_function,
)

pytestmark = pytest.mark.integration

SMALL = MnistConfig(channels=(8,), hidden=16, global_batch_size=20, dropout=0.0, epochs=4)
EXAMPLES = 100
STRONG = Augmentation(shift_pixels=2.0, rotation_degrees=15.0, scale=0.1, shear=0.1)
NONE = Augmentation(0.0, 0.0, 0.0, 0.0)
SEED, STEP = np.uint32(5), 7


@pytest.fixture(scope="module")
def data() -> Data:
    images, labels = striped(EXAMPLES)
    return replicate(data_mesh(), Data(images, labels, epoch_order(0, 0, EXAMPLES)))


def start(config: MnistConfig) -> State:
    return initial_state(config, data_mesh())


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (20, 28, 28)).astype(np.uint8)


@jax.jit
def rows_of(
    rows: np.ndarray, images: np.ndarray, chosen: jax.Array, limits: Augmentation
) -> tuple[jax.Array, jax.Array]:
    keys = row_keys(SEED, jnp.int32(STEP), rows)
    return augment(keys, images, chosen, limits), dropout_factors(keys, 0.25, 64)


def test_a_process_gets_its_rows_as_if_it_computed_all(images: np.ndarray) -> None:
    rows = np.arange(8)
    chosen = jnp.asarray([3, 1, 4, 1, 5, 9, 2, 6])
    whole, whole_factors = rows_of(rows, images, chosen, STRONG)
    parts = [rows_of(share, images, chosen[share], STRONG) for share in np.split(rows, 2)]
    np.testing.assert_allclose(np.concatenate([part for part, _ in parts]), whole, atol=1e-3)
    np.testing.assert_array_equal(np.concatenate([part for _, part in parts]), whole_factors)


def test_without_augmentation_images_stay_what_they_are(images: np.ndarray) -> None:
    chosen = jnp.asarray([7, 0, 7, 1, 2, 3, 4, 5])
    same, _ = rows_of(np.arange(8), images, chosen, NONE)
    np.testing.assert_array_equal(same, images[np.asarray(chosen)].astype(np.float32))


def test_shifts_stay_within_their_limit_and_dropout_keeps_the_mean() -> None:
    dot = np.zeros((1, 28, 28), np.uint8)
    dot[0, 14, 14] = 255
    limits = NONE._replace(shift_pixels=2.0)
    moved, factors = map(np.asarray, rows_of(np.arange(400), dot, jnp.zeros(400, int), limits))
    _, y, x = np.nonzero(moved > 1)
    assert {y.min(), y.max(), x.min(), x.max()} == {12, 16}
    # The light is kept: a shift blurs, it does not dim.
    np.testing.assert_allclose(moved.sum(axis=(1, 2)), 255, rtol=1e-4)
    assert set(np.unique(factors)) == {np.float32(0), np.float32(1 / 0.75)}
    assert factors.mean() == pytest.approx(1, abs=0.02)


def test_every_row_and_step_draws_anew() -> None:
    draw = jax.jit(lambda seed, step: dropout_factors(row_keys(seed, step, jnp.arange(2)), 0.5, 64))
    draws = [
        np.asarray(draw(seed, step)) for seed in (np.uint32(0), np.uint32(1)) for step in (0, 1)
    ]
    rows = {row.tobytes() for draw in draws for row in draw}
    assert len(rows) == 8


def test_a_few_steps_lower_the_loss(data: Data) -> None:
    config = replace(SMALL, learning_rate=1e-2, max_shift_pixels=0.0)
    batch, step = batch_function(config, data_mesh()), step_function(config, data_mesh())
    numbers = hyper(config, total_steps=20)
    state, losses = start(config), []
    for done in range(20):
        state, loss = step(state, batch(data, np.int32(done), numbers), numbers)
        losses.append(float(loss))
    assert np.mean(losses[-3:]) < 0.3 * losses[0]
    assert int(state.step) == 20


def test_other_numbers_use_the_same_compiled_step(data: Data) -> None:
    batch, step = batch_function(SMALL, data_mesh()), step_function(SMALL, data_mesh())
    for config in (
        SMALL,
        replace(SMALL, learning_rate=1e-4, weight_decay=0.1, dropout=0.5, seed=3),
        replace(SMALL, label_smoothing=0.1, max_rotation_degrees=9.0, warmup_fraction=0.0),
    ):
        numbers = hyper(config, total_steps=30)
        step(start(config), batch(data, np.int32(0), numbers), numbers)
    assert (batch._cache_size(), step._cache_size()) == (1, 1)


def test_the_gradient_is_that_of_the_mean_loss(data: Data) -> None:
    # Against finite differences along the gradient: a sum instead of a mean would not fit.
    config = replace(SMALL, max_shift_pixels=0.0)
    batch = batch_function(config, data_mesh())(data, np.int32(0), hyper(config, total_steps=20))
    function = gradient_function(config, data_mesh())
    params = start(config).params
    loss, gradient = function(params, batch)
    square = sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(gradient))
    reach = 1e-3 / np.sqrt(square)
    ahead = jax.tree.map(lambda p, g: p - reach * g, params, gradient)
    behind = jax.tree.map(lambda p, g: p + reach * g, params, gradient)
    slope = (float(function(behind, batch)[0]) - float(function(ahead, batch)[0])) / (2 * reach)
    assert slope == pytest.approx(square, rel=0.05)
    assert float(loss) > 0


def test_the_learning_rate_rises_and_falls_to_zero() -> None:
    numbers = hyper(replace(SMALL, learning_rate=1.0, warmup_fraction=0.25), total_steps=100)
    rates = np.asarray(jax.vmap(lambda step: one_cycle(step, numbers))(np.arange(100)))
    assert rates.argmax() == 24
    assert rates.max() == pytest.approx(1)
    assert (np.diff(rates[:25]) > 0).all()
    assert (np.diff(rates[25:]) < 0).all()
    assert rates[-1] == pytest.approx(0, abs=1e-6)
