"""Progress in the TrainJob: what a status says, and that training never notices who takes it."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.status_server import FakeStatusServer, fake_status_server
from kfp_jax_runtime import status_server
from kfp_jax_runtime.report import Reporter
from kfp_jax_runtime.status_server import Newest, Server, StatusPoster

MOMENT = 1_767_323_045.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeStatusServer]:
    with fake_status_server(tmp_path) as server:
        yield server


def report(kind: str, moment: float = 0.0, **fields: Any) -> dict[str, Any]:
    return {"v": 1, "kind": kind, "time": moment, **fields}


def progress(done: int, total: int, moment: float) -> dict[str, Any]:
    return report("progress", moment, done=done, total=total, unit="step")


def status_of(*reports: dict[str, Any]) -> dict[str, Any]:
    newest = Newest()
    for item in reports:
        newest.take(item)
    return newest.status(MOMENT)


def metrics_of(*reports: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["value"] for item in status_of(*reports)["metrics"]}


def test_a_status_has_progress_and_the_time_left_at_the_pace_so_far() -> None:
    assert status_of(progress(10, 100, 0.0), progress(30, 100, 40.0)) == {
        "progressPercentage": 30,
        "estimatedRemainingSeconds": 140,
        "metrics": [],
        "lastUpdatedTime": "2026-01-02T03:04:05Z",
    }


def test_without_progress_there_is_no_percentage() -> None:
    status = status_of(report("metrics", values={"loss": 0.5}))
    assert status == {
        "metrics": [{"name": "loss", "value": "0.5"}],
        "lastUpdatedTime": "2026-01-02T03:04:05Z",
    }


def test_a_hundred_percent_is_for_a_program_that_has_succeeded() -> None:
    last = progress(100, 100, 9.0)
    assert status_of(last)["progressPercentage"] == 99
    ended = status_of(last, report("result", values={"accuracy": 0.9}))
    assert (ended["progressPercentage"], ended["estimatedRemainingSeconds"]) == (100, 0)


def test_an_attempt_that_goes_back_is_timed_from_there() -> None:
    status = status_of(progress(50, 100, 10.0), progress(40, 100, 20.0), progress(60, 100, 40.0))
    assert status["estimatedRemainingSeconds"] == 40


def test_each_metric_is_kept_with_its_newest_value() -> None:
    found = metrics_of(
        report("metrics", values={"loss": 0.5, "n": 3}),
        report("metrics", values={"loss": 0.25}),
        report("metrics", values={"accuracy": 0.9}),
    )
    assert found == {"loss": "0.25", "n": "3", "accuracy": "0.9"}


def test_what_the_server_would_refuse_is_left_out() -> None:
    found = metrics_of(
        report("metrics", values={"loss": 0.5, "x" * 65: 1.0, "big": 10**64}),
        report("metrics", values={"loss": "NaN"}),
    )
    assert found == {}
    assert len(metrics_of(report("metrics", values={f"m{i}": i for i in range(300)}))) == 256


def test_a_report_that_says_nothing_for_a_status_sends_none() -> None:
    newest = Newest()
    assert not newest.take(report("joined", process=0, parameters={"lr": 1}))
    assert newest.take(report("metrics", values={}))


@pytest.mark.parametrize("missing", [status_server.URL, status_server.CA_CERTIFICATE])
def test_where_trainer_names_no_server_nothing_is_started(
    server: FakeStatusServer, missing: str
) -> None:
    assert Server.of_environment({**server.environ, missing: ""}) is None
    assert status_server.poster({**server.environ, missing: ""}) is None
    assert Server.of_environment({**server.environ, status_server.URL: "http://plain"}) is None


def test_reports_reach_the_server_over_tls_with_the_token(server: FakeStatusServer) -> None:
    poster = status_server.poster(server.environ)
    assert poster is not None
    reporter = Reporter(0, 2, write=lambda _: None, clock=lambda: MOMENT, also=poster.take)
    reporter.metrics(3, {"loss": 0.5})
    server.wait_for(lambda: len(server.posts) == 1)
    reporter.progress(5, 10, "step")
    reporter.result({"accuracy": 0.9}, "model", {})
    poster.close()
    assert len(server.posts) == 2
    token, body = server.posts[-1]
    assert token == "Bearer first"
    assert body["trainerStatus"]["progressPercentage"] == 100
    assert {"name": "accuracy", "value": "0.9"} in body["trainerStatus"]["metrics"]


def test_what_comes_fast_is_sent_together(server: FakeStatusServer) -> None:
    poster = StatusPoster(_post(server), every=0.2)
    for step in range(50):
        poster.take(report("metrics", values={"loss": 1 / (step + 1)}))
        time.sleep(0.002)
    poster.close()
    assert len(server.posts) <= 3
    assert server.statuses[-1]["metrics"] == [{"name": "loss", "value": "0.02"}]


def test_a_token_that_is_changed_is_read_anew(server: FakeStatusServer, tmp_path: Path) -> None:
    poster = StatusPoster(_post(server), every=0.0)
    poster.take(report("metrics", values={"loss": 1.0}))
    server.wait_for(lambda: len(server.posts) == 1)
    (tmp_path / "token").write_text("second")
    poster.take(report("metrics", values={"loss": 0.5}))
    server.wait_for(lambda: len(server.posts) == 2)
    assert [token for token, _ in server.posts] == ["Bearer first", "Bearer second"]


def test_a_refused_status_is_told_again(server: FakeStatusServer) -> None:
    server.answer = 503
    poster = StatusPoster(_post(server), every=0.01)
    poster.take(report("metrics", values={"loss": 1.0}))
    server.wait_for(lambda: server.asked == 2)
    server.answer = 200
    server.wait_for(lambda: len(server.posts) == 1)


def test_after_four_refusals_it_is_quiet_and_says_why(
    server: FakeStatusServer, capfd: pytest.CaptureFixture[str]
) -> None:
    server.answer = 403
    poster = StatusPoster(_post(server), every=0.01)
    poster.take(report("metrics", values={"loss": 1.0}))
    server.wait_for(lambda: server.asked == 4)
    poster.close()
    poster.take(report("metrics", values={"loss": 0.5}))
    assert server.asked == 4
    assert "failed 4 times in a row: it answered 403" in capfd.readouterr().err


def test_a_server_of_another_authority_is_told_nothing(
    server: FakeStatusServer, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    with fake_status_server(tmp_path / "other") as other:
        stranger = {**server.environ, status_server.URL: other.environ[status_server.URL]}
        access = Server.of_environment(stranger)
        assert access is not None
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            access.post({})
        assert other.posts == []


def test_a_token_that_is_not_there_is_a_failed_post(
    server: FakeStatusServer, tmp_path: Path
) -> None:
    (tmp_path / "token").unlink()
    with pytest.raises(OSError, match="token"):
        _post(server)({})


def test_neither_reports_nor_the_end_wait_for_a_silent_server(server: FakeStatusServer) -> None:
    silent = threading.Event()
    server.before = lambda: silent.wait(10)
    poster = StatusPoster(_post(server), every=0.0)
    began = time.monotonic()
    poster.take(report("metrics", values={"loss": 1.0}))
    poster.take(report("result", values={}))
    assert time.monotonic() - began < 0.05
    poster.close(seconds=0.1)
    assert time.monotonic() - began < 0.5
    silent.set()


def _post(server: FakeStatusServer) -> Any:
    access = Server.of_environment(server.environ)
    assert access is not None
    return access.post
