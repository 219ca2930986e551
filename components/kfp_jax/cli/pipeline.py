"""`kfp-jax pipeline`: one of our pipelines on this machine, through kfp.local."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from kfp_jax import storage
from kfp_jax.backends.local import LocalBackend
from kfp_jax.cancellation import Cancellation, cancel_on_signals
from kfp_jax.cli import options
from kfp_jax.cli.progress import Screen, print_summary, shown
from kfp_jax.clock import SystemClock
from kfp_jax.errors import JobCancelled, JobFailed, KfpJaxError, SpecError
from kfp_jax.lines import Tail
from kfp_jax.processes import ProcessGroup
from kfp_jax.sinks import EVENTS_VARIABLE, Sink, TaskError, replay
from kfp_jax.spec import TrainSpec
from kfp_jax.sweep.space import Space
from kfp_jax.sweep_folder import LEADERBOARD, TRIALS

_POLL_SECONDS = 0.05
_LOG = "pipeline.log"
_OUTPUTS = "outputs.json"
# Of which task which file is kept under which name.
_KEPT = (
    *(("train", name, name) for name in (storage.RESULT, storage.HISTORY, storage.REPORT)),
    *((task, "leaderboard", LEADERBOARD) for task in ("sweep", "select-best")),
    *((task, "trials_table", TRIALS) for task in ("sweep", "halve", "halve-2", "select-best")),
)


def pipeline(
    name: Annotated[
        str, typer.Argument(help="mnist, mnist-retrain, mnist-sweep, mnist-halving or sweep.")
    ],
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", "-n", help="How many processes train together; mnist: 2, else 1."),
    ] = None,
    parameter: options.Parameters = None,
    argument: Annotated[
        list[str] | None,
        typer.Option("--argument", "-a", help="name=value for the pipeline; repeat it."),
    ] = None,
    output: options.Output = "output",
    backend: options.BackendName = "auto",
    as_json: options.AsJson = False,
) -> None:
    """Run one of our pipelines on this machine; its jobs may be on a cluster.

    Examples:
    kfp-jax pipeline mnist --output build/demo

    kfp-jax pipeline mnist --nodes 4 -p epochs=2 -p learning_rate=0.002 -a min_accuracy=0.99

    kfp-jax pipeline mnist-sweep -p epochs=2 -a max_trials=12 --output build/mnist-sweep
    """
    require_kfp()
    typed, name = name, name.replace("-", "_")
    given: dict[str, Any] = dict(options.assignments(argument, "-a"))
    for taken, option in (("num_nodes", "--nodes"), ("parameters", "-p"), ("backend", "--backend")):
        if taken in given:
            raise SpecError(f"-a {taken} is not for you to set; use {option}.")
    parameters = options.read_assignments(parameter, "-p")
    program = _program(name, typed) or given.get("program", "")
    if "space" in given:
        given["space"] = options.read_json(given["space"], "-a space")
        Space.from_json(given["space"])
    _check_no_null({**given, "parameters": parameters})
    if program:
        restarts = given.get("max_restarts", 0)
        _check_training(typed, program, parameters, nodes, restarts, output, backend)
    # What is not given is as the pipeline has it.
    arguments: dict[str, Any] = {**given, "parameters": parameters, "num_nodes": nodes}
    arguments = {key: value for key, value in arguments.items() if value not in (None, {})}
    if backend != "auto":
        arguments["backend"] = backend
    with storage.output_folder(output) as folder:
        _forget_results(folder)
        tasks = folder / "tasks"
        before = set(tasks.glob("*"))
        try:
            outputs = _run(name, folder, arguments)
        finally:  # a failed training has a report, too
            runs = set(tasks.glob("*")) - before
            _copy_results(runs, folder)
            if as_json:
                _print_result(folder)
    if as_json:
        return
    promoted = outputs.get("promoted", any((run / "promote").is_dir() for run in runs))
    good, rows = (
        (promoted, _training_rows(outputs, folder, promoted))
        if (folder / storage.RESULT).is_file()
        else (True, _sweep_rows(outputs, folder))
    )
    print_summary(f"Pipeline {typed} succeeded", rows, good=good)


def _check_no_null(arguments: Mapping[str, Any]) -> None:
    """Refuses what kfp.local (2.17) ends for with a traceback: it knows no null, however deep."""
    for name, value in arguments.items():
        where = _null_in(value)
        if where is not None:
            option = "-p" if name == "parameters" else f"-a {name}"
            raise SpecError(
                f"{option} holds null in {'.'.join(where) or 'it'}, which kfp.local does not pass"
                " on; leave it out, or give a word that your program takes for it."
            )


def _null_in(value: Any) -> list[str] | None:
    """Returns the way to the first null in a JSON value, or None where it holds none."""
    if value is None:
        return []
    members: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    for name, member in members:
        found = _null_in(member)
        if found is not None:
            return [str(name), *found]
    return None


def _print_result(folder: Path) -> None:
    """Prints the result of the training, or what a pipeline of many trainings returned."""
    for name in (storage.RESULT, _OUTPUTS):
        if (folder / name).is_file():
            sys.stdout.write((folder / name).read_text(encoding="utf-8"))
            return


def _training_rows(outputs: dict[str, Any], folder: Path, promoted: bool) -> dict[str, str]:
    result = storage.read_json(folder / storage.RESULT)
    return {
        "test accuracy": shown("accuracy", outputs["accuracy"]),
        "promoted": "yes" if promoted else f"no, it {_why_not(outputs)}",
        "processes": str(result["num_processes"]),
        "training": f"{result['seconds']['training']:.1f} s",
        "model": outputs["model"],
        "report": str(folder / storage.REPORT),
    }


def _why_not(outputs: dict[str, Any]) -> str:
    if "promoted" in outputs:
        return "does not beat the model in production, or scored less than min_accuracy"
    return "scored less than min_accuracy"


def _sweep_rows(outputs: dict[str, Any], folder: Path) -> dict[str, str]:
    rows = {name: str(value) for name, value in sorted(outputs["parameters"].items())}
    if "accuracy" in outputs:
        rows["test accuracy"] = shown("accuracy", outputs["accuracy"])
    rows["model"] = outputs["model"]
    rows["trials table"] = str(folder / TRIALS)
    rows["leaderboard"] = str(folder / LEADERBOARD)
    return rows


def require_kfp() -> None:
    """Raises SpecError unless kfp is installed."""
    if find_spec("kfp") is None or find_spec("kfp_jax_pipelines") is None:
        raise SpecError(
            "Pipelines need kfp; install it with: pip install 'kfp-jax[kfp,jax,sweep]'."
        )


def _program(name: str, typed: str) -> str:
    """Returns what a pipeline trains, or "" where that is an argument of it.

    Raises:
        SpecError: It is none of ours.
    """
    # By name, because nothing here may depend on the pipelines.
    programs: dict[str, str] = import_module("kfp_jax_pipelines").PROGRAMS
    if name not in programs:
        valid = ", ".join(known.replace("_", "-") for known in programs)
        raise SpecError(f"Pipeline {typed!r:.80} is not one of ours; give one of {valid}.")
    return programs[name]


def _check_training(
    name: str,
    program: str,
    parameters: dict[str, Any],
    nodes: int | None,
    restarts: Any,
    output: str,
    backend: str,
) -> None:
    """Refuses what the training would refuse, before data are prepared for it."""
    spec = TrainSpec(
        name=name,
        program=program,
        parameters=parameters,
        num_nodes=1 if nodes is None else nodes,
        max_restarts=restarts,
        output_uri=output,
    )
    if backend in ("auto", LocalBackend.name):
        with cancel_on_signals() as cancellation:
            LocalBackend().validate(spec, lambda: cancellation.requested)


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
    environ = os.environ | {EVENTS_VARIABLE: str(events), "PYTHONUNBUFFERED": "1"}
    with cancel_on_signals() as cancellation, ProcessGroup() as group, Screen() as screen:
        process = group.start(command, env=environ, output=folder / _LOG)
        with Tail(events) as tail, cancellation.carried_out_by(_end(group)):

            def show(task: str) -> Sink:
                # A signal between two tasks found none to end.
                if cancellation.requested:
                    group.terminate()
                return screen.task(task, label=True)

            failure = _follow(process, tail, show)
    _raise_failure(process.returncode, failure, cancellation, folder / _LOG)
    return storage.read_json(folder / _OUTPUTS)


def _end(group: ProcessGroup) -> Callable[[], None]:
    """Returns what asks a group to stop when it is called, and kills it when it is called again."""
    ways = iter((group.terminate,))
    return lambda: next(ways, group.close)()


def _follow(
    process: "subprocess.Popen[bytes]", events: Tail, show: Callable[[str], Sink]
) -> TaskError | None:
    """Shows events until the process has ended; returns the first error among them."""
    clock = SystemClock()
    sinks: dict[str, Sink] = {}
    failure: TaskError | None = None

    def sink(task: str) -> Sink:
        if task not in sinks:
            sinks[task] = show(task)
        return sinks[task]

    while True:
        ended = process.poll() is not None
        lines = events.read()
        for line in lines or ():
            error = replay(line, sink)
            failure = failure or error
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
        kind = SpecError if returncode == SpecError.exit_code else JobFailed
        raise kind(last[0] if last else f"The pipeline failed; its log is {log}.")


def _forget_results(folder: Path) -> None:
    """Removes what an earlier pipeline left that would be taken for this one's."""
    storage.forget_results(folder)
    for name in (_OUTPUTS, storage.HISTORY, LEADERBOARD, TRIALS):
        (folder / name).unlink(missing_ok=True)


def _copy_results(runs: Iterable[Path], folder: Path) -> None:
    """Copies to the top folder what a person looks for: of the training, or of all trials."""
    for run in runs:
        for task, name, kept in _KEPT:
            if (run / task / name).is_file():
                shutil.copyfile(run / task / name, folder / kept)
