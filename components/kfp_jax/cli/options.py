"""Options that several commands share, and how their text becomes a spec."""

import functools
import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from kfp_jax.checks import json_object
from kfp_jax.errors import SpecError
from kfp_jax.pods import Pods, Volume
from kfp_jax.spec import Limits, TrainSpec

Program = Annotated[
    str,
    typer.Option("--program", help="module or module:function that trains.", show_default=False),
]
Command = Annotated[
    list[str] | None,
    typer.Argument(help="Or, after --, any command.", show_default=False),
]
Nodes = Annotated[int, typer.Option("--nodes", "-n", help="How many processes train together.")]
Parameters = Annotated[
    list[str] | None,
    typer.Option("--parameter", "-p", help="name=value for the program; repeat it."),
]
# Text: a Path would make one slash of the two in a URI.
Output = Annotated[
    str, typer.Option("--output", "-o", help="Folder for everything the job writes.")
]
Dataset = Annotated[str, typer.Option("--dataset", help="Folder of a prepared dataset.")]
Name = Annotated[str, typer.Option("--name", help="What to call the job.")]
Objective = Annotated[
    str, typer.Option("--objective", help="Fail unless the program gives this metric.")
]
MaxRestarts = Annotated[
    int, typer.Option("--max-restarts", help="Starts again from the last checkpoint.")
]
Stall = Annotated[
    float, typer.Option("--stall-seconds", help="End after so long in silence; 0: never.")
]
Deadline = Annotated[float, typer.Option("--deadline-seconds", help="End after so long; 0: never.")]
BackendName = Annotated[
    str, typer.Option("--backend", help="Where to run: auto, local, trainer or jobset.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print result.json and nothing else.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
JobName = Annotated[str, typer.Argument(help="The job's name, as `kfp-jax list` shows it.")]
Namespace = Annotated[
    str, typer.Option("--namespace", help="Namespace on the cluster; else that of the context.")
]
Context = Annotated[
    str, typer.Option("--context", help="Context of the kubeconfig; else its current one.")
]
_CLUSTER = "On a cluster"
Image = Annotated[str, typer.Option("--image", help="Container image.", rich_help_panel=_CLUSTER)]
Cpu = Annotated[
    str, typer.Option("--cpu", help="Cores of a node: 4, 500m.", rich_help_panel=_CLUSTER)
]
Memory = Annotated[
    str, typer.Option("--memory", help="Memory of a node: 16Gi.", rich_help_panel=_CLUSTER)
]
Gpus = Annotated[
    str,
    typer.Option(
        "--gpus",
        help="GPUs of a node: 4; or other devices: google.com/tpu=4.",
        rich_help_panel=_CLUSTER,
    ),
]
VolumeClaims = Annotated[
    list[str] | None,
    typer.Option(
        "--volume",
        help="claim:/path[:ro], a PersistentVolumeClaim and where nodes see it; repeat it.",
        rich_help_panel=_CLUSTER,
    ),
]
Queue = Annotated[
    str, typer.Option("--queue", help="Kueue's local queue.", rich_help_panel=_CLUSTER)
]
Priority = Annotated[
    str,
    typer.Option(
        "--priority",
        help="Its place in the queue: a WorkloadPriorityClass.",
        rich_help_panel=_CLUSTER,
    ),
]
PodsJson = Annotated[
    str,
    typer.Option(
        "--pods",
        help="All else of the pods, as JSON or a file of it: docs/on-a-cluster.md.",
        rich_help_panel=_CLUSTER,
    ),
]


CommandFunction = Callable[..., None]


def takes(make: Callable[..., Any]) -> Callable[[CommandFunction], CommandFunction]:
    """Gives a command all options of `make`; it gets what that made as first argument."""
    shared = inspect.signature(make).parameters

    def decorate(command: CommandFunction) -> CommandFunction:
        own = list(inspect.signature(command).parameters.values())[1:]

        def with_options(**values: Any) -> None:
            command(make(**{name: values.pop(name) for name in shared}), **values)

        parameters = [*shared.values(), *own]
        with_options.__doc__ = command.__doc__
        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {item.name: item.annotation for item in parameters}
        return with_options

    return decorate


def pods_of_options(
    *,
    image: Image = "",
    cpu: Cpu = "",
    memory: Memory = "",
    gpus: Gpus = "",
    volume: VolumeClaims = None,
    queue: Queue = "",
    priority: Priority = "",
    pods: PodsJson = "",
) -> Pods:
    """Returns the pods that the options describe; single options win over `--pods`.

    Raises:
        SpecError: An option is wrong.
    """
    base = Pods.from_json(read_json(pods, "--pods")) if pods else Pods()
    resources = replace(
        base.resources,
        cpu=cpu or base.resources.cpu,
        memory=memory or base.resources.memory,
        accelerators=_devices(gpus) or base.resources.accelerators,
    )
    return replace(
        base,
        image=image or base.image,
        resources=resources,
        volumes=(*base.volumes, *(_claim(item) for item in volume or ())),
        queue=queue or base.queue,
        priority=priority or base.priority,
    )


def train_spec(
    *,
    program: Program = "",
    command: Command = None,
    nodes: Nodes = 1,
    parameter: Parameters = None,
    output: Output = "output",
    dataset: Dataset = "",
    name: Name = "",
    objective: Objective = "",
    max_restarts: MaxRestarts = 0,
    stall_seconds: Stall = 1800.0,
    deadline_seconds: Deadline = 0.0,
    image: Image = "",
    cpu: Cpu = "",
    memory: Memory = "",
    gpus: Gpus = "",
    volume: VolumeClaims = None,
    queue: Queue = "",
    priority: Priority = "",
    pods: PodsJson = "",
) -> TrainSpec:
    """Returns the spec that the options describe.

    Raises:
        SpecError: An option is wrong.
    """
    if not program and not command:
        raise SpecError("No program was given; name one with --program, or a command after --.")
    return TrainSpec(
        name=name or (program.partition(":")[0].rpartition(".")[2] if program else "job"),
        program=program,
        command=tuple(command or ()),
        parameters=read_assignments(parameter, "-p"),
        num_nodes=nodes,
        output_uri=output,
        dataset_uri=dataset,
        max_restarts=max_restarts,
        objective=objective,
        limits=Limits(stall=stall_seconds, deadline=deadline_seconds),
        pods=pods_of_options(
            image=image,
            cpu=cpu,
            memory=memory,
            gpus=gpus,
            volume=volume,
            queue=queue,
            priority=priority,
            pods=pods,
        ),
    )


takes_spec = takes(train_spec)
takes_pods = takes(pods_of_options)


def read_assignments(items: list[str] | None, option: str) -> dict[str, Any]:
    """Returns `name=value` items as a mapping; a value that is JSON is taken as JSON.

    Raises:
        SpecError: As `assignments`.
    """
    values: dict[str, Any] = {}
    for name, text in assignments(items, option).items():
        try:
            values[name] = json.loads(text)
        except (ValueError, RecursionError):
            values[name] = text
    return values


def assignments(items: list[str] | None, option: str) -> dict[str, str]:
    """Returns `name=value` items as a mapping to text.

    Raises:
        SpecError: An item has no `=` or no name, or comes twice.
    """
    values: dict[str, str] = {}
    for item in items or ():
        name, equals, text = item.partition("=")
        if not equals or not name:
            raise SpecError(f"{option} {item!r:.80} is not valid; write {option} name=value.")
        if name in values:
            raise SpecError(f"{option} {name} is given twice; give it once.")
        values[name] = text
    return values


def _devices(text: str) -> dict[str, Any]:
    """Returns `4` as so many NVIDIA GPUs, and `name=4` as so many of that device."""
    name, equals, count = text.rpartition("=")
    if not text:
        return {}
    return {name if equals else "nvidia.com/gpu": count}


def _claim(text: str) -> Volume:
    """Returns the volume of `claim:/path` or `claim:/path:ro`.

    Raises:
        SpecError: It is not written so.
    """
    claim, _, rest = text.partition(":")
    path, colon, mode = rest.partition(":")
    if not claim or not path.startswith("/") or (colon and mode != "ro"):
        raise SpecError(
            f"--volume {text!r:.80} is not valid; write --volume claim:/path, or claim:/path:ro to"
            " read only. Other volumes go into --pods."
        )
    return Volume(
        name=claim.replace(".", "-"),
        mount_path=path,
        source={"persistentVolumeClaim": {"claimName": claim}},
        read_only=mode == "ro",
    )


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number in JSON")


def read_json(text: str, option: str) -> dict[str, Any]:
    """Returns the JSON object that is the text, or is in the file that it names.

    Raises:
        SpecError: It is neither.
    """
    source = option
    if not text.lstrip().startswith("{"):
        source = f"{option} {text}"
        try:
            text = Path(text).read_text(encoding="utf-8")
        except OSError as error:
            raise SpecError(
                f"{source} cannot be read: {error.strerror}; give a file, or the JSON itself."
            ) from error
    try:
        each_once = functools.partial(_each_once, source)
        found = json.loads(text, parse_constant=_no_number, object_pairs_hook=each_once)
        return json_object(source, found)
    except ValueError as error:
        raise SpecError(f"{source} is no JSON: {error}.") from error


def _each_once(source: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns the object of these members; of two of one name, JSON would drop one in silence.

    Raises:
        SpecError: A name is there twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        name = next(name for name in found if [key for key, _ in pairs].count(name) > 1)
        raise SpecError(f"{source} has {name!r:.60} twice in one object; give it once.")
    return found
