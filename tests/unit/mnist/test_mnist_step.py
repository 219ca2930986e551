"""One training step on small nets: it learns, and a sweep does not compile it again."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from fakes.idx_files import striped
from kfp_jax_runtime.errors import BadInput
from kfp_jax_runtime.mesh import data_mesh, replicate
from kfp_jax_runtime.mnist.batches import epoch_order
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
from kfp_jax_runtime.mnist.train import schedule_of

SMALL = MnistConfig(channels=(8,), hidden=16, global_batch_size=20, dropout=0.0, epochs=4)
EXAMPLES = 100


@pytest.fixture(scope="module")
def data() -> Data:
    images, labels = striped(EXAMPLES)
    return replicate(data_mesh(), Data(images, labels, epoch_order(0, 0, EXAMPLES)))


def start(config: MnistConfig) -> State:
    return initial_state(config, data_mesh())


@pytest.mark.integration
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


@pytest.mark.integration
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


@pytest.mark.integration
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


def test_the_examples_that_do_not_fill_a_batch_are_dropped() -> None:
    schedule = schedule_of(replace(SMALL, global_batch_size=32, epochs=3), EXAMPLES)
    assert (schedule.steps_per_epoch, schedule.total_steps) == (3, 9)


def test_a_batch_of_more_than_the_data_is_refused() -> None:
    with pytest.raises(BadInput, match="global_batch_size 101 is more than the 100 training"):
        schedule_of(replace(SMALL, global_batch_size=101), EXAMPLES)
