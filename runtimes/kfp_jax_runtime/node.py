"""The environment of a node, read once into one value."""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kfp_jax_store import is_remote, join

from kfp_jax_runtime.errors import BadInput


@dataclass(frozen=True)
class Node:
    """What the backend told this process about itself and its job."""

    process_index: int
    process_count: int
    coordinator: str
    """host:port of process 0; empty for a single process."""
    bind_address: str
    """Where process 0 listens; empty leaves the choice to JAX."""
    job: str
    attempt: int
    parameters: Mapping[str, object]
    output_dir: Path
    checkpoint_uri: str
    dataset_dir: Path | None
    shared_dir: Path
    output_uri: str = ""
    """Where in an object store what lies in `output_dir` goes; empty where that is the place."""
    dataset_uri: str = ""
    """Where in an object store the dataset is; empty where `dataset_dir` is the place."""
    scratch: Path | None = None
    """A folder of this process alone, removed when it ends; None without an object store."""

    @property
    def distributed(self) -> bool:
        """Whether there is anyone to join."""
        return self.process_count > 1


def from_environment(environ: Mapping[str, str]) -> Node:
    """Returns the node that `environ` describes; an empty variable counts as absent.

    Raises:
        BadInput: a variable is malformed, or one that the others need is missing.
    """
    count = _whole(environ, "JAX_NUM_PROCESSES", default=1, least=1)
    output, dataset = (
        environ.get(name, "") for name in ("KFP_JAX_OUTPUT_URI", "KFP_JAX_DATASET_URI")
    )
    index = _process_index(environ, count)
    if count > 1:
        _check_slice(environ, index, count)
    scratch = _scratch(environ, index) if is_remote(output) else None
    output_dir = scratch / "output" if scratch else _directory(environ, "KFP_JAX_OUTPUT_URI")
    if output_dir is None:
        raise BadInput(
            "KFP_JAX_OUTPUT_URI is not set in this node; set it to the folder that takes the "
            "job's results"
        )
    return Node(
        process_index=index,
        process_count=count,
        coordinator=_coordinator(environ) if count > 1 else "",
        bind_address=environ.get("JAX_COORDINATOR_BIND_ADDRESS", ""),
        job=environ.get("KFP_JAX_JOB", ""),
        # A cluster restarts the set within one attempt and counts that apart.
        attempt=_whole(environ, "KFP_JAX_ATTEMPT", default=1, least=1)
        + _whole(environ, "KFP_JAX_RESTARTS", default=0, least=0),
        parameters=parameters(environ),
        output_dir=output_dir,
        checkpoint_uri=_absolute(environ.get("KFP_JAX_CHECKPOINT_URI", ""))
        or (join(output, "checkpoints") if scratch else str(output_dir / "checkpoints")),
        dataset_dir=None if is_remote(dataset) else _directory(environ, "KFP_JAX_DATASET_URI"),
        shared_dir=_shared(environ)
        # Apart from the results, or the store would get what a program prepares for itself.
        or (scratch / "shared" if scratch else output_dir),
        output_uri=output if scratch else "",
        dataset_uri=dataset if is_remote(dataset) else "",
        scratch=scratch,
    )


def parameters(environ: Mapping[str, str]) -> Mapping[str, object]:
    """Returns the parameters of the job.

    Raises:
        BadInput: they are not one JSON object.
    """
    text = environ.get("KFP_JAX_PARAMETERS", "") or "{}"
    try:
        value = json.loads(text)
    except ValueError as error:
        raise BadInput(f"KFP_JAX_PARAMETERS is not JSON ({error}): {text[:80]!r}") from error
    if not isinstance(value, dict):
        raise BadInput(
            "KFP_JAX_PARAMETERS must be a JSON object of parameter names and values, "
            f"not {text[:80]!r}"
        )
    return value


def _process_index(environ: Mapping[str, str], count: int) -> int:
    if count == 1:
        return 0
    index = _whole(environ, "JAX_PROCESS_ID", default=None, least=0)
    if index >= count:
        raise BadInput(
            f"JAX_PROCESS_ID is {index} but JAX_NUM_PROCESSES is {count}; "
            f"it must be at most {count - 1}"
        )
    return index


def _check_slice(environ: Mapping[str, str], index: int, count: int) -> None:
    """Compares our numbers with those that GKE gave the hosts of a slice of TPUs.

    Ours are passed to JAX all the same: without arguments it takes GKE's, but asks Google's
    metadata server for what a job of one slice has no variables for.

    Raises:
        BadInput: the slice is not the job, or its hosts are numbered otherwise.
    """
    hosts = environ.get("TPU_PROCESS_ADDRESSES") or environ.get("TPU_WORKER_HOSTNAMES")
    if not hosts or not environ.get("JAX_PLATFORMS", "").startswith("tpu"):
        return
    slices = _whole(environ, "MEGASCALE_NUM_SLICES", default=1, least=1)
    size = len(hosts.split(","))
    number = _whole(environ, "MEGASCALE_SLICE_ID", default=0, least=0) * size
    number += _whole(environ, "TPU_WORKER_ID", default=None, least=0)
    if (number, size * slices) != (index, count):
        raise BadInput(
            f"this is host {number} of {size * slices} of its slice of TPUs but process {index} of "
            f"{count} of the job; give the job as many nodes as the slice has hosts"
        )


def _coordinator(environ: Mapping[str, str]) -> str:
    address = environ.get("JAX_COORDINATOR_ADDRESS", "")
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise BadInput(
            "JAX_COORDINATOR_ADDRESS must be host:port of process 0 when JAX_NUM_PROCESSES is "
            f"more than 1, not {address!r}"
        )
    return address


def _whole(environ: Mapping[str, str], name: str, *, default: int | None, least: int) -> int:
    text = environ.get(name, "").strip()
    if not text and default is not None:
        return default
    if not text.isdecimal() or int(text) < least:
        raise BadInput(f"{name} must be a whole number of at least {least}, not {text!r}")
    return int(text)


def folder(name: str, uri: str) -> Path:
    """Returns the absolute path of a folder that is given as a path or as a file:// URI.

    Args:
        name: what it is, for the message.
        uri: where it is.

    Raises:
        BadInput: the URI is of another kind.
    """
    path = _absolute(uri)
    if "://" in path:
        raise BadInput(f"{name} must be a folder that this node can open, not {uri!r}")
    return Path(path)


def _directory(environ: Mapping[str, str], name: str) -> Path | None:
    uri = environ.get(name, "")
    return folder(name, uri) if uri else None


def _shared(environ: Mapping[str, str]) -> Path | None:
    # In a store nothing is shared: each process prepares what it needs.
    name = "KFP_JAX_SHARED_URI"
    return None if is_remote(environ.get(name, "")) else _directory(environ, name)


def _scratch(environ: Mapping[str, str], index: int) -> Path:
    # By process as well as by job: the processes of a local job share this machine.
    job = environ.get("KFP_JAX_JOB", "") or "job"
    return Path(tempfile.gettempdir(), f"kfp-jax-{job}-{index}-{os.getpid()}")


def _absolute(uri: str) -> str:
    # Orbax refuses relative paths, and knows nothing of "~" or "file://".
    if uri.startswith("file://"):
        uri = unquote(urlsplit(uri).path)
    if not uri or "://" in uri:
        return uri
    return str(Path(uri).expanduser().absolute())
