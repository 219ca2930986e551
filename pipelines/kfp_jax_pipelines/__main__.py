"""Runs or compiles our pipelines: `python -m kfp_jax_pipelines run mnist --folder DIR`.

A program of its own: `kfp.local` cannot be cancelled from within, but a process can. `kfp-jax`
starts it, and needs no kfp itself for that.
"""

import argparse
import ast
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from kfp import compiler, dsl, local

from kfp_jax_pipelines import NAMES

EXIT_BAD_INPUT = 2


def _json_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(text)  # noqa: TRY004  # as of text that is no JSON
    return value


# KFP's names of types, of which the others stay text: how it is read, and what should be given.
_KINDS: dict[str, tuple[Callable[[str], Any], str]] = {
    "Float": (float, "a number"),
    "Integer": (int, "a whole number"),
    "Dict": (_json_object, "a JSON object"),
}


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m kfp_jax_pipelines", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a pipeline on this machine through kfp.local")
    run.add_argument("name", choices=NAMES)
    run.add_argument("--folder", type=Path, required=True, help="receives everything")
    run.add_argument("--arguments", type=json.loads, default={}, help="JSON object")
    build = commands.add_parser("compile", help="write every pipeline as YAML")
    build.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    if options.command == "compile":
        return _compile(options.folder)
    return _run(options.name, options.folder, options.arguments)


def _pipeline(name: str) -> Any:
    return getattr(import_module(f"kfp_jax_pipelines.{name}"), name)


def _compile(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        path = folder / f"{name}.yaml"
        compiler.Compiler().compile(_pipeline(name), str(path))
        path.write_text(_settled(path.read_text(encoding="utf-8")), encoding="utf-8")
        sys.stdout.write(f"{path}\n")
    return 0


def _settled(text: str) -> str:
    """Returns the YAML with the objects in its heading sorted: KFP's order differs at random."""
    return re.sub(r"(?<=\[Default: )\{.*\}(?=\])", lambda found: _sorted(found[0]), text)


def _sorted(text: str) -> str:
    return json.dumps(ast.literal_eval(text), sort_keys=True)


def _run(name: str, folder: Path, arguments: dict[str, Any]) -> int:
    pipeline = _pipeline(name)
    valid = pipeline.component_spec.inputs or {}
    unknown = sorted(set(arguments) - set(valid))
    if unknown:
        sys.stderr.write(
            f"Pipeline {name} has no argument {unknown[0]!r}; valid are"
            f" {', '.join(sorted(valid))}.\n"
        )
        return EXIT_BAD_INPUT
    missing = [key for key, item in valid.items() if not item.optional and key not in arguments]
    if missing:
        sys.stderr.write(f"Pipeline {name} needs argument {missing[0]!r}; give a value for it.\n")
        return EXIT_BAD_INPUT
    try:
        typed = {key: _typed(key, value, valid[key].type) for key, value in arguments.items()}
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_BAD_INPUT
    # SIGTERM goes to the whole process group. The task that gets it too ends its job and fails, and
    # with it the pipeline; to leave before it would hide how it ended. kfp.local starts the rest of
    # a loop all the same; by this variable its trials know, and start no job.
    signal.signal(signal.SIGTERM, lambda *_: os.environ.update(KFP_JAX_CANCELLED="1"))
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(folder / "tasks"))
    outputs = pipeline(**typed).outputs
    values = {
        key: value.uri if isinstance(value, dsl.Artifact) else _whole_numbers(value)
        for key, value in outputs.items()
    }
    (folder / "outputs.json").write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    return 0


def _whole_numbers(value: Any, *, inside: bool = False) -> Any:
    """Returns a value in whose objects and lists whole numbers are such: KFP makes 2 into 2.0."""
    if isinstance(value, dict):
        return {key: _whole_numbers(item, inside=True) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(item, inside=True) for item in value]
    return int(value) if inside and isinstance(value, float) and value.is_integer() else value


def _typed(name: str, value: Any, kind: str) -> Any:
    """Returns an argument as the pipeline's input wants it; a person typed text.

    Raises:
        ValueError: The text is nothing of the kind; the message says what is.
    """
    if not isinstance(value, str) or kind not in _KINDS:
        return value
    make, wanted = _KINDS[kind]
    try:
        return make(value)
    except ValueError:
        raise ValueError(f"Argument {name} is {value!r:.80}; give {wanted}.") from None


if __name__ == "__main__":
    sys.exit(main())
