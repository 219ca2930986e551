"""Schedules through the real `kfp.Client`, against a server made of its API's models."""

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import kfp_jax
import pytest
from fakes.clock import ManualClock
from fakes.kfp_server import FakeKfpServer, Refused
from kfp_jax.cli import main
from kfp_jax.errors import (
    Conflict,
    Forbidden,
    KfpJaxError,
    NotFound,
    Rejected,
    Throttled,
    Unavailable,
)
from kfp_jax.schedules import manage
from kfp_jax.schedules.records import Mark
from kfp_jax.schedules.server import Connection, Server
from kfp_jax.schedules.spec import Pipeline, Schedule

ZULU = ZoneInfo("UTC")
CACHED = {"cachingOptions": {"enableCache": True}}
PIPELINE = Pipeline(
    "p.yaml",
    {
        "pipelineInfo": {"name": "p"},
        "root": {
            "dag": {"tasks": {"a": CACHED}},
            "inputDefinitions": {"parameters": {"n": {"parameterType": "NUMBER_INTEGER"}}},
        },
    },
    {"platforms": {"kubernetes": {}}},
)


def nightly(n: int = 1, **more: Any) -> Schedule:
    options = {"cron": "0 30 2 * * *", "pipeline": PIPELINE, **more}
    return Schedule(name="nightly", arguments={"n": n}, **options)


@pytest.fixture
def fake() -> Iterator[FakeKfpServer]:
    with FakeKfpServer() as fake:
        yield fake


@pytest.fixture
def server(fake: FakeKfpServer) -> Server:
    return Server(Connection(fake.url))


def update(server: Server, n: int, **more: Any) -> bool:
    return manage.update(server, nightly(n, **more), ZULU, clock=ManualClock())


def numbers(records: list[dict[str, Any]]) -> list[int]:
    return [item["runtime_config"]["parameters"]["n"] for item in records]


def test_what_is_created_runs_one_at_a_time_never_catches_up_and_is_not_cached(
    fake: FakeKfpServer, server: Server
) -> None:
    wanted = nightly(3, service_account="trainer", pipeline_root="s3://b/root", experiment="mine")
    assert manage.create(server, wanted)
    (made,) = fake.of("nightly")
    assert made["status"] == "ENABLED"
    assert made["trigger"] == {"cron_schedule": {"cron": "0 30 2 * * *"}}
    assert (made["max_concurrency"], made["no_catchup"]) == ("1", True)
    assert made["service_account"] == "trainer"
    assert made["runtime_config"] == {"parameters": {"n": 3}, "pipeline_root": "s3://b/root"}
    tasks = made["pipeline_spec"]["pipeline_spec"]["root"]["dag"]["tasks"]
    assert tasks == {"a": {"cachingOptions": {"enableCache": False}}}
    assert made["pipeline_spec"]["platform_spec"] == {"platforms": {"kubernetes": {}}}
    assert fake.experiments[made["experiment_id"]]["display_name"] == "mine"


def test_creating_it_again_makes_nothing(fake: FakeKfpServer, server: Server) -> None:
    assert manage.create(server, nightly())
    assert not manage.create(server, nightly())
    assert len(fake.recurring) == len(fake.experiments) == 1
    with pytest.raises(Conflict, match="does something else"):
        manage.create(server, nightly(2))


def test_an_interval_can_take_the_place_of_a_cron(fake: FakeKfpServer, server: Server) -> None:
    manage.create(server, nightly(cron="", every=7200))
    (made,) = fake.of("nightly")
    assert made["trigger"] == {"periodic_schedule": {"interval_second": "7200"}}


def test_an_update_replaces_and_two_are_never_on(fake: FakeKfpServer, server: Server) -> None:
    manage.create(server, nightly(1))
    assert update(server, 2)
    assert numbers(fake.enabled("nightly")) == numbers(fake.of("nightly")) == [2]
    assert fake.most_enabled == 1
    before = len(fake.calls("POST"))
    assert not update(server, 2)
    assert len(fake.calls("POST")) == before


Action = Callable[[Server], object]


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize(
    ("again", "state", "value"),
    [
        pytest.param(lambda server: update(server, 2), "as before", 2, id="update"),
        pytest.param(lambda server: update(server, 9), "as before", 9, id="another-update"),
        pytest.param(lambda server: manage.resume(server, "nightly"), "on", 0, id="resume"),
        pytest.param(lambda server: manage.pause(server, "nightly"), "off", 0, id="pause"),
        pytest.param(lambda server: manage.delete(server, "nightly"), "gone", 0, id="delete"),
    ],
)
def test_an_update_killed_after_any_request_is_mended_by_the_next_call(
    fake: FakeKfpServer, server: Server, again: Action, state: str, value: int, paused: bool
) -> None:
    interrupted = 0
    for allowed in range(1, 40):
        fake.recurring.clear()
        manage.create(server, nightly(1), paused=paused)
        fake.left = allowed
        try:
            update(server, 2)
        except Unavailable:
            interrupted += 1
        finished, fake.left = fake.left > 0, None
        assert len(fake.enabled("nightly")) <= (0 if paused else 1)
        again(Server(Connection(fake.url)))
        on = fake.enabled("nightly")
        expected = {"as before": not paused, "on": True}.get(state, False)
        assert len(on) == expected, allowed
        assert len(fake.of("nightly")) == (state != "gone"), allowed
        if value:
            assert numbers(fake.of("nightly")) == [value]
        if finished:
            break
    assert interrupted >= 5
    assert fake.most_enabled <= 1


def test_a_creation_whose_answer_is_lost_is_not_made_twice(
    fake: FakeKfpServer, server: Server
) -> None:
    for allowed in range(1, 9):
        fake.recurring.clear()
        fake.left = allowed
        with suppress(Unavailable):
            manage.create(server, nightly())
        fake.left = None
        manage.create(server, nightly())
        assert len(fake.of("nightly")) == len(fake.enabled("nightly")) == 1


def test_list_says_that_an_update_was_interrupted(fake: FakeKfpServer, server: Server) -> None:
    seen = set()
    for allowed in range(1, 12):
        fake.recurring.clear()
        manage.create(server, nightly(1))
        fake.left = allowed
        with suppress(Unavailable):
            update(server, 2)
        fake.left = None
        (item,) = manage.listed(server, datetime.now(UTC), ZULU)
        seen.add(item.found.state)
        if not fake.enabled("nightly"):
            assert item.found.state == "UNFINISHED"
    assert seen == {"ENABLED", "UNFINISHED"}


def test_a_paused_schedule_stays_so_when_it_is_updated(fake: FakeKfpServer, server: Server) -> None:
    manage.create(server, nightly(1))
    assert manage.pause(server, "nightly")
    assert not manage.pause(server, "nightly")
    assert update(server, 2)
    assert fake.enabled("nightly") == []
    assert numbers(fake.of("nightly")) == [2]


def test_resume_makes_up_for_nothing(fake: FakeKfpServer, server: Server) -> None:
    """KFP counts what was missed from a recurring run's creation, so it must be a new one."""
    manage.create(server, nightly(4, service_account="trainer"))
    before = dict(fake.of("nightly")[0])
    manage.pause(server, "nightly")
    fake.requests.clear()
    assert manage.resume(server, "nightly")
    (after,) = fake.enabled("nightly")
    assert fake.of("nightly") == [after]
    assert after["recurring_run_id"] != before["recurring_run_id"]
    assert after["created_at"] > before["created_at"]
    own = {"recurring_run_id", "created_at", "description"}
    assert {k: v for k, v in after.items() if k not in own} == {
        k: v for k, v in before.items() if k not in own
    }
    assert not fake.calls("POST", f"{before['recurring_run_id']}:enable")
    assert not manage.resume(server, "nightly")
    assert not manage.create(server, nightly(4, service_account="trainer"))


def test_a_run_that_goes_on_outlives_an_update(fake: FakeKfpServer, server: Server) -> None:
    manage.create(server, nightly(1))
    (old,) = fake.of("nightly")
    run = fake.fire(old["recurring_run_id"], "RUNNING")
    update(server, 2)
    assert fake.runs[run["run_id"]]["state"] == "RUNNING"
    assert numbers(fake.enabled("nightly")) == [2]
    assert len(fake.of("nightly")) == 2
    (item,) = manage.listed(server, datetime.now(UTC), ZULU)
    assert (item.found.state, item.last_run and item.last_run.id) == ("ENABLED", run["run_id"])
    # Pause and resume tell the two apart while the old one is there.
    manage.pause(server, "nightly")
    (item,) = manage.listed(server, datetime.now(UTC), ZULU)
    assert item.found.state == "PAUSED"
    assert not fake.enabled("nightly")
    manage.resume(server, "nightly")
    assert numbers(fake.enabled("nightly")) == [2]
    fake.runs[run["run_id"]]["state"] = "SUCCEEDED"
    assert not update(server, 2)
    assert numbers(fake.of("nightly")) == [2]


def test_a_schedule_with_a_run_that_goes_on_is_not_deleted(
    fake: FakeKfpServer, server: Server
) -> None:
    manage.create(server, nightly())
    run = fake.fire(fake.of("nightly")[0]["recurring_run_id"], "RUNNING")
    with pytest.raises(Conflict, match=run["run_id"]):
        manage.delete(server, "nightly")
    assert len(fake.enabled("nightly")) == 1
    fake.runs[run["run_id"]]["state"] = "FAILED"
    manage.delete(server, "nightly")
    assert not fake.of("nightly")


@pytest.mark.parametrize(
    "action",
    [
        lambda server: manage.delete(server, "nightly"),
        lambda server: manage.pause(server, "nightly"),
        lambda server: manage.resume(server, "nightly"),
        lambda server: update(server, 1),
    ],
    ids=["delete", "pause", "resume", "update"],
)
def test_what_is_not_there_is_named_with_what_is(
    fake: FakeKfpServer, server: Server, action: Action
) -> None:
    fake.add(display_name="weekly")
    with pytest.raises(NotFound, match=r"no schedule nightly.*weekly"):
        action(server)
    assert len(fake.recurring) == 1


def test_one_that_somebody_else_made_is_paused_resumed_and_deleted_but_never_overwritten(
    fake: FakeKfpServer, server: Server
) -> None:
    fake.add(display_name="nightly", trigger={"cron_schedule": {"cron": "0 0 3 * * *"}})
    for change in (lambda: update(server, 1), lambda: manage.create(server, nightly())):
        with pytest.raises(Conflict, match="somebody else"):
            change()
    manage.pause(server, "nightly")
    assert not fake.enabled("nightly")
    manage.resume(server, "nightly")
    (one,) = fake.enabled("nightly")
    assert one["trigger"]["cron_schedule"]["cron"] == "0 0 3 * * *"
    manage.delete(server, "nightly")
    assert not fake.recurring


def test_two_of_one_name_by_others_are_told_apart_by_nobody(
    fake: FakeKfpServer, server: Server
) -> None:
    fake.add(display_name="nightly")
    fake.add(display_name="nightly")
    for action in (manage.pause, manage.resume, manage.delete):
        with pytest.raises(Conflict, match="2 recurring runs"):
            action(server, "nightly")
    assert len(manage.listed(server, datetime.now(UTC), ZULU)) == 2


def test_of_two_that_create_at_once_one_wins(fake: FakeKfpServer, server: Server) -> None:
    other = Server(Connection(fake.url))
    met = []

    def before(method: str, path: str) -> None:
        if method == "POST" and path.endswith("recurringruns") and not met:
            met.append(path)
            manage.create(other, nightly(2))

    fake.before = before
    manage.create(server, nightly(1))
    assert numbers(fake.of("nightly")) == numbers(fake.enabled("nightly")) == [1]


def test_of_two_that_update_at_once_one_is_told(fake: FakeKfpServer, server: Server) -> None:
    manage.create(server, nightly(1))
    other = Server(Connection(fake.url))
    met = []

    def before(method: str, path: str) -> None:
        # After ours has made its own, before it looks again.
        looks = method == "GET" and path.endswith("recurringruns")
        if looks and len(fake.of("nightly")) == 2 and not met:
            met.append(path)
            update(other, 3)

    fake.before = before
    with pytest.raises(Conflict, match="at the same time"):
        update(server, 2)
    assert numbers(fake.of("nightly")) == numbers(fake.enabled("nightly")) == [3]
    assert fake.most_enabled == 1


def test_an_update_that_is_overtaken_gives_way(fake: FakeKfpServer, server: Server) -> None:
    manage.create(server, nightly(1))
    met = []

    def before(method: str, path: str) -> None:
        looks = method == "GET" and path.endswith("recurringruns")
        if looks and len(fake.of("nightly")) == 2 and not met:
            met.append(path)
            mark = Mark(9, False, "other", "p.yaml")
            fake.add(display_name="nightly", description=mark.description(), mode="DISABLE")

    fake.before = before
    with pytest.raises(Conflict, match="changed by somebody else at the same time"):
        update(server, 2)
    assert len(fake.of("nightly")) == 2  # the other one goes on with its change
    assert numbers(fake.enabled("nightly")) == [1]


def test_one_that_others_made_from_an_uploaded_pipeline_is_resumed_as_it_was(
    fake: FakeKfpServer, server: Server
) -> None:
    reference = {"pipeline_id": "p-1", "pipeline_version_id": "v-1"}
    fake.add(display_name="nightly", pipeline_spec=None, pipeline_version_reference=reference)
    manage.pause(server, "nightly")
    manage.resume(server, "nightly")
    (one,) = fake.enabled("nightly")
    assert one["pipeline_version_reference"] == reference


def test_an_update_waits_while_a_firing_is_near(fake: FakeKfpServer, server: Server) -> None:
    manage.create(server, nightly(1))
    clock = ManualClock()
    clock.time = datetime(2027, 1, 1, 2, 29, 55, tzinfo=UTC).timestamp()
    notes: list[str] = []
    manage.update(server, nightly(2), ZULU, clock=clock, note=notes.append)
    assert datetime.fromtimestamp(clock.time, UTC).minute == 30
    assert "waits 25 s" in notes[0]


def test_a_list_of_many_is_read_to_its_end(fake: FakeKfpServer, server: Server) -> None:
    for number in range(120):
        fake.add(display_name=f"job-{number}")
    assert len(manage.listed(server, datetime.now(UTC), ZULU)) == 120


@pytest.mark.parametrize(
    ("status", "kind", "part"),
    [
        (400, Rejected, "refused to"),
        (401, Forbidden, "KFP_EXISTING_TOKEN"),
        (403, Forbidden, "for the right"),
        (404, NotFound, "not that of KFP's API"),
        (409, Conflict, "try again"),
        (429, Throttled, "later"),
        (500, Unavailable, "administrator"),
        (503, Unavailable, "administrator"),
    ],
)
def test_refusals_of_the_server_are_one_sentence(
    fake: FakeKfpServer, server: Server, status: int, kind: type[KfpJaxError], part: str
) -> None:
    def refuse(method: str, path: str) -> None:
        raise Refused(status, "it said\nso, at length")

    fake.before = refuse
    with pytest.raises(kind) as refused:
        manage.listed(server, datetime.now(UTC), ZULU)
    assert type(refused.value) is kind
    text = str(refused.value)
    assert part in text
    assert f"{status}: so, at length" in text
    assert "\n" not in text


def test_a_wrong_token_is_told_at_once(fake: FakeKfpServer) -> None:
    fake.token = "right"
    with pytest.raises(Forbidden, match="401"):
        Server(Connection(fake.url, token="wrong"))
    assert len(fake.requests) == 1
    assert manage.listed(Server(Connection(fake.url, token="right")), datetime.now(UTC), ZULU) == []
    assert "right" not in repr(Connection(fake.url, token="right"))


def test_nobody_at_the_address_is_one_sentence() -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9 does not answer \(Connection refused\)"):
        Server(Connection("http://127.0.0.1:9"))


def test_a_page_for_logging_in_is_no_empty_list(fake: FakeKfpServer, server: Server) -> None:
    fake.page = "<html>log in</html>"
    with pytest.raises(Unavailable, match=r"text/html.*logging in"):
        manage.listed(server, datetime.now(UTC), ZULU)


# From Python and from the command line.


@dataclass
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def run(
    fake: FakeKfpServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Result]:
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", fake.url)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> Result:
        monkeypatch.setattr("sys.argv", ["kfp-jax", "schedule", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        return Result(code if isinstance(code, int) else 0, *capsys.readouterr())

    return run


def test_python_makes_and_changes_a_schedule(
    fake: FakeKfpServer, capsys: pytest.CaptureFixture[str]
) -> None:
    connection = Connection(fake.url)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for nodes in (2, 3, 3):
            firings = kfp_jax.schedule(
                "nightly", "mnist", cron="0 30 2 * * *", arguments={"num_nodes": nodes},
                connection=connection,
            )  # fmt: skip
    assert [moment.hour for moment in firings] == [2] * 5
    (made,) = fake.of("nightly")
    assert made["runtime_config"]["parameters"] == {"num_nodes": 3}
    assert len(fake.calls("POST", "recurringruns")) == 2 + 2  # two made, one off, one on
    assert 'enableCache": true' not in json.dumps(made)
    assert capsys.readouterr() == ("", "")


def test_the_life_of_a_schedule_on_the_command_line(
    fake: FakeKfpServer, run: Callable[..., Result], tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps(dict(PIPELINE.spec)))
    made = run("create", "nightly", str(file), "--cron", "30 2 * * *", "-a", "n=1")
    assert made.code == 0, made.err
    assert "02:30 UTC" in made.out
    assert "'0 30 2 * * *' is used" in made.err
    assert run("update", "nightly", str(file), "--every", "6h", "-a", "n=2").code == 0
    (one,) = fake.enabled("nightly")
    assert one["trigger"]["periodic_schedule"]["interval_second"] == "21600"
    fake.fire(one["recurring_run_id"], "FAILED")
    assert "FAILED" in run("list").out
    assert run("pause", "nightly").err == "Schedule nightly is paused.\n"
    (listed,) = json.loads(run("list", "--json").out)
    assert (listed["state"], listed["next"], listed["every_seconds"]) == ("PAUSED", None, 21600)
    assert run("resume", "nightly").err == "Schedule nightly is on again.\n"
    assert run("delete", "nightly").code == 0
    gone = run("delete", "nightly")
    assert (gone.code, gone.out) == (66, "")
    assert run("list").err == "There are no schedules.\n"


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--cron", "0 0 25 * * *"), "for the hour"),
        (("--every", "6 hours"), "--every"),
        ((), "either a cron or an interval"),
        (("--cron", "@daily", "-a", "num_node=2"), "num_nodes"),
        (("--cron", "@daily", "-a", "num_nodes=two"), "a whole number"),
        (("--cron", "@daily", "-a", "folder=[[ScheduledTime]]"), "PLACEHOLDER"),
        (("--cron", "@daily", "--time-zone", "Mars"), "CRON_SCHEDULE_TIMEZONE"),
    ],
)
def test_bad_input_is_refused_before_any_call(
    fake: FakeKfpServer, run: Callable[..., Result], arguments: tuple[str, ...], part: str
) -> None:
    for command in ("create", "update"):
        ended = run(command, "nightly", "mnist", *arguments)
        assert ended.code == 2, ended.err
        assert part in ended.err.splitlines()[-1]
    assert not fake.requests


@pytest.mark.parametrize(
    ("pipeline", "part"),
    [
        ("minst", "one of ours (mnist"),
        ("no.yaml", "No such file"),
        ("text.yaml", "no compiled pipeline"),
        ("broken.yaml", "cannot be read"),
    ],
)
def test_what_is_no_pipeline_is_refused(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    pipeline: str, part: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.yaml").write_text("hello")
    (tmp_path / "broken.yaml").write_text("{")
    ended = run("create", "nightly", pipeline, "--cron", "@daily")
    assert ended.code == 2
    assert part in ended.err


def test_a_dry_run_shows_all_and_calls_nobody(
    fake: FakeKfpServer, run: Callable[..., Result]
) -> None:
    ended = run(
        "create", "nightly", "mnist", "--cron", "0 30 2 * * *", "--time-zone", "Asia/Tokyo",
        "--dry-run",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert ended.out.count("02:30 JST") == 5
    assert not fake.requests
