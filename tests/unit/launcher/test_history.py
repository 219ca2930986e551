import json
from pathlib import Path

from kfp_jax.history import HistoryFile
from kfp_jax.reports import Kind, Report


def metrics(step: int) -> Report:
    return Report(Kind.METRICS, 1.0, step, {"loss": 1.0 / (step + 1)})


def steps(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_an_attempt_that_goes_on_from_a_checkpoint_does_not_double(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history = HistoryFile(path)
    for step in range(38):
        history.add(metrics(step))
    history.next_attempt()
    history.add(Report(Kind.RESTORED, 2.0, 30))
    for step in range(31, 51):
        history.add(metrics(step))
    history.close()
    assert steps(path) == list(range(51))


def test_an_attempt_from_nothing_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history = HistoryFile(path)
    history.add(metrics(1))
    history.next_attempt()
    history.add(metrics(0))
    history.close()
    assert steps(path) == [0]


def test_another_launch_in_the_same_folder_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    first = HistoryFile(path)
    first.add(metrics(1))
    first.add(metrics(2))
    first.close()
    with path.open("a") as half:
        half.write('{"kind": "metrics", "st')  # killed in the middle of a line
    second = HistoryFile(path)
    second.add(Report(Kind.RESTORED, 2.0, 1))
    second.add(metrics(2))
    second.close()
    assert steps(path) == [1, 2]


def test_lines_are_readable_at_once_and_strict_json(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history = HistoryFile(path)
    history.add(Report(Kind.METRICS, 1.0, 0, {"loss": float("nan")}))
    assert json.loads(path.read_text())["values"] == {"loss": "NaN"}
    history.close()


def test_only_metrics_are_history(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history = HistoryFile(path)
    history.add(Report(Kind.PROGRESS, 1.0, fields={"done": 1, "total": 2}))
    history.add(Report(Kind.JOINED, 1.0))
    history.close()
    assert path.read_text() == ""
