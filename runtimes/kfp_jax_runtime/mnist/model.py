"""The net, and the pure functions of its parameters."""

import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from kfp_jax_runtime.data.catalogue import IMAGE_SIZE

CLASSES = 10
NETS_KEPT = 4
"""Of how many nets a process keeps what it has traced and compiled, for the next training."""

Params: TypeAlias = "nnx.State[Any, Any]"
"""The parameters of a `Net`: a tree of arrays."""

# Of MNIST's pixels, in 0..1. They serve Fashion-MNIST as well: only the scale matters.
_PIXEL_MEAN = 0.1307
_PIXEL_DEVIATION = 0.3081


class Net(nnx.Module):
    """Convolutions of stride 2, one hidden dense layer, one output per class.

    Stride instead of pooling, as each convolution then works on a quarter of the pixels. No
    batch normalisation: it would make the result depend on how a batch is split. A smooth
    activation: the kink of ReLU turns a difference in the last bit, as between numbers of
    processes, into a visible one.
    """

    def __init__(self, channels: tuple[int, ...], hidden: int, *, rngs: nnx.Rngs) -> None:
        inputs, size = 1, IMAGE_SIZE
        convolutions = []
        for index, outputs in enumerate(channels):
            kernel = (5, 5) if index == 0 else (3, 3)
            convolutions.append(nnx.Conv(inputs, outputs, kernel, strides=2, rngs=rngs))
            inputs, size = outputs, (size + 1) // 2
        self.convolutions = nnx.List(convolutions)
        self.dense = nnx.Linear(size * size * inputs, hidden, rngs=rngs)
        self.output = nnx.Linear(hidden, CLASSES, rngs=rngs)

    def __call__(self, pixels: jax.Array, keep: jax.Array | float = 1.0) -> jax.Array:
        """Returns logits of shape (batch, 10).

        Args:
            pixels: (batch, 28, 28), from 0 to 255.
            keep: factors for the hidden layer's outputs, (batch, hidden): dropout.
        """
        x = ((pixels / 255 - _PIXEL_MEAN) / _PIXEL_DEVIATION)[..., None]
        for convolution in self.convolutions:
            x = nnx.gelu(convolution(x))
        x = nnx.gelu(self.dense(x.reshape(x.shape[0], -1))) * keep
        return self.output(x)


@functools.lru_cache(NETS_KEPT)
def structure(channels: tuple[int, ...], hidden: int) -> nnx.GraphDef[Net]:
    """Returns the net without its parameters."""
    graph, _ = nnx.split(_abstract(channels, hidden), nnx.Param)
    return graph


def initial_parameters(channels: tuple[int, ...], hidden: int, seed: int) -> Params:
    """Returns fresh parameters as numpy arrays: He's normal for the weights, 0 for the biases.

    Drawn by numpy, because JAX would compile its generator for each shape: two seconds on CPU.
    """
    generator = np.random.Generator(np.random.PCG64(seed))

    def draw(leaf: jax.ShapeDtypeStruct) -> NDArray[np.float32]:
        if len(leaf.shape) == 1:
            return np.zeros(leaf.shape, np.float32)
        inputs = math.prod(leaf.shape[:-1])
        drawn = generator.standard_normal(leaf.shape, dtype=np.float32)
        scaled: NDArray[np.float32] = drawn * np.float32(math.sqrt(2 / inputs))
        return scaled

    _, abstract = nnx.split(_abstract(channels, hidden), nnx.Param)
    params: Params = jax.tree.map(draw, abstract)
    return params


@functools.lru_cache(NETS_KEPT)
def _abstract(channels: tuple[int, ...], hidden: int) -> Net:
    # Shapes only: no array is made.
    net: Net = nnx.eval_shape(lambda: Net(channels, hidden, rngs=nnx.Rngs(0)))
    return net


def predict(net: nnx.GraphDef[Net], params: Params, images: jax.Array) -> jax.Array:
    """Returns logits (batch, 10) of images (batch, 28, 28, 1) of unsigned bytes."""
    return nnx.merge(net, params)(images[..., 0].astype(jnp.float32))


@functools.lru_cache(NETS_KEPT)
def predictor(channels: tuple[int, ...], hidden: int) -> Callable[[Any, Any], jax.Array]:
    """Returns `predict` of a net's parameters and images; the same function for the same net."""
    return functools.partial(predict, structure(channels, hidden))


@functools.lru_cache(NETS_KEPT)
def compiled_predictor(channels: tuple[int, ...], hidden: int) -> Callable[[Any, Any], jax.Array]:
    """Returns `predictor`, compiled."""
    return jax.jit(predictor(channels, hidden))
