"""Checkpoints: the whole state of training as one tree, saved by Orbax."""

import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
import orbax.checkpoint
from jax.experimental import multihost_utils
from kfp_jax_store import is_remote

from kfp_jax_runtime.checkpoint_store import StoredSteps
from kfp_jax_runtime.errors import BadInput
from kfp_jax_runtime.report import one_line

# Orbax is only partly typed.
ocp: Any = orbax.checkpoint

State = TypeVar("State")

MAX_TO_KEEP = 2
"""One to go on from, and one more in case the newest turns out to be damaged."""

_OWN_AFFAIRS = re.compile(r"[\s\[]*[^\s\[]*tensorstore_spec.*", re.DOTALL)
"""What Tensorstore, under Orbax, adds to its errors: pages about itself."""


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
        scratch: Path | None = None,
    ) -> None:
        """Prepares; touches neither the folder nor JAX before the first call.

        Args:
            directory: an absolute path that all processes share, or a URI of an object store.
            parameters: of this training, as JSON has them; saved with each checkpoint.
            restored: called after each restore with the step, and with the parameters that the
                checkpoint was saved with.
            scratch: where copies are kept of what is in an object store; by default a folder of
                their own, which is left behind.

        Raises:
            BadInput: checkpoints cannot be kept there.
        """
        text = str(directory)
        if "://" in text and not is_remote(text):
            raise BadInput(
                f"checkpoints cannot be written to {text!r}; use a folder that all nodes share, "
                "or an s3://, minio:// or gs:// URI"
            )
        self._directory = text
        self._scratch = scratch
        self._stored: StoredSteps | None = None
        self._stored_steps: set[int] = set()
        self._parameters = parameters
        self._restored = restored
        self._opened: Any = None
        self._unreadable: frozenset[int] = frozenset()

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
            One that `restore` could not read does not count, and is replaced.
        """
        manager = self._manager()
        steps = self._steps()
        if step in steps & self._unreadable and step in manager.all_steps():
            manager.delete(step)
        steps -= self._unreadable
        if step in steps or (not force and any(there > step for there in steps)):
            return False
        if self._stored is not None:
            return self._save_to_store(self._stored, step, state)
        return self._save(step, _savable(state))

    def _save(self, step: int, savable: object) -> bool:
        # Orbax's own decision whether to save is not asked: the program has decided.
        return bool(
            self._manager().save(
                step,
                args=ocp.args.StandardSave(savable),
                custom_metadata={"parameters": dict(self._parameters)},
                force=True,
            )
        )

    def _save_to_store(self, stored: StoredSteps, step: int, state: object) -> bool:
        whole = jax.tree.map(_whole, state)
        if jax.process_index() == 0:
            stored.wait()
            self._save(step, whole)
            stored.send(step, self._unreadable)
        self._stored_steps.add(step)
        self._unreadable -= {step}
        return True

    def restore(self, like: State) -> tuple[int, State] | None:
        """Returns the newest checkpoint as (step, state), or None when there is none.

        It may have been saved by another number of processes. Where the newest cannot be read but
        the one before it can, that one is returned, and it is said on stderr.

        Args:
            like: tree of arrays or `jax.ShapeDtypeStruct`, each with the sharding to restore to,
                and of numbers.

        Raises:
            BadInput: the checkpoints hold another state, such as that of another model, or all
                are damaged.
        """
        self._manager()
        self.wait()
        if self._stored is not None:
            _in_all_processes(0)  # what process 0 has saved is in the store before others fetch it
        steps = sorted(self._steps(), reverse=True)
        if not steps:
            return None
        failures: dict[int, str] = {}
        step, saved = self._read_first(steps, like, failures)
        everyones = _in_all_processes(step)
        apart = min(everyones) != max(everyones)
        if apart:
            # A file may be lost for one process alone, as on a disk of its own. All read anew: as
            # many reads by each, because Orbax lets the processes wait for each other after one.
            step, saved = self._read_first([min(everyones)], like, failures)
        self._unreadable = frozenset(newer for newer in steps if newer > step)
        if apart or jax.process_index() == 0:
            self._say_unreadable(step, failures)
        state: State = jax.tree.map(_as_before, like, saved)
        self._restored(step, self._saved_with(step))
        return step, state

    def _read_first(
        self, steps: Sequence[int], like: Any, failures: dict[int, str]
    ) -> tuple[int, Any]:
        """Returns the first of these checkpoints that can be read; adds why others cannot."""
        first: Exception | None = None
        for step in steps:
            try:
                if self._stored is not None:
                    self._stored.fetch(step)
                    self._manager().reload()
                saved = self._manager().restore(step, args=ocp.args.StandardRestore(_savable(like)))
            except (OSError, ValueError, KeyError) as error:
                first = first or error
                failures[step] = one_line(_OWN_AFFAIRS.sub("", str(error)))
            else:
                return step, saved
        raise BadInput(
            f"the checkpoint of step {steps[0]} in {self._directory} is damaged, or not of this "
            "program with these parameters; use another output folder or the parameters it was "
            f"saved with: {failures[steps[0]]}"
        ) from first

    def _say_unreadable(self, step: int, failures: Mapping[int, str]) -> None:
        for newer in sorted(self._unreadable):
            why = failures.get(newer, "by another process")
            sys.stderr.write(
                f"kfp-jax: going on from the checkpoint of step {step}, because that of step "
                f"{newer} in {self._directory} cannot be read: {why}\n"
            )

    def _saved_with(self, step: int) -> Mapping[str, object]:
        try:
            metadata = self._manager().metadata(step).custom_metadata or {}
        except (OSError, ValueError):
            metadata = {}  # damaged, but the state that it lies beside is whole
        saved_with: Mapping[str, object] = metadata.get("parameters", self._parameters)
        return saved_with

    def wait(self) -> None:
        """Returns when all that was saved is on disk."""
        if self._opened is not None:
            self._opened.wait_until_finished()
        if self._stored is not None:
            self._stored.wait()

    def wait_briefly(self) -> None:
        """Gives what is on its way to an object store a moment; called for a program that fails."""
        if self._stored is not None:
            self._stored.wait_briefly()

    def _steps(self) -> set[int]:
        if self._stored is not None:
            return set(self._stored_steps)
        return set(self._manager().all_steps())

    def _open_store(self) -> StoredSteps | None:
        """Returns the steps in the store, after all processes know the same ones."""
        if not is_remote(self._directory):
            return None
        folder = self._scratch or Path(tempfile.mkdtemp(prefix="kfp-jax-checkpoints-"))
        folder.mkdir(parents=True, exist_ok=True)
        steps = StoredSteps(self._directory, folder, MAX_TO_KEEP)
        newest = steps.newest() if jax.process_index() == 0 else []
        self._stored_steps = set(_of_process_0(newest))
        return steps

    def _manager(self) -> Any:
        if self._opened is None:
            self._stored = self._open_store()
            # What is in a store is saved and restored by each process for itself.
            alone = _alone() if self._stored else ocp.options.MultiprocessingOptions()
            manager = ocp.CheckpointManager(
                self._stored.folder if self._stored else self._directory,
                # Named here, or Orbax would take its absence from one checkpoint for that from all.
                item_handlers=ocp.StandardCheckpointHandler(multiprocessing_options=alone),
                options=ocp.CheckpointManagerOptions(
                    multiprocessing_options=alone,
                    create=self._stored is None,
                    max_to_keep=MAX_TO_KEEP,
                    # A killed save leaves a folder that nobody else will ever remove.
                    cleanup_tmp_directories=True,
                    # On CPU the saver would share memory with arrays that the next step's
                    # donation overwrites.
                    enable_async_checkpointing=(
                        jax.default_backend() != "cpu" and self._stored is None
                    ),
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


def _whole(leaf: Any) -> Any:
    """Returns what process 0 saves by itself of a leaf.

    Raises:
        BadInput: no process has all of it.
    """
    if not isinstance(leaf, jax.Array):
        return np.asarray(leaf) if isinstance(leaf, np.generic) else leaf
    if leaf.is_fully_addressable:
        return leaf if jax.process_count() == 1 else np.asarray(leaf)
    if leaf.is_fully_replicated:
        return np.asarray(leaf.addressable_data(0))
    raise BadInput(
        f"the state holds an array of shape {leaf.shape} that is split between processes, and "
        "such checkpoints cannot go to an object store; use a folder that all nodes share as "
        "checkpoint_uri"
    )


def _alone() -> Any:
    index = jax.process_index()
    return ocp.options.MultiprocessingOptions(
        primary_host=index, active_processes={index}, barrier_sync_key_prefix=f"stored_{index}"
    )


def _of_process_0(steps: Sequence[int]) -> list[int]:
    """Returns process 0's steps, at most `MAX_TO_KEEP`, in every process."""
    if jax.process_count() == 1:
        return list(steps)
    row = np.full(MAX_TO_KEEP, -1)
    row[: len(steps)] = steps
    return [int(each) for each in multihost_utils.broadcast_one_to_all(row) if each >= 0]


def _is_own(leaf: Any) -> bool:
    """Returns whether an array lives in this process alone, though there are others."""
    return isinstance(leaf, jax.Array) and leaf.is_fully_addressable and jax.process_count() > 1


def _in_all_processes(step: int) -> list[int]:
    if jax.process_count() == 1:
        return [step]
    return [int(each) for each in multihost_utils.process_allgather(np.array(step))]


def _as_before(like: Any, leaf: Any) -> Any:
    return jax.device_put(leaf, like.sharding) if _is_own(like) else leaf
