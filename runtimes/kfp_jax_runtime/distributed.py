"""Joins the other processes of a job, and leaves them again."""

import functools
import ipaddress
import os
import threading
from typing import Any

import jax
from jax.experimental import multihost_utils

from kfp_jax_runtime.errors import BadInput
from kfp_jax_runtime.node import Node

INITIALIZATION_SECONDS = 1800
"""Above the skew of pulling images of many GB. A launcher has its own, shorter start limit; this
one only bounds a node that nobody watches, since JAX answers a passed limit by abort()."""

HEARTBEAT_SECONDS = 60
"""A launcher sees a dead process at once, by its exit. This is for machines that vanish, and must
outlast a process that is merely starved, as when every core compiles."""

SHUTDOWN_SECONDS = 1800
"""Process 0 may still write a large model while the others are done; a dead one is noticed by its
heartbeats."""

LEAVE_TOGETHER_SECONDS = 5
"""Processes that stop at the same step arrive within moments; more means that one of them does
not stop at all."""

_NO_PROXY = "no_grpc_proxy"
"""gRPC's own list of hosts to reach directly; where it is set, gRPC does not read no_proxy."""


def join(node: Node) -> None:
    """Starts jax.distributed and returns once all processes have met.

    Raises:
        BadInput: JAX has been used before, by the program's own imports.
    """
    _reach_without_proxy(_host(node.coordinator))
    if _is_loopback(_host(node.coordinator)):
        _keep_gloo_on_loopback()
    try:
        jax.distributed.initialize(
            coordinator_address=node.coordinator,
            num_processes=node.process_count,
            process_id=node.process_index,
            coordinator_bind_address=node.bind_address or None,
            # Even with all of the above given JAX would ask the cluster's API, which nodes have
            # neither need nor right to do.
            cluster_detection_method="deactivate",
            initialization_timeout=INITIALIZATION_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=SHUTDOWN_SECONDS,
        )
    except RuntimeError as error:
        if jax.distributed.is_initialized() or "before any JAX calls" not in str(error):
            raise
        raise BadInput(
            f"JAX was used before process {node.process_index} could join the other "
            f"{node.process_count - 1}: the program calls JAX (jax.devices(), jnp.array() or the "
            "like) while its modules are imported; move those calls into main(run)"
        ) from error


def leave() -> None:
    """Waits until all processes leave, then closes the connections to them."""
    jax.distributed.shutdown()  # type: ignore[no-untyped-call]  # JAX leaves it without types


def leave_together() -> None:
    """Leaves when all processes do so now; otherwise gives up after a few seconds."""
    thread = threading.Thread(target=leave, daemon=True)
    thread.start()
    thread.join(LEAVE_TOGETHER_SECONDS)


class SyncPoint:
    """Whether to stop, with the same answer at the same call in every process."""

    def __init__(self) -> None:
        self._asked = 0
        self._reached = False

    def __call__(self) -> bool:
        """Returns whether to stop now; true from the agreed call on."""
        self._asked += 1
        self._reached = self._reached or bool(
            multihost_utils.reached_preemption_sync_point(self._asked)
        )
        return self._reached


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def _reach_without_proxy(host: str) -> None:
    """Keeps gRPC from asking a proxy for the coordinator, which then never answers."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return
    # JAX would warn of what is mended here.
    jax.config.update("jax_check_proxy_envs", False)  # type: ignore[no-untyped-call]
    present = os.environ.get(_NO_PROXY) or os.environ.get("no_proxy") or ""
    os.environ[_NO_PROXY] = f"{present},{host}" if present else host


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _keep_gloo_on_loopback() -> None:
    """Makes Gloo, which carries arrays between CPU processes, listen on 127.0.0.1.

    By itself it listens on the address that the machine's own name resolves to: on a laptop or in
    a container often none, and then the CPU backend does not start. JAX has no setting for it, so
    its call of the factory is given the argument. Where a release has moved the factory, Gloo
    does what it did before.
    """
    from jax._src import xla_bridge

    module: Any = getattr(xla_bridge, "_jax", None)
    make = getattr(module, "make_gloo_tcp_collectives", None)
    if make is not None:
        module.make_gloo_tcp_collectives = functools.partial(make, hostname="127.0.0.1")
