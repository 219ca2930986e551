"""KFP's launcher: runs in a task's pod, on the standard library alone.

It has no signal handler: a signal to its group is its end. What the real one writes to MLMD is the
last line of its log here.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import store

PUBLISHED = "KFP-PUBLISHED "
LOGS = "executor-logs"
SCHEMES = {"gs": "/gcs", "minio": "/minio", "s3": "/s3"}


class LauncherError(Exception):
    """Fails the task, whatever its program did."""


def main() -> int:
    """Returns the exit code: 1 for every failure."""
    parser = argparse.ArgumentParser()
    for name in ("run_id", "pipeline_root", "executor_input", "component_spec"):
        parser.add_argument(f"--{name}", required=True)
    middle = sys.argv.index("--")
    options, command = parser.parse_args(sys.argv[1:middle]), sys.argv[middle + 1 :]
    given = json.loads(options.executor_input)
    component = json.loads(options.component_spec)
    objects = store.find()
    try:
        output = execute(given, component, command, options.pipeline_root, objects)
    except (LauncherError, store.StoreError) as error:
        sys.stderr.write(f"failed to execute component: {error}\n")
        if LOGS in given["outputs"].get("artifacts", {}):
            upload(LOGS, first(given["outputs"], LOGS)["uri"], options.pipeline_root, objects)
        return 1
    sys.stdout.write(f"\n{PUBLISHED}{json.dumps(output)}\n")
    return 0


def execute(
    given: Any, component: Any, command: list[str], root: str, objects: "store.Store | None"
) -> Any:
    """Runs the program, and returns its output."""
    for listed in given["inputs"].get("artifacts", {}).values():
        for artifact in listed["artifacts"]:
            download(artifact["uri"], objects)
    outputs = given["outputs"]
    for parameter in outputs.get("parameters", {}).values():
        Path(parameter["outputFile"]).parent.mkdir(parents=True, exist_ok=True)
    for name in outputs.get("artifacts", {}):
        local_path(first(outputs, name)["uri"]).parent.mkdir(parents=True, exist_ok=True)
    if run(filled(command, with_defaults(given, component)), outputs) != 0:
        raise LauncherError("exit status 1")
    output = collected(given, component)
    for name in outputs.get("artifacts", {}):
        told = output.get("artifacts", {}).get(name, {}).get("artifacts", [{}])[0]
        uri = told.get("uri") or first(outputs, name)["uri"]
        upload(name, uri, root, objects)
    return output


def first(outputs: Any, name: str) -> Any:
    return outputs["artifacts"][name]["artifacts"][0]


def local_path(uri: str) -> Path:
    scheme, _, rest = uri.partition("://")
    if scheme not in SCHEMES:
        raise LauncherError(f"failed to generate local path for URI {uri}")
    return Path(SCHEMES[scheme]) / rest


def download(uri: str, objects: "store.Store | None") -> None:
    """Fetches an input; one of a scheme that is not known stays where it is."""
    if objects and uri.partition("://")[0] in SCHEMES:
        objects.download(uri, local_path(uri))


def upload(name: str, uri: str, root: str, objects: "store.Store | None") -> None:
    """Stores an output; one that was not written is none the worse."""
    if uri.partition("://")[0] not in SCHEMES:
        sys.stderr.write(f"Output Artifact {name} has no recognized storage URI {uri}.\n")
        return
    if not uri.startswith(f"{root}/"):
        raise LauncherError(
            f"failed to upload output artifact {name!r}: URI {uri} does not have expected bucket"
            f" prefix {root}"
        )
    path = local_path(uri)
    if not path.exists():
        sys.stderr.write(f"Local filepath {path} does not exist\n")
    elif objects:
        objects.upload(path, uri)


def with_defaults(given: Any, component: Any) -> Any:
    """Returns the executor input with the defaults of the component's parameters."""
    definitions = component.get("inputDefinitions", {}).get("parameters", {})
    defaults = {
        name: definition["defaultValue"]
        for name, definition in definitions.items()
        if definition.get("defaultValue") is not None
    }
    values = {**defaults, **given["inputs"].get("parameterValues", {})}
    return {**given, "inputs": {**given["inputs"], "parameterValues": values}}


def filled(command: list[str], given: Any) -> list[str]:
    """Returns the command with its placeholders replaced."""
    found = {"{{$}}": json.dumps(given, ensure_ascii=False)}
    for side in ("inputs", "outputs"):
        for name, listed in given[side].get("artifacts", {}).items():
            uri = listed["artifacts"][0]["uri"]
            found[f"{{{{$.{side}.artifacts['{name}'].uri}}}}"] = uri
            if uri.partition("://")[0] in SCHEMES:
                found[f"{{{{$.{side}.artifacts['{name}'].path}}}}"] = str(local_path(uri))
    for name, value in given["inputs"].get("parameterValues", {}).items():
        text = value if isinstance(value, str) else json.dumps(value)
        found[f"{{{{$.inputs.parameters['{name}']}}}}"] = text
    for name, parameter in given["outputs"].get("parameters", {}).items():
        found[f"{{{{$.outputs.parameters['{name}'].output_file}}}}"] = parameter["outputFile"]
    done = []
    for part in command:
        for placeholder, text in found.items():
            part = part.replace(placeholder, text)
        done.append(part)
    return done


def run(command: list[str], outputs: Any) -> int:
    """Runs the program, whose output goes through here; returns its exit code."""
    logs = local_path(first(outputs, LOGS)["uri"]) if LOGS in outputs.get("artifacts", {}) else None
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as program,
        (logs or Path("/dev/null")).open("wb") as file,
    ):
        assert program.stdout
        while data := program.stdout.read1():
            file.write(data)
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    return program.returncode


def collected(given: Any, component: Any) -> Any:
    """Returns what the program wrote as its output; no JSON has a NaN."""
    path = Path(given["outputs"]["outputFile"])
    output: Any = {}
    if path.exists():
        try:
            output = json.loads(path.read_text(encoding="utf-8"), parse_constant=no_constant)
        except ValueError as error:
            raise LauncherError(
                f"failed to unmarshall ExecutorOutput in file {path}: {error}"
            ) from error
    values = output.setdefault("parameterValues", {})
    for name, parameter in given["outputs"].get("parameters", {}).items():
        if name not in values:
            kind = component["outputDefinitions"]["parameters"][name]["parameterType"]
            try:
                text = Path(parameter["outputFile"]).read_text(encoding="utf-8")
            except OSError as error:
                raise LauncherError(
                    f"failed to read output parameter name={name!r}: {error}"
                ) from error
            values[name] = (
                text if kind == "STRING" else json.loads(text, parse_constant=no_constant)
            )
    return output


def no_constant(name: str) -> None:
    raise ValueError(f"invalid value {name}")


if __name__ == "__main__":
    sys.exit(main())
