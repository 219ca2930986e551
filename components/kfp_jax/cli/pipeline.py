"""`kfp-jax pipeline`: one of our pipelines on this machine, through kfp.local."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from kfp_jax import job_folder, storage
from kfp_jax.backends.lines import Tail
from kfp_jax.backends.processes import ProcessGroup
from kfp_jax.cli import options
from kfp_jax.cli.progress import Screen, print_summary, shown
from kfp_jax.clock import SystemClock
from kfp_jax.errors import JobCancelled, JobFailed, KfpJaxError, SpecError
from kfp_jax.launch import Cancellation, cancel_on_signals
from kfp_jax.sinks import Sink, TaskError, replay

_POLL_SECONDS = 0.05
_LOG = "pipeline.log"
_EXIT_BAD_INPUT = 2


def pipeline(
    name: Annotated[str, typer.Argument(help="mnist.")],
    nodes: options.Nodes = 2,
    parameter: options.Parameters = None,
    argument: Annotated[
        list[str] | None,
        typer.Option("--argument", "-a", help="name=value for the pipeline; repeat it."),
    ] = None,
    output: options.Output = Path("output"),
    as_json: options.AsJson = False,
) -> None:
    """Run one of our pipelines on this machine.

    Examples:
    kfp-jax pipeline mnist --output build/demo

    kfp-jax pipeline mnist --nodes 4 -p epochs=2 -p learning_rate=0.002 -a min_accuracy=0.99
    """
    require_kfp()
    arguments: dict[str, Any] = options.read_assignments(argument, "-a")
    arguments["num_nodes"] = nodes
    arguments["parameters"] = options.read_assignments(parameter, "-p")
    with storage.output_folder(str(output)) as folder:
        outputs = _run(name, folder, arguments)
        result = _collect(outputs, folder)
    if as_json:
        sys.stdout.write((folder / job_folder.RESULT).read_text(encoding="utf-8"))
        return
    promoted = any((folder / "tasks").glob("*/promote"))
    print_summary(
        f"Pipeline {name} succeeded",
        {
            "test accuracy": shown("accuracy", outputs["accuracy"]),
            "promoted": "yes" if promoted else "no, it scored less than min_accuracy",
            "processes": str(result["num_processes"]),
            "training": f"{result['seconds']['training']:.1f} s",
            "model": outputs["model"],
            "report": str(folder / job_folder.REPORT),
        },
        good=promoted,
    )


def require_kfp() -> None:
    """Raises SpecError unless kfp is installed."""
    if find_spec("kfp") is None or find_spec("kfp_jax_pipelines") is None:
        raise SpecError("Pipelines need kfp; install it with: pip install 'kfp-jax[kfp,jax]'.")


def _run(name: str, folder: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    """Runs the pipeline in a process group of its own, and shows what its tasks tell.

    Raises:
        KfpJaxError: It failed; with the sentence and the exit code of the task that did.
    """
    events = folder / "events.jsonl"
    events.write_bytes(b"")
    (folder / _LOG).write_bytes(b"")
    command = [sys.executable, "-m", "kfp_jax_pipelines", "run", name, "--folder", str(folder)]
    command += ["--arguments", json.dumps(arguments)]
    environ = os.environ | {"KFP_JAX_EVENTS": str(events), "PYTHONUNBUFFERED": "1"}
    with cancel_on_signals() as cancellation, ProcessGroup() as group, Screen() as screen:
        process = group.start(command, env=environ, output=folder / _LOG)
        cancellation.bind(group.terminate)
        with Tail(events) as tail:
            failure = _follow(process, tail, screen)
        cancellation.bind(None)
    _raise_failure(process.returncode, failure, cancellation, folder / _LOG)
    return storage.read_json(folder / "outputs.json")


def _follow(process: "subprocess.Popen[bytes]", events: Tail, screen: Screen) -> TaskError | None:
    """Shows events until the process has ended; returns the first error among them."""
    clock = SystemClock()
    sinks: dict[str, Sink] = {}
    failure: TaskError | None = None

    def sink(task: str) -> Sink:
        if task not in sinks:
            sinks[task] = screen.task(task, label=True)
        return sinks[task]

    while True:
        ended = process.poll() is not None
        lines = events.read()
        for line in lines or ():
            failure = failure or replay(line, sink)
        if lines is None:
            if ended:
                return failure
            clock.sleep(_POLL_SECONDS)


def _raise_failure(
    returncode: int, failure: TaskError | None, cancellation: Cancellation, log: Path
) -> None:
    if cancellation.requested:
        raise JobCancelled(f"The pipeline was cancelled; its log is {log}.")
    if failure:
        error = KfpJaxError(failure.text)
        error.exit_code = failure.exit_code
        raise error
    if returncode:
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        kind = SpecError if returncode == _EXIT_BAD_INPUT else JobFailed
        raise kind(last[0] if last else f"The pipeline failed; its log is {log}.")


def _collect(outputs: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Copies the training job's result, history and report to the top folder."""
    job = Path(outputs["model"]).parent
    for file in (job_folder.RESULT, job_folder.HISTORY, job_folder.REPORT):
        shutil.copyfile(job / file, folder / file)
    return storage.read_json(folder / job_folder.RESULT)
