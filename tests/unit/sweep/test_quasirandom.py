import statistics
from itertools import islice, pairwise

import pytest
from kfp_jax.sweep.quasirandom import _primes, halton


@pytest.mark.parametrize("seed", [0, 1, 2**31])
@pytest.mark.parametrize("first", [0, 72, 720])
def test_every_box_of_a_grid_gets_one_point(seed: int, first: int) -> None:
    """What makes the sequence: 8 by 9 boxes, 72 points in a row, and one in each."""
    points = [halton(2, seed, number) for number in range(first, first + 72)]
    assert len({(int(x * 8), int(y * 9)) for x, y in points}) == 72


def test_each_coordinate_of_many_is_spread_evenly() -> None:
    points = [halton(40, 0, number) for number in range(200)]
    for values in zip(*points, strict=True):
        assert min(values) >= 0
        assert max(values) < 1
        assert statistics.mean(values) == pytest.approx(0.5, abs=0.06)


def test_large_bases_do_not_go_in_step() -> None:
    points = [halton(40, 0, number) for number in range(100)]
    columns = list(zip(*points, strict=True))
    for left, right in pairwise(columns[20:]):
        assert abs(statistics.correlation(left, right)) < 0.5  # unscrambled: up to 1.0


def test_a_point_follows_from_seed_and_number_alone() -> None:
    assert halton(3, 7, 1000) == halton(3, 7, 1000)
    assert halton(3, 7, 1000)[:2] == halton(2, 7, 1000)
    assert halton(3, 7, 1000) != halton(3, 8, 1000)


def test_the_bases_are_the_primes() -> None:
    assert list(islice(_primes(), 8)) == [2, 3, 5, 7, 11, 13, 17, 19]
