"""Options that several commands share, and how their text becomes a spec."""

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from kfp_jax.errors import SpecError
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
Output = Annotated[
    Path, typer.Option("--output", "-o", help="Folder for everything the job writes.")
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
BackendName = Annotated[str, typer.Option("--backend", help="Where to run: auto or local.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print result.json and nothing else.")]


def takes_spec(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command all options of a spec; it gets the spec made of them as first argument."""
    own = list(inspect.signature(command).parameters.values())[1:]
    shared = inspect.signature(train_spec).parameters

    def with_options(**values: Any) -> None:
        command(train_spec(**{name: values.pop(name) for name in shared}), **values)

    parameters = [*shared.values(), *own]
    with_options.__doc__ = command.__doc__
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {item.name: item.annotation for item in parameters}
    return with_options


def train_spec(
    *,
    program: Program = "",
    command: Command = None,
    nodes: Nodes = 1,
    parameter: Parameters = None,
    output: Output = Path("output"),
    dataset: Dataset = "",
    name: Name = "",
    objective: Objective = "",
    max_restarts: MaxRestarts = 0,
    stall_seconds: Stall = 1800.0,
    deadline_seconds: Deadline = 0.0,
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
        output_uri=str(output),
        dataset_uri=dataset,
        max_restarts=max_restarts,
        objective=objective,
        limits=Limits(stall=stall_seconds, deadline=deadline_seconds),
    )


def read_assignments(items: list[str] | None, option: str) -> dict[str, Any]:
    """Returns `name=value` items as a mapping; a value that is JSON is taken as JSON.

    Raises:
        SpecError: An item has no `=` or no name, or comes twice.
    """
    values: dict[str, Any] = {}
    for item in items or ():
        name, equals, text = item.partition("=")
        if not equals or not name:
            raise SpecError(f"{option} {item!r:.80} is not valid; write {option} name=value.")
        if name in values:
            raise SpecError(f"{option} {name} is given twice; give it once.")
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values
