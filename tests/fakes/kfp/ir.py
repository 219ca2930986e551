"""A compiled pipeline: its spec, and what its second document says of Kubernetes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]


class DriverError(Exception):
    """What the driver fails a task with, before it has a pod."""


@dataclass(frozen=True)
class Pipeline:
    """What the compiler wrote."""

    spec: Mapping[str, Any]
    kubernetes: Mapping[str, Json]

    @property
    def name(self) -> str:
        return str(self.spec["pipelineInfo"]["name"])

    def component(self, name: str) -> Json:
        return dict(self.spec["components"][name])

    def executor(self, component: Mapping[str, Any]) -> Json:
        label = component["executorLabel"]
        executor: Json = self.spec["deploymentSpec"]["executors"][label]
        if "container" not in executor:
            raise DriverError(
                f"executor {label} is {', '.join(executor)}, which the double leaves out"
            )
        return executor["container"]

    def platform(self, component: Mapping[str, Any]) -> Json:
        """Returns what was set by `kfp.kubernetes` on the tasks of a component."""
        return self.kubernetes.get(component["executorLabel"], {})


def load(path: Path) -> Pipeline:
    """Reads what `Compiler().compile` wrote."""
    documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    platforms = documents[1]["platforms"]["kubernetes"] if len(documents) > 1 else {}
    executors = platforms.get("deploymentSpec", {}).get("executors", {})
    return Pipeline(documents[0], executors)
