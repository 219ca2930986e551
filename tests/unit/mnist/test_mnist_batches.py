"""Batches are functions of seed and step: not of time, and not of who computes which rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kfp_jax_runtime.mnist.batches import (
    Augmentation,
    augment,
    dropout_factors,
    epoch_order,
    row_keys,
)

STRONG = Augmentation(shift_pixels=2.0, rotation_degrees=15.0, scale=0.1, shear=0.1)
NONE = Augmentation(0.0, 0.0, 0.0, 0.0)
SEED, STEP = np.uint32(5), 7


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (20, 28, 28)).astype(np.uint8)


@jax.jit
def rows_of(
    rows: np.ndarray, images: np.ndarray, chosen: jax.Array, limits: Augmentation
) -> tuple[jax.Array, jax.Array]:
    keys = row_keys(SEED, jnp.int32(STEP), rows)
    return augment(keys, images, chosen, limits), dropout_factors(keys, 0.25, 64)


def test_an_epoch_sees_every_example_once_in_an_order_of_its_own() -> None:
    orders = [epoch_order(seed, epoch, 100) for seed in (0, 1) for epoch in (0, 1)]
    for order in orders:
        assert sorted(order.tolist()) == list(range(100))
    assert len({tuple(order.tolist()) for order in orders}) == 4
    assert epoch_order(1, 1, 100).tolist() == orders[3].tolist()


@pytest.mark.integration
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


@pytest.mark.integration
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
