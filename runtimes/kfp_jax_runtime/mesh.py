"""Devices as one axis of data parallelism, and how values get onto them."""

from collections.abc import Callable
from typing import TypeVar

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from kfp_jax_runtime.errors import BadInput

Tree = TypeVar("Tree")

DATA_AXIS = "data"

# JAX leaves these two without types.
_spec: Callable[..., PartitionSpec] = PartitionSpec
_from_local: Callable[..., jax.Array] = jax.make_array_from_process_local_data


def data_mesh() -> Mesh:
    """Returns a mesh of every device of every process, with the one axis "data"."""
    # Auto, because make_mesh's own default (Explicit) makes plain code such as optax's integer
    # cross-entropy fail on sharded batches.
    return jax.make_mesh((jax.device_count(),), (DATA_AXIS,), axis_types=(AxisType.Auto,))


def replicated(mesh: Mesh) -> NamedSharding:
    """Returns the sharding of a value of which each device has the whole."""
    return NamedSharding(mesh, _spec())


def sharded(mesh: Mesh) -> NamedSharding:
    """Returns the sharding of a batch: rows (the first axis) spread over the devices."""
    return NamedSharding(mesh, _spec(DATA_AXIS))


def local_rows(global_batch: int, mesh: Mesh) -> int:
    """Returns how many of a global batch's rows this process supplies.

    Raises:
        BadInput: the rows do not divide evenly among the devices.
    """
    if global_batch < 1 or global_batch % mesh.size:
        raise BadInput(
            f"a global batch of {global_batch} rows does not divide evenly among {mesh.size} "
            f"devices; use a multiple of {mesh.size}"
        )
    return global_batch // mesh.size * len(mesh.local_devices)


def global_batch(mesh: Mesh, rows: Tree) -> Tree:
    """Returns a tree of sharded arrays, each made of the rows of all processes.

    Args:
        mesh: from `data_mesh`.
        rows: tree of arrays (local rows, ...), `local_rows` of them, as many in each process.
    """
    sharding = sharded(mesh)
    result: Tree = jax.tree.map(lambda leaf: _from_local(sharding, np.asarray(leaf)), rows)
    return result


def replicate(mesh: Mesh, tree: Tree) -> Tree:
    """Returns `tree` with each leaf whole on each device; it must be the same in all processes."""
    sharding = replicated(mesh)

    def put(leaf: object) -> jax.Array:
        whole = np.asarray(leaf)
        return _from_local(sharding, whole, whole.shape)

    result: Tree = jax.tree.map(put, tree)
    return result
