"""Successive halving in rounds, for a pipeline that unrolls them when it is compiled."""

from collections.abc import Iterable, Sequence

from kfp_jax.sweep.trial import Direction, Trial, ranked


def survivors(trials: Iterable[Trial], keep: int, direction: Direction) -> Sequence[Trial]:
    """Returns the trials that go on to the next round: the best `keep` of the complete ones.

    Fewer when fewer are complete. See Jamieson and Talwalkar, AISTATS 2016.
    """
    return ranked(trials, direction)[:keep]
