"""Points that are spread more evenly than random ones: the Halton sequence, scrambled. Pure.

The coordinate of point n is n written in a prime base, one for each dimension, with its digits in
reverse behind the point (Halton, 1960). Large bases would go through their first digits in step, so
every digit is exchanged by a random permutation; evenness stays. Google's tuning playbook searches
this way. Sobol's sequence would need SciPy, 100 MB of an image.
"""

import math
import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import count, islice

_BITS = 52  # of a float, by which it stays below 1


def halton(dimensions: int, seed: int, number: int) -> list[float]:
    """Returns point `number`, from 0: a place from 0 to below 1 in every dimension."""
    return [_coordinate(base, seed, number) for base in islice(_primes(), dimensions)]


def _coordinate(base: int, seed: int, number: int) -> float:
    permutations = _permutations(base, seed)
    reverse = 0
    for permutation in permutations:
        number, digit = divmod(number, base)
        reverse = reverse * base + permutation[digit]
    return float(reverse / base ** len(permutations))


@lru_cache(maxsize=256)
def _permutations(base: int, seed: int) -> Sequence[Sequence[int]]:
    """Returns what becomes of the digits of numbers in a base, for each place of a digit."""
    source = random.Random(f"{seed}/{base}")
    places = range(int(_BITS / math.log2(base)))
    return [source.sample(range(base), base) for _ in places]


def _primes() -> Iterator[int]:
    found: list[int] = []
    for number in count(2):
        if all(number % prime for prime in found):
            found.append(number)
            yield number
