"""Successive halving in rounds, for a pipeline that unrolls them when it is compiled."""

from collections.abc import Iterable, Sequence

from kfp_jax.sweep.trial import Direction, Trial, ranked


def survivors(trials: Iterable[Trial], keep: int, direction: Direction) -> Sequence[Trial]:
    """Returns the trials that go on to the next round: the best `keep` of the complete ones.

    Fewer when fewer are complete. See Jamieson and Talwalkar, AISTATS 2016.
    """
    return ranked(trials, direction)[:keep]


def rounds(trials: int, eta: int = 3) -> Sequence[int]:
    """Returns how many trials each round has, from `trials` down to one: 9, 3, 1."""
    counts = [trials]
    while counts[-1] > 1:
        counts.append(max(1, counts[-1] // eta))
    return counts
