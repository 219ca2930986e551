"""Tasks that are answered from a table, in place of pods; and pipelines compiled on the spot."""

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fakes.kfp.driver import Driver, Executed, Task
from fakes.kfp.ir import Pipeline, load
from fakes.kfp.scope import Ended, Run

from kfp import compiler

RUN = Run(id="5e0d2f0e-7a51-4f6b-9d2c-1b1f6c0f8a11", workflow="tested-x7k2p")
ROOT = "minio://mlpipeline/v2/artifacts"
# What a task without an answer gives.
_NOTHING: dict[str, Any] = {
    "STRING": "",
    "NUMBER_INTEGER": 0,
    "NUMBER_DOUBLE": 0.5,
    "BOOLEAN": False,
    "LIST": [],
    "STRUCT": {},
}
Answer = Callable[[dict[str, Any]], Any]


def compiled(pipeline: Any, folder: Path) -> Pipeline:
    """Returns a pipeline as KFP's compiler writes it."""
    path = folder / "pipeline.yaml"
    compiler.Compiler().compile(pipeline, str(path))
    return load(path)


class Answers:
    """Executes tasks by functions of their input parameters; an exception is a failed task.

    Attributes:
        tasks: All that were executed, in the order of their start.
    """

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self._answers = answers
        self.tasks: list[Task] = []

    def __call__(self, task: Task) -> Executed:
        self.tasks.append(task)
        answer = self._answers.get(task.name)
        inputs = task.given["inputs"].get("parameterValues", {})
        try:
            value = answer(inputs) if answer else None
        except RuntimeError as error:
            return Executed(False, why=str(error))
        outputs = task.component.get("outputDefinitions", {}).get("parameters", {})
        values = {name: _NOTHING[spec["parameterType"]] for name, spec in outputs.items()}
        return Executed(True, {"parameterValues": values | ({"Output": value} if answer else {})})

    def inputs(self, name: str) -> list[dict[str, Any]]:
        """Returns what each execution of a task got."""
        return [
            task.given["inputs"].get("parameterValues", {})
            for task in self.tasks
            if task.name == name
        ]


def drive(pipeline: Pipeline, answers: Answers, **arguments: Any) -> Ended:
    """Runs a pipeline whose uuids are uuid-1, uuid-2 and so on."""
    numbers = itertools.count(1)
    driver = Driver(pipeline, RUN, ROOT, answers, lambda: f"uuid-{next(numbers)}")
    return driver.start(arguments)
