"""A schedule's value: arguments checked against the pipeline, secrets and placeholders refused."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from kfp_jax.errors import SpecError
from kfp_jax.schedules.manage import quiet_in
from kfp_jax.schedules.records import Mark, Record, read_mark, schedules
from kfp_jax.schedules.spec import Pipeline, Schedule, time_zone, upcoming

ZULU = ZoneInfo("UTC")
NOW = datetime(2027, 1, 1, 12, tzinfo=UTC)


def pipeline(tasks: dict[str, Any] | None = None, **inputs: dict[str, Any]) -> Pipeline:
    root = {"dag": {"tasks": tasks or {}}, "inputDefinitions": {"parameters": inputs}}
    return Pipeline("p.yaml", {"pipelineInfo": {"name": "p"}, "root": root})


TYPED = pipeline(
    count={"parameterType": "NUMBER_INTEGER", "defaultValue": 2.0},
    rate={"parameterType": "NUMBER_DOUBLE", "isOptional": True},
    name={"parameterType": "STRING", "defaultValue": ""},
    token={"parameterType": "STRING", "defaultValue": ""},
    on={"parameterType": "BOOLEAN", "defaultValue": True},
    items={"parameterType": "LIST", "defaultValue": []},
    parameters={"parameterType": "STRUCT", "defaultValue": {}},
)


def schedule(arguments: dict[str, Any] | None = None, **more: Any) -> Schedule:
    options = {"name": "nightly", "pipeline": TYPED, "cron": "0 0 2 * * *", **more}
    return Schedule(arguments=arguments or {}, **options)


def test_text_becomes_what_the_pipeline_wants() -> None:
    given = {
        "count": "4", "rate": "0.5", "name": "4", "on": "false", "items": "[1]",
        "parameters": '{"epochs": 3}',
    }  # fmt: skip
    assert schedule(given).arguments == {
        "count": 4, "rate": 0.5, "name": "4", "on": False, "items": [1],
        "parameters": {"epochs": 3},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"cuont": 1}, ("'cuont'", "count")),
        ({"count": "many"}, ("count", "a whole number")),
        ({"count": "2.5"}, ("count", "2.5")),
        ({"count": True}, ("count", "True")),
        ({"on": "yes"}, ("on", "true or false")),
        ({"parameters": "[1]"}, ("parameters", "a JSON object")),
        ({"rate": float("nan")}, ("rate", "JSON")),
    ],
)
def test_arguments_that_would_fail_every_run_are_refused(
    arguments: dict[str, Any], parts: tuple[str, ...]
) -> None:
    with pytest.raises(SpecError) as refused:
        schedule(arguments)
    assert all(part in str(refused.value) for part in parts), refused.value


def test_an_argument_without_a_default_must_be_given() -> None:
    needy = pipeline(data={"parameterType": "STRING"})
    with pytest.raises(SpecError, match="needs argument data"):
        schedule(pipeline=needy)
    assert schedule({"data": "x"}, pipeline=needy).arguments == {"data": "x"}


@pytest.mark.parametrize(
    "value",
    ["[[ScheduledTime]]", "run-[[Index]]", "[[CurrentTime.2006-01-02]]", "[[RunUUID]]"],
)
def test_macros_are_refused_with_what_works(value: str) -> None:
    for arguments in ({"name": value}, {"parameters": {"a": [value]}}):
        with pytest.raises(SpecError) as refused:
            schedule(arguments)
        assert "PIPELINE_JOB_SCHEDULE_TIME_UTC_PLACEHOLDER" in str(refused.value)
        assert value.partition("[")[2][:9] in str(refused.value)


@pytest.mark.parametrize(
    "value",
    [
        "{{$.pipeline_job_schedule_time_utc}}",
        "a/{{$.pipeline_job_uuid}}",
        "{{$.pipeline_job_name}}",
    ],
)
def test_placeholders_are_refused_in_arguments_where_kfp_leaves_them(value: str) -> None:
    with pytest.raises(SpecError, match="write it into the pipeline"):
        schedule({"name": value})


def test_a_pipeline_may_ask_for_the_scheduled_time_but_not_for_the_jobs_name() -> None:
    def asking(what: str) -> Pipeline:
        constant = {"runtimeValue": {"constant": f"{{{{$.{what}}}}}"}}
        return pipeline({"task": {"inputs": {"parameters": {"when": constant}}}})

    assert schedule(pipeline=asking("pipeline_job_schedule_time_utc"))
    with pytest.raises(SpecError, match=r"empty.*PIPELINE_JOB_ID_PLACEHOLDER"):
        schedule(pipeline=asking("pipeline_job_name"))


@pytest.mark.parametrize(
    "arguments",
    [
        {"token": "abc"},
        {"parameters": {"hf_token": "abc"}},
        {"parameters": {"db": {"password": "abc"}}},
        {"parameters": {"aws_secret_access_key": "abc"}},
        {"name": "postgresql://me:abc@db/x"},
    ],
)
def test_secrets_are_refused_and_not_repeated(arguments: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="use_secret_as_env") as refused:
        schedule(arguments)
    assert "abc" not in str(refused.value)


@pytest.mark.parametrize(
    "parameters",
    [
        {"max_tokens": 5}, {"secret_name": "mine"}, {"tokenizer": "bpe"}, {"eos_token": "</s>"},
        {"num_tokens": "5"}, {"token": ""}, {"data": "s3://bucket/a@b"},
    ],
)  # fmt: skip
def test_names_that_only_look_alike_are_no_secrets(parameters: dict[str, Any]) -> None:
    assert schedule({"parameters": parameters})


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        ({"cron": "", "every": 0}, ("either a cron or an interval",)),
        ({"every": 600}, ("either a cron or an interval",)),
        ({"cron": "", "every": 5}, ("every", "60")),
        ({"name": ""}, ("name ''",)),
        ({"name": "a/b"}, ("'a/b'",)),
        ({"name": "x" * 64}, ("63 characters",)),
        ({"experiment": ""}, ("experiment",)),
    ],
)
def test_what_makes_no_schedule_is_refused(more: dict[str, Any], parts: tuple[str, ...]) -> None:
    with pytest.raises(SpecError) as refused:
        schedule(**more)
    assert all(part in str(refused.value) for part in parts), refused.value


def test_the_cache_is_off_for_every_task_at_every_depth() -> None:
    cached = {"cachingOptions": {"enableCache": True}}
    nested = {"a": cached, "b": {"cachingOptions": {}, "dag": {"tasks": {"c": cached}}}}
    text = str(pipeline(nested).for_kfp())
    assert text.count("'cachingOptions': {'enableCache': False}") == 3
    assert "True" not in text


def test_the_digest_tells_schedules_apart() -> None:
    same = [schedule({"count": "4"}), schedule({"count": 4}, cron="0 2 * * *")]
    others = [schedule(), schedule({"count": 5}), schedule({"count": 4}, service_account="a")]
    assert len({item.digest for item in same}) == 1
    assert len({item.digest for item in [*same, *others]}) == 4


def test_a_mark_survives_the_description_and_other_text_has_none() -> None:
    mark = Mark(3, True, "abc", 'my "pipeline".yaml')
    assert read_mark(mark.description()) == mark
    for text in ("", "nightly", "kfp-jax schedule {", 'kfp-jax schedule {"generation": 1}'):
        assert read_mark(text) is None


def test_the_newest_is_of_the_latest_generation_and_then_the_latest_made() -> None:
    def record(id: str, generation: int, minute: int) -> Record:
        made = NOW + timedelta(minutes=minute)
        mark = Mark(generation, False, "", "")
        return Record(id, "nightly", True, made, "", 60, "", "", mark, {})

    some = [record("c", 1, 9), record("b", 2, 1), record("a", 2, 2)]
    (found,) = schedules(some)
    assert [item.id for item in found.records] == ["a", "b", "c"]


def test_a_mark_fits_into_the_column_that_kfp_has_for_it() -> None:
    for label in ("x" * 1000, '"' * 1000, "\N{SNOWMAN}" * 1000, "a\nb"):
        text = Mark(10**6, False, "0" * 16, label).description()
        assert len(text.encode()) <= 255
        assert read_mark(text)


def test_an_interval_counts_from_its_beginning() -> None:
    moments = upcoming("", 3600, NOW, NOW - timedelta(minutes=90), ZULU, 2)
    assert [moment - NOW for moment in moments] == [timedelta(minutes=30), timedelta(minutes=90)]


def test_an_unknown_zone_is_refused() -> None:
    for name in ("Mars/Olympus", "../etc/passwd", ""):
        with pytest.raises(SpecError, match="CRON_SCHEDULE_TIMEZONE"):
            time_zone(name)


@pytest.mark.parametrize(
    ("cron", "seconds"),
    [
        ("0 0 2 * * *", 0),
        ("10 0 12 * * *", 30),  # in 10 s
        ("50 59 11 * * *", 10),  # 10 s ago
        ("0 0 12 * * *", 20),
        ("25 0 12 * * *", 0),
        ("0 * * * * *", 0),  # never quiet
    ],
)
def test_a_change_waits_while_a_firing_is_near(cron: str, seconds: float) -> None:
    assert quiet_in(cron, 0, NOW, NOW, ZULU) == seconds
