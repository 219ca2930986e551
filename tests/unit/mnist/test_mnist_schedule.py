"""Which examples a step sees, and how many steps there are."""

import pytest
from kfp_jax_runtime.errors import BadInput
from kfp_jax_runtime.mnist.batches import epoch_order
from kfp_jax_runtime.mnist.config import MnistConfig
from kfp_jax_runtime.mnist.train import schedule_of

EXAMPLES = 100


def test_an_epoch_sees_every_example_once_in_an_order_of_its_own() -> None:
    orders = [epoch_order(seed, epoch, EXAMPLES) for seed in (0, 1) for epoch in (0, 1)]
    for order in orders:
        assert sorted(order.tolist()) == list(range(EXAMPLES))
    assert len({tuple(order.tolist()) for order in orders}) == 4
    assert epoch_order(1, 1, EXAMPLES).tolist() == orders[3].tolist()


def test_the_examples_that_do_not_fill_a_batch_are_dropped() -> None:
    schedule = schedule_of(MnistConfig(global_batch_size=32, epochs=3), EXAMPLES)
    assert (schedule.steps_per_epoch, schedule.total_steps) == (3, 9)


def test_a_batch_of_more_than_the_data_is_refused() -> None:
    with pytest.raises(BadInput, match="global_batch_size 101 is more than the 100 training"):
        schedule_of(MnistConfig(global_batch_size=101), EXAMPLES)
