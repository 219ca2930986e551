"""What a step trains on, as pure functions of the seed and the step, whoever computes them.

Everything random is drawn per row of the global batch from a key of its own. A process that draws
only its own rows gets what it would get if it drew all: the numbers do not depend on how many
processes there are.
"""

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kfp_jax_runtime.data.catalogue import IMAGE_SIZE

_CENTRE = (IMAGE_SIZE - 1) / 2


Number: TypeAlias = jax.Array | np.float32 | np.uint32 | float
"""One number, known when the step is compiled or, better, only when it runs."""


class Augmentation(NamedTuple):
    """The largest changes made to a training image; each is drawn evenly up to both sides."""

    shift_pixels: Number
    rotation_degrees: Number
    scale: Number
    shear: Number


def epoch_order(seed: int, epoch: int, examples: int) -> NDArray[np.int32]:
    """Returns the order in which an epoch sees the examples."""
    generator = np.random.Generator(np.random.PCG64([seed, epoch]))
    return generator.permutation(examples).astype(np.int32)


def row_keys(seed: Number, step: Number, rows: jax.Array) -> jax.Array:
    """Returns one random key for each of these rows of the global batch of a step."""
    of_step = jax.random.fold_in(jax.random.key(seed), step)
    keys: jax.Array = jax.vmap(lambda row: jax.random.fold_in(of_step, row))(rows)
    return keys


def dropout_factors(keys: jax.Array, rate: Number, width: int) -> jax.Array:
    """Returns (rows, width) factors: 0 for a share `rate` of them, the rest makes up for it."""
    # A draw of its own, apart from that of `augment`.
    kept = jax.vmap(
        lambda key: jax.random.bernoulli(jax.random.fold_in(key, 1), 1 - rate, (width,))
    )(keys)
    return kept / (1 - rate)


def augment(
    keys: jax.Array, images: jax.Array | NDArray[np.uint8], chosen: jax.Array, limits: Augmentation
) -> jax.Array:
    """Returns the chosen images, each turned, scaled, sheared and moved a little.

    Args:
        keys: (rows,).
        images: (examples, 28, 28) unsigned bytes; the whole dataset, because picking pixels out
            of it directly saves a copy of the batch.
        chosen: (rows,) indices into the dataset.
        limits: the largest changes.

    Returns:
        (rows, 28, 28) floats from 0 to 255; what comes in from outside the image is 0.
    """
    y, x = _sample_points(keys, limits)
    top, left = jnp.floor(y), jnp.floor(x)
    down, right = y - top, x - left
    flat = jnp.asarray(images).reshape(-1)
    start = chosen[:, None, None] * (IMAGE_SIZE * IMAGE_SIZE)

    def pixels(rows: jax.Array, columns: jax.Array) -> jax.Array:
        inside = (rows >= 0) & (rows < IMAGE_SIZE) & (columns >= 0) & (columns < IMAGE_SIZE)
        offset = jnp.where(inside, rows * IMAGE_SIZE + columns, 0).astype(jnp.int32)
        return jnp.where(inside, flat[start + offset], 0).astype(jnp.float32)

    upper = (1 - right) * pixels(top, left) + right * pixels(top, left + 1)
    lower = (1 - right) * pixels(top + 1, left) + right * pixels(top + 1, left + 1)
    return (1 - down) * upper + down * lower


def _sample_points(keys: jax.Array, limits: Augmentation) -> tuple[jax.Array, jax.Array]:
    """Returns for each pixel of each row where in the original it is taken from, as (y, x)."""
    draws = jax.vmap(lambda key: jax.random.uniform(key, (6,), minval=-1, maxval=1))(keys)
    turn, wider, taller, lean, move_x, move_y = (draws[:, i, None, None] for i in range(6))
    angle = jnp.deg2rad(turn * limits.rotation_degrees)
    scale_x, scale_y = 1 + wider * limits.scale, 1 + taller * limits.scale
    from_centre = jnp.arange(IMAGE_SIZE, dtype=jnp.float32) - _CENTRE
    y, x = from_centre[None, :, None], from_centre[None, None, :]
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    at_x = scale_x * (cosine * x - (sine - lean * limits.shear) * y)
    at_y = scale_y * (sine * x + cosine * y)
    centre_x = _CENTRE + move_x * limits.shift_pixels
    centre_y = _CENTRE + move_y * limits.shift_pixels
    return at_y + centre_y, at_x + centre_x
