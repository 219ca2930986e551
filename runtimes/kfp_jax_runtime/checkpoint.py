"""Checkpoints: the whole state of training as one tree, saved by Orbax."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
import orbax.checkpoint

from kfp_jax_runtime.errors import BadInput

# Orbax is only partly typed.
ocp: Any = orbax.checkpoint

State = TypeVar("State")

MAX_TO_KEEP = 2
"""One to go on from, and one more in case the newest turns out to be of no use."""


class Checkpoints:
    """Saves and restores the state of one job; all processes call each method together.

    The state is one tree of arrays and numbers: model parameters, optimiser state, position in
    the data. A save is whole or absent: it is written beside its final name and renamed.
    """

    def __init__(
        self,
        directory: str | Path,
        parameters: Mapping[str, object],
        *,
        restored: Callable[[int, Mapping[str, object]], None],
    ) -> None:
        """Prepares; touches neither the folder nor JAX before the first call.

        Args:
            directory: an absolute path that all processes share, or a gs:// URI.
            parameters: of this training, as JSON has them; saved with each checkpoint.
            restored: called after each restore with the step, and with the parameters that the
                checkpoint was saved with.

        Raises:
            BadInput: checkpoints cannot be kept there.
        """
        text = str(directory)
        if "://" in text and not text.startswith("gs://"):
            # Orbax would take s3:// for a relative folder and lose the checkpoint.
            raise BadInput(
                f"checkpoints cannot be written to {text!r}; use a folder that all nodes share, "
                "or a gs:// URI"
            )
        self._directory = text
        self._parameters = parameters
        self._restored = restored
        self._opened: Any = None

    def save(self, step: int, state: object, *, force: bool = False) -> bool:
        """Saves `state` as that of `step`, and drops all but the newest two.

        On accelerators this returns when the state is copied off the device, and the next save
        or `wait` waits for the disk; on CPU, when it is saved.

        Args:
            step: optimiser steps done; names the checkpoint.
            state: tree of arrays and numbers, equal in all processes where it is replicated.
            force: save also when a later step is there.

        Returns:
            Whether it was saved; False when that step, or without `force` a later one, is there.
        """
        manager = self._manager()
        steps = manager.all_steps()
        if step in steps or (not force and any(there > step for there in steps)):
            return False
        # Orbax's own decision whether to save is not asked: the program has decided.
        return bool(
            manager.save(
                step,
                args=ocp.args.StandardSave(_savable(state)),
                custom_metadata={"parameters": dict(self._parameters)},
                force=True,
            )
        )

    def restore(self, like: State) -> tuple[int, State] | None:
        """Returns the newest whole checkpoint as (step, state), or None when there is none.

        It may have been saved by another number of processes.

        Args:
            like: tree of arrays or `jax.ShapeDtypeStruct`, each with the sharding to restore to,
                and of numbers.

        Raises:
            BadInput: the checkpoint holds another state, such as that of another model.
        """
        manager = self._manager()
        step = manager.latest_step()
        if step is None:
            return None
        try:
            saved = manager.restore(step, args=ocp.args.StandardRestore(_savable(like)))
        except (ValueError, KeyError) as error:
            raise BadInput(
                f"the checkpoint of step {step} in {self._directory} is not of this program with "
                "these parameters; use another output folder or the parameters it was saved with: "
                f"{error}"
            ) from error
        state: State = jax.tree.map(_as_before, like, saved)
        metadata = manager.metadata(step).custom_metadata or {}
        self._restored(step, metadata.get("parameters", self._parameters))
        return step, state

    def wait(self) -> None:
        """Returns when all that was saved is on disk."""
        if self._opened is not None:
            self._opened.wait_until_finished()

    def _manager(self) -> Any:
        if self._opened is None:
            manager = ocp.CheckpointManager(
                self._directory,
                options=ocp.CheckpointManagerOptions(
                    max_to_keep=MAX_TO_KEEP,
                    # A killed save leaves a folder that nobody else will ever remove.
                    cleanup_tmp_directories=True,
                    # On CPU the saver would share memory with arrays that the next step's
                    # donation overwrites.
                    enable_async_checkpointing=jax.default_backend() != "cpu",
                ),
            )
            # Orbax would ask JAX's sync point with its own step numbers. `run.stop_requested`
            # counts differently, and with two counts on one sync point a stop can be missed.
            manager.reached_preemption = lambda step: False
            self._opened = manager
        return self._opened


def _savable(tree: Any) -> Any:
    """Returns a tree with what Orbax refuses as numpy arrays, of which process 0 saves its own."""
    return jax.tree.map(
        lambda leaf: np.asarray(leaf) if isinstance(leaf, np.generic) or _is_own(leaf) else leaf,
        tree,
    )


def _is_own(leaf: Any) -> bool:
    """Returns whether an array lives in this process alone, though there are others."""
    return isinstance(leaf, jax.Array) and leaf.is_fully_addressable and jax.process_count() > 1


def _as_before(like: Any, leaf: Any) -> Any:
    return jax.device_put(leaf, like.sharding) if _is_own(like) else leaf
