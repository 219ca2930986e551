"""What to train: one frozen value, checked when it is made, JSON both ways."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from kfp_jax.checks import as_text, known_keys, whole
from kfp_jax.errors import SpecError
from kfp_jax.pods import Pods

MAX_NODES = 10_000
MAX_NAME = 100
# Linux allows 128 KiB for one argument or variable, and KFP passes parameters as an argument.
MAX_PARAMETERS_BYTES = 64 * 1024

# Set for every process by the backend. A user's own value would make all processes the same one.
RESERVED_ENV = frozenset(
    {
        "JAX_COORDINATOR_ADDRESS",
        "JAX_COORDINATOR_BIND_ADDRESS",
        "JAX_NUM_PROCESSES",
        "JAX_PROCESS_ID",
        "COORDINATOR_ADDRESS",
        "COORDINATOR_PORT",
        "NUM_PROCESSES",
        "PROCESS_ID",
    }
)
_DOTTED = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
_PROGRAM = re.compile(rf"{_DOTTED}(:[A-Za-z_]\w*)?")
_ENV_NAME = re.compile(r"[A-Za-z_]\w*")


CLAIM_SCHEME = "pvc://"
"""Begins the URI of a folder that only the pods of a job see: claim, then path."""


@dataclass(frozen=True)
class Limits:
    """How long each stage of a job may take, in seconds; 0 means no limit.

    Attributes:
        queue: Waiting for a queue to admit the job. Counts against no other limit.
        start: From admission until every process has joined.
        stall: Without one line of output from any process.
        deadline: From admission to the end.
    """

    queue: float = 0.0
    start: float = 900.0
    stall: float = 1800.0
    deadline: float = 0.0

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and value >= 0):  # NaN is not >= 0 either
                raise SpecError(
                    f"Limit {item.name} is {value!r}; give seconds >= 0, where 0 means no limit."
                )


@dataclass(frozen=True, kw_only=True)
class TrainSpec:
    """One training job.

    Attributes:
        name: Readable name; the job's name begins with it.
        program: `module` or `module:function` (default function `main`), or "" with a command.
        command: Arguments of a program that knows nothing of kfp-jax, or () with a program;
            numbers become text.
        parameters: JSON object handed to the program.
        num_nodes: How many nodes; locally, how many processes.
        output_uri: Folder that receives all results.
        dataset_uri: Folder of a prepared dataset, or "".
        shared_uri: Folder that several jobs share, such as the trials of a sweep, or "": what a
            program prepares for itself is prepared there once.
        checkpoint_uri: Folder of the checkpoints; by default `checkpoints` in `output_uri`.
        env: More variables for every process.
        max_restarts: How often the whole set is started again after a failure.
        objective: Metric that the result must hold, or "".
        limits: How long each stage may take.
        pods: What the job's pods are on a cluster.

    Raises:
        SpecError: A value is wrong; the message names it and says what is valid.
    """

    name: str
    output_uri: str
    program: str = ""
    command: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    num_nodes: int = 1
    dataset_uri: str = ""
    shared_uri: str = ""
    checkpoint_uri: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    max_restarts: int = 0
    objective: str = ""
    limits: Limits = field(default_factory=Limits)
    pods: Pods = field(default_factory=Pods)

    def __post_init__(self) -> None:
        object.__setattr__(self, "command", tuple(as_text(item) for item in self.command))
        env = {name: as_text(value) for name, value in self.env.items()}
        object.__setattr__(self, "env", env)
        _check_name(self.name)
        _check_program(self.program, self.command)
        _check_env(self.env)
        _check_secret_env(self.pods.secret_env, self.env)
        if not self.output_uri:
            raise SpecError("output_uri is empty; name the folder that receives the results.")
        parameters_json(self.parameters)
        object.__setattr__(self, "num_nodes", whole("num_nodes", self.num_nodes, 1, MAX_NODES))
        object.__setattr__(self, "max_restarts", whole("max_restarts", self.max_restarts, 0, 1000))

    @property
    def checkpoints(self) -> str:
        """The folder of the checkpoints."""
        return self.checkpoint_uri or f"{self.output_uri.rstrip('/')}/checkpoints"

    def to_json(self) -> dict[str, Any]:
        """Returns the spec as a JSON object."""
        return asdict(self) | {"command": list(self.command)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Returns the spec that `to_json` gave.

        Raises:
            SpecError: A key is unknown or a value is wrong.
        """
        known_keys("the training spec", data, (item.name for item in fields(cls)))
        try:
            return cls(
                **{
                    **data,
                    "limits": Limits(**data.get("limits", {})),
                    "command": tuple(data.get("command", ())),
                    "pods": Pods.from_json(data.get("pods", {})),
                }
            )
        except TypeError as error:
            raise SpecError(f"Not a training spec: {error}.") from error

    def hash(self) -> str:
        """Returns 16 hexadecimal digits that are equal for equal specs."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def parameters_json(parameters: Mapping[str, Any]) -> str:
    """Returns the program's parameters as one strict JSON object.

    Raises:
        SpecError: They are no JSON object or larger than 64 KiB.
    """
    if not isinstance(parameters, Mapping):
        raise SpecError(f"parameters is {parameters!r:.80}; give a JSON object.")
    for name, value in parameters.items():
        if not isinstance(name, str):
            raise SpecError(f"Parameter name {name!r:.80} is not a string.")
        if isinstance(value, float) and not math.isfinite(value):
            raise SpecError(f"Parameter {name} is {value}; give a finite number.")
    try:
        text = json.dumps(dict(parameters), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise SpecError(f"parameters cannot be written as JSON: {error}.") from error
    if len(text) > MAX_PARAMETERS_BYTES:
        raise SpecError(
            f"parameters take {len(text):,} bytes as JSON, but at most {MAX_PARAMETERS_BYTES:,}"
            " can be passed; put large values into a file of the dataset."
        )
    return text


def check_not_reserved(what: str, name: str) -> None:
    """Refuses a variable that is ours to set.

    Raises:
        SpecError: `what` sets one of `RESERVED_ENV` or of KFP_JAX_*.
    """
    if name in RESERVED_ENV or name.startswith("KFP_JAX_"):
        raise SpecError(
            f"{what} sets {name}, which kfp-jax sets for each process; reserved are KFP_JAX_* and"
            f" {', '.join(sorted(RESERVED_ENV))}."
        )


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not name.isprintable():
        size = f" of {len(name)} characters" if isinstance(name, str) else ""
        raise SpecError(
            f"name {name!r:.40}{size} is not valid; give 1 to {MAX_NAME} printable characters."
        )


def _check_program(program: str, command: tuple[str, ...]) -> None:
    if bool(program) == bool(command):
        raise SpecError(
            f"program is {program!r:.80} and command is {list(command)!r:.80}; give exactly one of"
            " them."
        )
    if program and not _PROGRAM.fullmatch(program):
        raise SpecError(
            f"program {program!r:.80} is not valid; write module or module:function, for example"
            " kfp_jax_runtime.mnist or my_package.train:main."
        )
    for item in command:
        if "\0" in item:
            raise SpecError(f"command holds {item!r:.80}; no argument can hold a NUL.")


def _check_env(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        check_not_reserved("env", name)
        if not _ENV_NAME.fullmatch(name) or "\0" in value:
            raise SpecError(
                f"env has {name!r:.60}={value!r:.60}; give a name of letters, digits and _, and"
                " text without NUL."
            )


def _check_secret_env(secret_env: Mapping[str, str], env: Mapping[str, str]) -> None:
    for name in secret_env:
        check_not_reserved("secret_env", name)
        if not _ENV_NAME.fullmatch(name):
            raise SpecError(f"secret_env has {name!r:.60}; give a name of letters, digits and _.")
        if name in env:
            raise SpecError(f"{name} is in env and in secret_env; give it once.")
