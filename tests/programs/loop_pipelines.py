"""Loops over the trials of a sweep: `python loop_pipelines.py NAME FOLDER ARGUMENTS`.

Runs a pipeline through kfp.local, and writes what it returned to `outputs.json` in the folder.
"""

import json
import sys
from pathlib import Path
from typing import NamedTuple

from kfp import dsl, local
from kfp_jax.components import halve, select_best, suggest, trial

PROGRAM = "looped:train"


class Outputs(NamedTuple):
    parameters: dict
    model_holds: str
    leaderboard: dsl.HTML
    trials_table: dsl.Dataset
    metrics: dsl.Metrics


@dsl.component(base_image="python", install_kfp_package=False)
def read(model: dsl.Input[dsl.Model]) -> str:
    """Reads the winner as any step after the loop would."""
    from pathlib import Path

    return (Path(model.path) / "parameters.json").read_text()


@dsl.pipeline(name="loop")
def loop(
    space: dict,
    max_trials: int = 0,
    sampler: str = "grid",
    seed: int = 0,
    parameters: dict = {},  # noqa: B006
    max_failed: int = -1,
) -> Outputs:
    items = suggest(space=space, max_trials=max_trials, sampler=sampler, seed=seed)
    with dsl.ParallelFor(items.outputs["Output"], parallelism=2) as item:
        tried = trial(item=item, program=PROGRAM, parameters=parameters, backend="local")
    best = select_best(
        results=dsl.Collected(tried.outputs["Output"]),
        space=space,
        sampler=sampler,
        seed=seed,
        program=PROGRAM,
        parameters=parameters,
        max_failed=max_failed,
    )
    return Outputs(
        parameters=best.outputs["Output"],
        model_holds=read(model=best.outputs["model"]).output,
        leaderboard=best.outputs["leaderboard"],
        trials_table=best.outputs["trials_table"],
        metrics=best.outputs["metrics"],
    )


@dsl.pipeline(name="rounds")
def rounds(space: dict, parameters: dict = {}) -> Outputs:  # noqa: B006
    items = suggest(space=space, max_trials=0, sampler="grid")
    with dsl.ParallelFor(items.outputs["Output"], parallelism=2) as item:
        first = trial(
            item=item, program=PROGRAM, parameters=parameters, budget={"epochs": 1}, backend="local"
        )
    better = halve(results=dsl.Collected(first.outputs["Output"]), keep=2)
    with dsl.ParallelFor(better.outputs["Output"], parallelism=2) as item:
        last = trial(
            item=item, program=PROGRAM, parameters=parameters, budget={"epochs": 3}, backend="local"
        )
    best = select_best(
        results=dsl.Collected(last.outputs["Output"]),
        earlier=better.outputs["trials_table"],
        space=space,
        parameters=parameters,
        budget={"epochs": 3},
    )
    return Outputs(
        parameters=best.outputs["Output"],
        model_holds=read(model=best.outputs["model"]).output,
        leaderboard=best.outputs["leaderboard"],
        trials_table=best.outputs["trials_table"],
        metrics=best.outputs["metrics"],
    )


if __name__ == "__main__":
    name, folder, arguments = sys.argv[1:]
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=f"{folder}/tasks")
    outputs = {"loop": loop, "rounds": rounds}[name](**json.loads(arguments)).outputs
    values = {
        key: value.metadata
        if isinstance(value, dsl.Metrics)
        else value.uri
        if isinstance(value, dsl.Artifact)
        else value
        for key, value in outputs.items()
    }
    (Path(folder) / "outputs.json").write_text(json.dumps(values))
