"""The net, and the pure functions of its parameters."""

import jax
import jax.numpy as jnp
from flax import nnx

from kfp_jax_runtime.data.catalogue import IMAGE_SIZE

CLASSES = 10

# Of MNIST's pixels, in 0..1. They serve Fashion-MNIST as well: only the scale matters.
_PIXEL_MEAN = 0.1307
_PIXEL_DEVIATION = 0.3081


class Net(nnx.Module):
    """Convolutions of stride 2, one hidden dense layer, one output per class.

    Stride instead of pooling, as each convolution then works on a quarter of the pixels. No
    batch normalisation: it would make the result depend on how a batch is split.
    """

    def __init__(self, channels: tuple[int, ...], hidden: int, *, rngs: nnx.Rngs) -> None:
        init = nnx.initializers.he_normal()
        inputs, size = 1, IMAGE_SIZE
        convolutions = []
        for index, outputs in enumerate(channels):
            kernel = (5, 5) if index == 0 else (3, 3)
            convolutions.append(
                nnx.Conv(inputs, outputs, kernel, strides=2, kernel_init=init, rngs=rngs)
            )
            inputs, size = outputs, (size + 1) // 2
        self.convolutions = nnx.List(convolutions)
        self.dense = nnx.Linear(size * size * inputs, hidden, kernel_init=init, rngs=rngs)
        self.output = nnx.Linear(hidden, CLASSES, rngs=rngs)

    def __call__(self, pixels: jax.Array, keep: jax.Array | float = 1.0) -> jax.Array:
        """Returns logits of shape (batch, 10).

        Args:
            pixels: (batch, 28, 28), from 0 to 255.
            keep: factors for the hidden layer's outputs, (batch, hidden): dropout.
        """
        x = ((pixels / 255 - _PIXEL_MEAN) / _PIXEL_DEVIATION)[..., None]
        for convolution in self.convolutions:
            x = _activate(convolution(x))
        x = nnx.gelu(self.dense(x.reshape(len(x), -1))) * keep
        return self.output(x)


def _activate(x: jax.Array) -> jax.Array:
    # Smooth, because the kink of ReLU turns the last bit's difference between process counts
    # into a visible one. Flat, because XLA's CPU code for few channels is several times slower.
    return nnx.gelu(x.reshape(len(x), -1)).reshape(x.shape)


def structure(channels: tuple[int, ...], hidden: int) -> nnx.GraphDef[Net]:
    """Returns the net without its parameters; makes no array."""
    net = nnx.eval_shape(lambda: Net(channels, hidden, rngs=nnx.Rngs(0)))
    graph, _ = nnx.split(net, nnx.Param)
    return graph


def initial_parameters(channels: tuple[int, ...], hidden: int, key: jax.Array) -> nnx.State:
    """Returns fresh parameters; to be called under jit."""
    return nnx.state(Net(channels, hidden, rngs=nnx.Rngs(key)), nnx.Param)


def predict(net: nnx.GraphDef[Net], params: nnx.State, images: jax.Array) -> jax.Array:
    """Returns logits (batch, 10) of images (batch, 28, 28, 1) of unsigned bytes."""
    return nnx.merge(net, params)(images[..., 0].astype(jnp.float32))
