"""All that can be set of an MNIST training; loads nothing heavy."""

from dataclasses import dataclass

from kfp_jax_runtime.data.catalogue import DatasetChoice


@dataclass(frozen=True)
class MnistConfig:
    """One training of the convolutional net; the defaults are the demo's.

    Raises:
        ValueError: a value makes no sense; the message names it.
    """

    dataset: DatasetChoice = "auto"
    """"auto" takes what the dataset folder holds, or MNIST when the job has no dataset."""
    seed: int = 0
    """Decides the initial weights, the order of the examples and their augmentation."""

    channels: tuple[int, ...] = (24, 48, 64)
    """Of each convolution; each halves height and width. The multiples of 8 from 24 on are fast on
    CPU, 16 is several times slower than 24."""
    hidden: int = 64
    """Width of the dense layer before the last."""

    epochs: int = 4
    global_batch_size: int = 256
    """Examples in a step, of all processes together; an epoch drops those that do not fill one."""
    learning_rate: float = 3e-3
    """Highest of the one-cycle schedule: linear warm-up, then a cosine down to zero."""
    warmup_fraction: float = 0.2
    """Of all steps."""
    weight_decay: float = 1e-2
    label_smoothing: float = 0.0
    dropout: float = 0.25
    """Share of the dense layer's outputs that a step leaves out."""

    max_shift_pixels: float = 1.0
    """Training images are moved by up to this, in each direction."""
    max_rotation_degrees: float = 0.0
    max_scale: float = 0.0
    """0.1 makes images up to a tenth smaller or larger, in each direction on its own."""
    max_shear: float = 0.0
    """0.1 leans images by up to a tenth of their height."""

    report_every_steps: int = 50
    checkpoint_every_steps: int = 200

    def __post_init__(self) -> None:
        for name in ("epochs", "global_batch_size", "hidden", "report_every_steps"):
            self._require(name, getattr(self, name) >= 1, "at least 1")
        self._require("checkpoint_every_steps", self.checkpoint_every_steps >= 1, "at least 1")
        self._require("seed", 0 <= self.seed < 2**31, "from 0 to 2147483647")
        channels_make_sense = len(self.channels) in range(1, 6) and min(self.channels) >= 1
        self._require("channels", channels_make_sense, "one to five numbers of at least 1")
        self._require("learning_rate", self.learning_rate > 0, "more than 0")
        for name in ("weight_decay", "max_shift_pixels", "max_rotation_degrees", "max_shear"):
            self._require(name, getattr(self, name) >= 0, "at least 0")
        for name in ("warmup_fraction", "label_smoothing", "dropout", "max_scale"):
            self._require(name, 0 <= getattr(self, name) < 1, "at least 0 and less than 1")

    def _require(self, name: str, holds: bool, valid: str) -> None:
        if not holds:
            raise ValueError(f"{name} must be {valid}, not {getattr(self, name)}")
