"""Command line and environment of a node: the same for a TrainJob and a JobSet."""

from collections.abc import Mapping
from typing import Any

from kfp_jax.errors import SpecError
from kfp_jax.manifests.identity import Identity
from kfp_jax.spec import TrainSpec, parameters_json

NODE = "node"  # the replicated job and its container: Trainer looks for both by this name
PORT = 29500  # where process 0 listens; Trainer's JAX plugin has it built in
JAX_PREFIX = "JAX_"
MAX_ITEMS = 128  # arguments, and variables, that a TrainJob takes
MAX_BYTES = 128 * 1024 - 1  # Linux takes no longer argument or variable, see E2BIG

_PROCESS_ID = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_RESTARTS = "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"


def command(spec: TrainSpec) -> list[str]:
    """Returns the container's command: our bootstrap with the program, or the user's own argv.

    Raises:
        SpecError: An argument is longer, or there are more, than can be passed.
    """
    argv = spec.command or ("python", "-m", "kfp_jax_runtime.bootstrap", spec.program)
    if len(argv) > MAX_ITEMS:
        raise SpecError(
            f"command has {len(argv)} arguments, but a job takes at most {MAX_ITEMS}; put them into"
            " parameters or a file."
        )
    for item in argv:
        _check_size(f"command argument {item!r:.40}", item)
    return [literal(item) for item in argv]


def shared_env(spec: TrainSpec, identity: Identity) -> list[dict[str, Any]]:
    """Returns the variables that we set in every node on either backend, in the order of use.

    None of them begins with JAX_: in a TrainJob those are the plugin's to set.

    Raises:
        SpecError: One is too long, or there are too many.
    """
    host = coordinator_host(identity)
    count = str(spec.num_nodes)
    own: dict[str, str] = {
        # The names that JAXJob v1 gave: its scripts run unchanged.
        "COORDINATOR_ADDRESS": host,
        "COORDINATOR_PORT": str(PORT),
        "NUM_PROCESSES": count,
        "KFP_JAX_PARAMETERS": parameters_json(spec.parameters),
        "KFP_JAX_OUTPUT_URI": spec.output_uri,
        "KFP_JAX_CHECKPOINT_URI": spec.checkpoints,
        "KFP_JAX_DATASET_URI": spec.dataset_uri,
        **({"KFP_JAX_SHARED_URI": spec.shared_uri} if spec.shared_uri else {}),
        "KFP_JAX_JOB": identity.name,
        "KFP_JAX_ATTEMPT": str(identity.attempt),
    }
    users = {name: value for name, value in spec.env.items() if not name.startswith(JAX_PREFIX)}
    env = [
        *_values({"PYTHONUNBUFFERED": "1"} | users | own),
        _from_pod("PROCESS_ID", _PROCESS_ID),
        _from_pod("KFP_JAX_RESTARTS", _RESTARTS),
        *(_from_secret(name, reference) for name, reference in spec.pods.secret_env.items()),
    ]
    if len(env) > MAX_ITEMS:
        raise SpecError(
            f"env and secret_env make {len(env)} variables with ours, but a job takes at most"
            f" {MAX_ITEMS}; put some into parameters or a file."
        )
    return env


def jax_env(spec: TrainSpec, defaults: Mapping[str, str]) -> list[dict[str, Any]]:
    """Returns the user's JAX_* variables over those of the accelerator."""
    users = {name: value for name, value in spec.env.items() if name.startswith(JAX_PREFIX)}
    return _values({**defaults, **users})


def process_env(spec: TrainSpec, identity: Identity) -> list[dict[str, Any]]:
    """Returns the variables that Trainer's JAX plugin would set."""
    return [
        *_values({"JAX_NUM_PROCESSES": str(spec.num_nodes)}),
        _from_pod("JAX_PROCESS_ID", _PROCESS_ID),
        *_values({"JAX_COORDINATOR_ADDRESS": f"{coordinator_host(identity)}:{PORT}"}),
    ]


def coordinator_host(identity: Identity) -> str:
    """Returns the name of process 0 in the namespace's DNS."""
    return f"{identity.name}-{NODE}-0-0.{identity.name}"


def literal(text: str) -> str:
    """Returns text that the kubelet hands on as it was: it takes $(NAME) for a variable."""
    return text.replace("$", "$$")


def _values(values: Mapping[str, str]) -> list[dict[str, Any]]:
    for name, value in values.items():
        _check_size(f"Variable {name}", f"{name}={value}")
    # No value is the empty one. Kueue would leave it out, and the server take that for a change of
    # what may not change: a job with one never left its queue.
    given = {name: {"value": literal(value)} if value else {} for name, value in values.items()}
    return [{"name": name, **value} for name, value in given.items()]


def _from_pod(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _from_secret(name: str, reference: str) -> dict[str, Any]:
    secret, _, key = reference.partition("/")
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _check_size(what: str, text: str) -> None:
    size = len(text.encode())
    if size > MAX_BYTES:
        raise SpecError(
            f"{what} has {size:,} bytes, but Linux takes at most {MAX_BYTES:,}; put it into a file."
        )
