"""What is in production: the rule, and a pointer that two can never move from the same place."""

import fcntl
import itertools
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from kfp import dsl
from kfp_jax import entry
from kfp_jax.errors import OutputError, SpecError
from kfp_jax.production import InProduction, ProductionFolder, data_key, decide

NAN = float("nan")


@pytest.mark.parametrize(
    ("score", "current", "min_score", "min_gain", "promote"),
    [
        pytest.param(0.9, None, 0.0, 0.0, True, id="first"),
        pytest.param(0.9, None, 0.95, 0.0, False, id="first-too-poor"),
        pytest.param(0.95, None, 0.95, 0.0, True, id="first-just-good-enough"),
        pytest.param(0.97, 0.96, 0.0, 0.0, True, id="better"),
        pytest.param(0.96, 0.96, 0.0, 0.0, False, id="equal"),
        pytest.param(0.95, 0.96, 0.0, 0.0, False, id="worse"),
        pytest.param(0.965, 0.96, 0.0, 0.01, False, id="too-little-better"),
        pytest.param(0.75, 0.5, 0.0, 0.25, True, id="just-enough-better"),
        pytest.param(0.97, 0.96, 0.98, 0.0, False, id="better-but-poor"),
        pytest.param(NAN, None, 0.0, 0.0, False, id="nan"),
        pytest.param(NAN, 0.1, 0.0, 0.0, False, id="nan-against-some"),
        pytest.param(float("inf"), 0.1, 0.0, 0.0, False, id="infinite"),
        pytest.param(0.5, NAN, 0.0, 0.0, True, id="production-is-nan"),
    ],
)
def test_a_model_is_promoted_only_if_it_is_good_and_better(
    score: float, current: float | None, min_score: float, min_gain: float, promote: bool
) -> None:
    decision = decide(score, current, min_score, min_gain)
    assert decision.promote is promote
    assert decision.why


FIRST = InProduction(1, "models/a", "s3://b/a", 0.9, "", "run-1", "2026-12-01T00:00:00+00:00")


def test_the_pointer_moves_only_from_the_version_that_was_compared(tmp_path: Path) -> None:
    folder = ProductionFolder(str(tmp_path / "production"))
    assert folder.current() is None
    assert not folder.move(replace(FIRST, version=2))
    assert folder.move(FIRST)
    assert not folder.move(replace(FIRST, run="run-2"))
    assert folder.move(replace(FIRST, version=2, run="run-2", replaced={"version": 1}))
    current = folder.current()
    assert current
    assert (current.version, current.run, current.replaced) == (2, "run-2", {"version": 1})
    runs = [json.loads(file.read_text())["run"] for file in sorted(folder.path.glob("history/*"))]
    assert runs == ["run-1", "run-2"]


def test_of_many_that_move_at_once_one_does(tmp_path: Path) -> None:
    start, moved = threading.Barrier(8), []

    def move(number: int) -> None:
        folder = ProductionFolder(str(tmp_path))
        start.wait()
        if folder.move(replace(FIRST, run=f"run-{number}")):
            moved.append(f"run-{number}")

    threads = [threading.Thread(target=move, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    current = ProductionFolder(str(tmp_path)).current()
    assert current
    assert [current.run] == moved


def test_the_pointer_does_not_move_while_another_holds_the_folder(tmp_path: Path) -> None:
    folder = ProductionFolder(str(tmp_path))
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mover = threading.Thread(target=folder.move, args=(FIRST,))
        mover.start()
        mover.join(0.1)
        assert mover.is_alive()
        assert folder.current() is None
    mover.join()
    assert folder.current() == FIRST


def test_a_model_is_brought_whole_and_once(tmp_path: Path) -> None:
    model = tmp_path / "model"
    (model / "deep").mkdir(parents=True)
    (model / "deep" / "weights").write_bytes(b"w" * 1000)
    folder = ProductionFolder(str(tmp_path / "production"))
    place = folder.bring(model, "uri", "run")
    assert (folder.path / place / "deep" / "weights").read_bytes() == b"w" * 1000
    assert folder.bring(model, "uri", "run") == place
    assert [path.name for path in (folder.path / "models").iterdir()] == [Path(place).name]
    assert folder.bring(model, "uri", "other run") != place
    folder.drop(place)
    assert not (folder.path / place).exists()


def test_what_is_in_production_is_not_dropped(tmp_path: Path) -> None:
    folder = ProductionFolder(str(tmp_path))
    (tmp_path / FIRST.model).mkdir()
    folder.move(FIRST)
    folder.drop(FIRST.model)
    assert (tmp_path / FIRST.model).is_dir()


def test_no_model_is_refused(tmp_path: Path) -> None:
    folder = ProductionFolder(str(tmp_path / "production"))
    (tmp_path / "empty").mkdir()
    for model in (tmp_path / "none", tmp_path / "empty"):
        with pytest.raises(OutputError, match="no folder with files"):
            folder.bring(model, "", "")


def test_a_broken_pointer_is_an_error_and_no_empty_production(tmp_path: Path) -> None:
    folder = ProductionFolder(str(tmp_path))
    for text in ("", "{}", '{"version": 1}', "[]"):
        (tmp_path / "current.json").write_text(text)
        with pytest.raises(OutputError, match=r"current\.json"):
            folder.current()


@pytest.mark.parametrize("uri", ["", "s3://bucket/production", "/proc/production"])
def test_a_place_that_cannot_hold_it_is_refused(uri: str) -> None:
    with pytest.raises(SpecError, match="production"):
        ProductionFolder(uri)


def test_the_key_of_data_follows_the_test_examples_alone(tmp_path: Path) -> None:
    (tmp_path / "x-train.bin").write_bytes(b"1")
    assert data_key(str(tmp_path)) == ""
    (tmp_path / "x-test.bin").write_bytes(b"1")
    key = data_key(str(tmp_path))
    (tmp_path / "x-train.bin").write_bytes(b"2")
    assert data_key(str(tmp_path)) == key != ""
    (tmp_path / "x-test.bin").write_bytes(b"2")
    assert data_key(str(tmp_path)) != key
    assert data_key("s3://bucket/data") == ""


# The component's entry, as KFP calls it.

Promote = Callable[..., bool]


@pytest.fixture
def promote(tmp_path: Path) -> Promote:
    data = tmp_path / "data"
    data.mkdir()
    (data / "x-test.bin").write_bytes(b"1")

    def promote(run: str, score: float, **more: object) -> bool:
        task = tmp_path / "tasks" / run
        (task / "model").mkdir(parents=True, exist_ok=True)
        (task / "model" / "weights").write_text(run)
        outputs = entry.PromoteOutputs(
            lineage=dsl.Artifact(name="lineage", uri=str(task / "lineage")),
            metrics=dsl.Metrics(name="metrics", uri=str(task / "metrics")),
        )
        given = {"min_score": 0.0, "min_gain": 0.0, "backend": "local", **more}
        return entry.promote_if_better(
            outputs,
            model=dsl.Model(name="model", uri=str(task / "model")),
            score=score,
            dataset_uri=str(data),
            production=str(tmp_path / "production"),
            run_id=run,
            task_config=dsl.TaskConfig(),
            pods={},
            **given,
        )

    return promote


def current(tmp_path: Path) -> InProduction:
    found = ProductionFolder(str(tmp_path / "production")).current()
    assert found
    return found


def test_lineage_says_what_took_whose_place(tmp_path: Path, promote: Promote) -> None:
    assert promote("one", 0.9)
    assert not promote("two", 0.8)
    assert promote("three", 0.95)
    now = current(tmp_path)
    assert (now.version, now.run, now.score) == (2, "three", 0.95)
    assert now.replaced
    assert (now.replaced["run"], now.replaced["score"]) == ("one", 0.9)
    production = tmp_path / "production"
    assert (production / now.model / "weights").read_text() == "three"
    assert len(list((production / "models").iterdir())) == 2
    lineage = json.loads((tmp_path / "tasks" / "two" / "lineage").read_text())
    assert lineage["promoted"] is False
    assert lineage["in_production"]["run"] == "one"
    assert "0.8 does not beat 0.9" in lineage["why"]


def test_a_task_that_is_tried_again_promotes_once(tmp_path: Path, promote: Promote) -> None:
    assert promote("one", 0.9)
    assert promote("one", 0.9)
    assert current(tmp_path).version == 1


def test_of_equal_models_that_come_at_once_one_is_promoted(
    tmp_path: Path, promote: Promote
) -> None:
    results: dict[str, bool] = {}
    start = threading.Barrier(6)

    def run(name: str) -> None:
        start.wait()
        results[name] = promote(name, 0.9)

    threads = [threading.Thread(target=run, args=(f"run-{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [name for name, promoted in results.items() if promoted]
    assert winners == [current(tmp_path).run]
    assert len(list((tmp_path / "production" / "models").iterdir())) == 1


def test_of_unequal_ones_the_best_is_there_at_last_in_one_line(
    tmp_path: Path, promote: Promote
) -> None:
    start = threading.Barrier(6)

    def run(number: int) -> None:
        start.wait()
        promote(f"run-{number}", 0.9 + number / 100)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    line = [
        json.loads(file.read_text())
        for file in sorted((tmp_path / "production" / "history").iterdir())
    ]
    scores = [item["score"] for item in line]
    assert scores == sorted(set(scores))
    assert scores[-1] == pytest.approx(0.95)
    for early, late in itertools.pairwise(line):
        assert (late["replaced"]["run"], late["version"]) == (early["run"], early["version"] + 1)


def test_bad_input_ends_the_step_with_one_sentence(
    promote: Promote, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        promote("one", 0.9, min_gain=-1)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "min_gain is -1; give 0 or more.\n"
