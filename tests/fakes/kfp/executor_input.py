"""What a task is told: its inputs, and where its outputs go."""

from dataclasses import dataclass
from typing import Any

from fakes.kfp.ir import DriverError, Json
from fakes.kfp.scope import Given

OUTPUT_FILE = "/tmp/kfp_outputs/output_metadata.json"
_SCHEMES = {"gs": "/gcs", "minio": "/minio", "s3": "/s3"}


@dataclass(frozen=True)
class Root:
    """Where the artifacts of a run go: `<root>/<pipeline>/<run id>`."""

    uri: str
    pipeline: str
    run: str

    def artifact(self, task: str, salt: str, name: str) -> str:
        return f"{self.uri}/{self.pipeline}/{self.run}/{task}/{salt}/{name}"


def local_path(uri: str) -> str:
    """Returns where a task has an artifact.

    Raises:
        DriverError: Its scheme is none that the launcher knows.
    """
    scheme, _, rest = uri.partition("://")
    if scheme not in _SCHEMES:
        raise DriverError(
            f"failed to generate local path for URI {uri}: unsupported storage scheme"
        )
    return f"{_SCHEMES[scheme]}/{rest}"


def executor_input(
    task: str, component: Json, given: Given, root: Root, salt: str, *, logs: bool = True
) -> Json:
    """Returns the executor input; as in protobuf's JSON what is empty is not there.

    Args:
        task: Its name within its scope.
        component: Its component.
        given: Its inputs.
        root: Where artifacts go.
        salt: A uuid of this execution of the task.
        logs: Whether its log becomes an artifact, as by default.
    """
    defined = component.get("outputDefinitions", {})
    wanted = dict(defined.get("artifacts", {}))
    if logs:
        wanted["executor-logs"] = {"artifactType": {"schemaTitle": "system.Artifact"}}
    artifacts = {
        name: {
            "artifacts": [
                {
                    "name": name,
                    "uri": root.artifact(task, salt, name),
                    "type": spec["artifactType"],
                    "metadata": spec.get("metadata", {}),
                }
            ]
        }
        for name, spec in wanted.items()
    }
    files = {
        name: {"outputFile": f"/tmp/kfp/outputs/{name}"} for name in defined.get("parameters", {})
    }
    inputs = {name: {"artifacts": found} for name, found in given.artifacts.items()}
    return {
        "inputs": _present({"parameterValues": dict(given.parameters), "artifacts": inputs}),
        "outputs": _present(
            {"parameters": files, "artifacts": artifacts, "outputFile": OUTPUT_FILE}
        ),
    }


def _present(values: Json) -> Json:
    return {key: value for key, value in values.items() if value}


def published(given: Json, component: Json, output: Json) -> tuple[Json, dict[str, list[Any]]]:
    """Returns the parameters and artifacts that a successful task gives to others.

    Args:
        given: Its executor input.
        component: Its component.
        output: What it wrote as executor output, with what its launcher read from files.

    Raises:
        DriverError: An output parameter is missing.
    """
    parameters = output.get("parameterValues", {})
    for name in component.get("outputDefinitions", {}).get("parameters", {}):
        if name not in parameters:
            raise DriverError(f"failed to read output parameter name={name!r}")
    artifacts: dict[str, list[Any]] = {}
    for name, listed in given["outputs"].get("artifacts", {}).items():
        (artifact,) = listed["artifacts"]
        told = output.get("artifacts", {}).get(name, {}).get("artifacts", [{}])[0]
        artifacts[name] = [
            {
                **artifact,
                "uri": told.get("uri") or artifact["uri"],
                "metadata": {**artifact["metadata"], **told.get("metadata", {})},
            }
        ]
    return parameters, artifacts
