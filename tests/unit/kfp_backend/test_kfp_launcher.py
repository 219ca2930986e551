"""The double of KFP's launcher, as far as it needs no pod."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import fakes.kfp
import pytest

URI = "minio://mlpipeline/v2/artifacts/mnist/run/train/uuid/model"
COMPONENT: dict[str, Any] = {
    "inputDefinitions": {
        "parameters": {"epochs": {"defaultValue": 3}, "name": {"defaultValue": "x"}, "free": {}}
    },
    "outputDefinitions": {"parameters": {"Output": {"parameterType": "NUMBER_DOUBLE"}}},
}


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The launcher's module, which has its neighbours beside it as in a pod."""
    monkeypatch.syspath_prepend(Path(fakes.kfp.__file__).parent / "launcher")
    import launch

    yield launch
    for name in ("launch", "store"):
        sys.modules.pop(name, None)


def given(folder: Path, **parameters: Any) -> Any:
    return {
        "inputs": {"parameterValues": parameters},
        "outputs": {
            "parameters": {"Output": {"outputFile": str(folder / "Output")}},
            "artifacts": {"model": {"artifacts": [{"uri": URI}]}},
            "outputFile": str(folder / "output.json"),
        },
    }


def test_defaults_are_in_what_the_program_is_told(launch: Any, tmp_path: Path) -> None:
    told = launch.with_defaults(given(tmp_path, name="y"), COMPONENT)
    command = launch.filled(
        ["{{$}}", "{{$.inputs.parameters['epochs']}}", "{{$.outputs.artifacts['model'].path}}"],
        told,
    )
    assert json.loads(command[0])["inputs"]["parameterValues"] == {"epochs": 3, "name": "y"}
    assert command[1:] == ["3", f"/minio/{URI.removeprefix('minio://')}"]


@pytest.mark.parametrize("number", ["NaN", "Infinity"])
def test_what_is_no_json_fails_a_task_that_succeeded(
    launch: Any, tmp_path: Path, number: str
) -> None:
    (tmp_path / "output.json").write_text(f'{{"parameterValues": {{"Output": {number}}}}}')
    with pytest.raises(launch.LauncherError, match=f"invalid value {number}"):
        launch.collected(given(tmp_path), COMPONENT)


def test_outputs_may_be_in_files_of_their_own_but_not_missing(launch: Any, tmp_path: Path) -> None:
    with pytest.raises(launch.LauncherError, match="failed to read output parameter name='Output'"):
        launch.collected(given(tmp_path), COMPONENT)
    (tmp_path / "Output").write_text("0.5")
    assert launch.collected(given(tmp_path), COMPONENT) == {"parameterValues": {"Output": 0.5}}


def test_outputs_stay_below_the_runs_root(launch: Any) -> None:
    root = URI.removesuffix("/train/uuid/model")
    launch.upload("model", URI, root, None)
    launch.upload("model", "pvc://claim/model", root, None)
    with pytest.raises(launch.LauncherError, match="does not have expected bucket prefix"):
        launch.upload("model", URI.replace("/run/", "/cached-run/"), root, None)
