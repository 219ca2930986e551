"""Run: all that a program sees of the job it is part of."""

import math
import operator
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, SupportsIndex, TypeVar

from kfp_jax_runtime import model_folder
from kfp_jax_runtime.config import from_parameters
from kfp_jax_runtime.errors import Diverged
from kfp_jax_runtime.node import Node
from kfp_jax_runtime.report import Reporter, number

if TYPE_CHECKING:
    from kfp_jax_runtime.checkpoint import Checkpoints

Config = TypeVar("Config")


class Run:
    """One process's view of the running job; the argument of a program's `main`.

    Every process of the job has one. Reports are written by process 0 only, so programs call
    everything in every process and need no `if`.
    """

    def __init__(
        self,
        node: Node,
        effective: Mapping[str, object],
        reporter: Reporter,
        stop: Callable[[], bool],
    ) -> None:
        self._node = node
        self._effective = effective
        self._reporter = reporter
        self._stop = stop

    @property
    def parameters(self) -> Mapping[str, object]:
        """The job's parameters as they came, unchecked; `config` checks them."""
        return self._node.parameters

    def config(self, cls: type[Config]) -> Config:
        """Returns the parameters as a dataclass.

        Raises:
            BadInput: a parameter is unknown, missing, ill-typed or refused by the dataclass.
        """
        return from_parameters(cls, self._node.parameters)

    def report(self, step: SupportsIndex, **metrics: object) -> None:
        """Reports metrics of one step; reading a device value waits for it to be computed.

        Args:
            step: number of optimiser steps done.
            metrics: numbers, numpy or JAX scalars, or arrays of shape ().

        Raises:
            TypeError: a metric is not one number; the message names it.
            Diverged: the metric `loss` is not finite. Raised in every process, after the report.
        """
        at = operator.index(step)
        if self.process_index == 0:
            self._reporter.metrics(at, metrics)
        if "loss" in metrics:
            loss = number("loss", metrics["loss"])
            if not math.isfinite(loss):
                raise Diverged(at, loss)

    def progress(self, done: SupportsIndex, total: SupportsIndex, unit: str = "step") -> None:
        """Says how far the program is, for progress bars and for the stall limit."""
        if self.process_index == 0:
            self._reporter.progress(operator.index(done), operator.index(total), unit)

    @cached_property
    def checkpoints(self) -> "Checkpoints":
        """The job's checkpoints; whatever an earlier attempt saved is there too."""
        # Imported on first use: Orbax and JAX take a second, and programs that only move
        # data need neither.
        from kfp_jax_runtime.checkpoint import Checkpoints

        return Checkpoints(
            self._node.checkpoint_uri,
            self._effective,
            restored=self._restored,
            scratch=self._node.scratch and self._node.scratch / "checkpoints",
        )

    def _restored(self, step: int, saved_with: Mapping[str, object]) -> None:
        if self.process_index == 0:
            others = {
                name: saved_with.get(name)
                for name, value in self._effective.items()
                if saved_with.get(name) != value
            }
            self._reporter.restored(step, others)

    def wait(self) -> None:
        """Returns when the checkpoints saved so far are on disk; called for a program that ends."""
        if "checkpoints" in vars(self):
            self.checkpoints.wait()

    def wait_briefly(self) -> None:
        """Gives checkpoints on their way to an object store a moment; called for one that fails."""
        if "checkpoints" in vars(self):
            self.checkpoints.wait_briefly()

    @property
    def output_dir(self) -> Path:
        """Where results go; it exists, and all attempts of one job share it.

        Where the job's output is in an object store, it is a folder of this process alone: what
        lies there when the program ends goes to the store.
        """
        return self._node.output_dir

    @property
    def model_dir(self) -> Path:
        """Where a model is exported to, in the output directory, for the launcher to find it."""
        return self._node.output_dir / model_folder.NAME

    @property
    def checkpoint_dir(self) -> str:
        """Where checkpoints go: an absolute path, or a URI as it was given."""
        return self._node.checkpoint_uri

    @property
    def dataset_dir(self) -> Path | None:
        """The dataset that the job was given, or None."""
        return self._node.dataset_dir

    @property
    def shared_dir(self) -> Path:
        """What a program prepares for itself goes here; the trials of a sweep share it."""
        return self._node.shared_dir

    @property
    def stop_requested(self) -> bool:
        """Whether to save and raise `Stopped` now.

        Ask once a step, in every process: all get the same answer at the same step, whichever
        process was signalled. Of a program that never asks, a lone process is ended by the first
        SIGTERM; several, once they have met, only by SIGKILL: JAX has taken SIGTERM over.
        """
        return self._stop()

    @property
    def process_index(self) -> int:
        """Which process this is, from 0; process 0 reports."""
        return self._node.process_index

    @property
    def process_count(self) -> int:
        """How many processes the job has."""
        return self._node.process_count

    @property
    def job(self) -> str:
        """The job's name."""
        return self._node.job

    @property
    def attempt(self) -> int:
        """How often the job was started, this time included; 1 is the first."""
        return self._node.attempt
