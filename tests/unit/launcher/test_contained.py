"""What a training leaves in its folder leads its launcher nowhere else."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest
from fakes.clock import ManualClock
from fakes.outcomes import SUCCEEDED
from fakes.scripted_backend import Event, ScriptedBackend
from kfp_jax import storage
from kfp_jax.backends.base import LogLine
from kfp_jax.contained import open_text, path_below, refuse_links
from kfp_jax.entry import sweeping
from kfp_jax.errors import KfpJaxError, OutputError
from kfp_jax.history import HistoryFile
from kfp_jax.job_folder import write_report
from kfp_jax.launch import launch
from kfp_jax.production import InProduction, ProductionFolder
from kfp_jax.reports import Kind, Report
from kfp_jax.spec import TrainSpec
from kfp_jax.status import JobStatus, Phase

SECRET = "token-of-the-launcher"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the launcher's own, such as the token of its account."""
    path = tmp_path / "secret"
    path.write_text(SECRET)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "out"
    path.mkdir()
    return path


def as_link(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def as_pipe(path: Path, secret: Path) -> None:
    os.mkfifo(path)


def as_folder(path: Path, secret: Path) -> None:
    path.mkdir()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("planted", [as_link, as_pipe, as_folder])
@pytest.mark.parametrize("mode", ["r", "a", "x"])
def test_only_files_are_opened(
    folder: Path,
    secret: Path,
    planted: Callable[[Path, Path], None],
    mode: Literal["r", "a", "x"],
) -> None:
    planted(folder / "file", secret)
    with pytest.raises(OSError, match="file"):
        open_text(folder / "file", mode)
    assert secret.read_text() == SECRET


WRITERS: dict[str, Callable[[Path], object]] = {
    ".result.json.partial": lambda folder: storage.write_json(folder / "result.json", {}),
    ".lock": lambda folder: storage.output_folder(str(folder)).__enter__(),
    "history.jsonl": lambda folder: HistoryFile(folder / "history.jsonl"),
    ".history.jsonl.partial": lambda folder: rewound(folder),
    "result.json": lambda folder: storage.write_json(folder / "result.json", {}),
    "current.json": lambda folder: ProductionFolder(str(folder)).current(),
}


def rewound(folder: Path) -> None:
    file = HistoryFile(folder / "history.jsonl")
    file.add(Report(Kind.RESTORED, step=1, time=0.0))
    file.close()


@pytest.mark.parametrize("name", WRITERS)
def test_a_link_by_the_name_of_what_the_launcher_writes_is_not_followed(
    folder: Path, secret: Path, name: str
) -> None:
    (folder / name).symlink_to(secret)
    with suppress(KfpJaxError, OSError):
        WRITERS[name](folder)
    assert secret.read_text() == SECRET


@pytest.mark.parametrize("name", ["evaluation.json", "history.jsonl"])
def test_a_report_shows_nothing_that_a_link_leads_to(folder: Path, secret: Path, name: str) -> None:
    secret.write_text(json.dumps({"classes": [SECRET], "confusion": [[1]]}) + "\n")
    storage.write_json(folder / "result.json", SUCCEEDED.to_json())
    (folder / name).symlink_to(secret)
    with pytest.raises((OutputError, OSError)):
        write_report(folder)


@pytest.mark.parametrize(
    "name", ["../secret", "/etc", "a/../../secret", ".", "", "model/.."], ids=repr
)
def test_a_model_elsewhere_is_refused(folder: Path, secret: Path, name: str) -> None:
    with pytest.raises(OutputError, match="is not below"):
        path_below(folder, name, "Model")
    report = {"v": 1, "kind": "result", "time": 0.0, "values": {}, "model": name}
    clock = ManualClock()
    line = LogLine(0, 1, "@kfp-jax " + json.dumps(report))
    backend = ScriptedBackend(clock, [Event(1, JobStatus(Phase.SUCCEEDED), (line,))])
    spec = TrainSpec(name="t", program="p", output_uri=str(folder))
    with pytest.raises(OutputError, match="is not below"):
        launch(spec, backend, clock=clock)
    assert "delete" in backend.calls


def plant(model: Path, secret: Path, how: str) -> None:
    model.mkdir(parents=True, exist_ok=True)
    (model / "model.json").write_text("{}")
    match how:
        case "file":
            (model / "params").symlink_to(secret)
        case "relative":
            (model / "params").symlink_to(os.path.relpath(secret, model))
        case "folder":
            (model / "params").symlink_to(secret.parent)
        case "itself":
            shutil.rmtree(model)
            model.symlink_to(secret.parent)
        case "dangling":
            (model / "params").symlink_to("/not/there")


LINKS = ("file", "relative", "folder", "itself", "dangling")


@pytest.mark.parametrize("how", LINKS)
def test_a_model_that_links_elsewhere_is_taken_along_by_nobody(
    folder: Path, secret: Path, tmp_path: Path, how: str
) -> None:
    model = folder / "model"
    plant(model, secret, how)
    clock = ManualClock()
    backend = ScriptedBackend(clock, [Event(1, JobStatus(Phase.SUCCEEDED))])
    spec = TrainSpec(name="t", program="p", output_uri=str(folder))
    with pytest.raises(OutputError, match="holds the link"):
        launch(spec, backend, clock=clock)
    with pytest.raises(OutputError, match="holds the link"):
        sweeping.copy_model(model, tmp_path / "best")
    production = ProductionFolder(str(tmp_path / "production"))
    with pytest.raises(OutputError, match="holds the link"):
        production.bring(model, "uri", "run")
    assert not list((tmp_path / "production" / "models").iterdir())
    assert not (tmp_path / "best").exists()


def test_a_link_within_a_model_is_fine(folder: Path, secret: Path, tmp_path: Path) -> None:
    model = folder / "model"
    plant(model, secret, "none")
    (model / "latest").symlink_to("model.json")
    refuse_links(model, "Model")
    sweeping.copy_model(model, tmp_path / "best")
    assert (tmp_path / "best" / "latest").read_text() == "{}"


def test_production_names_no_model_outside_of_it(folder: Path) -> None:
    production = ProductionFolder(str(folder))
    made = InProduction(1, "models/a", "uri", 0.9, "", "run", "2026-12-01T00:00:00+00:00")
    assert production.move(made)
    text = (folder / "current.json").read_text()
    (folder / "current.json").write_text(text.replace("models/a", "../elsewhere"))
    with pytest.raises(OutputError, match="is not below"):
        production.current()
