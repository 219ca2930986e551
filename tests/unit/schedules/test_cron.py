"""Cron as KFP reads it: what is refused, what five fields become, when it fires."""

from datetime import UTC, datetime
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kfp_jax.errors import SpecError
from kfp_jax.schedules.cron import in_words, next_firings, parse_cron

ZULU = ZoneInfo("UTC")
BERLIN = ZoneInfo("Europe/Berlin")
NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC)  # a Friday


def fires(
    text: str, after: datetime = NEW_YEAR, zone: ZoneInfo = ZULU, count: int = 3
) -> list[str]:
    return [
        f"{moment:%m-%d %H:%M:%S}" for moment in next_firings(parse_cron(text), after, zone, count)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 30 2 * * *", ["01-01 02:30:00", "01-02 02:30:00", "01-03 02:30:00"]),
        ("0 0 9 ? * 2-6", ["01-01 09:00:00", "01-02 09:00:00", "01-05 09:00:00"]),
        ("0 0 9 ? * MON-fri", ["01-01 09:00:00", "01-04 09:00:00", "01-05 09:00:00"]),
        ("0 0/20 * * * *", ["01-01 00:20:00", "01-01 00:40:00", "01-01 01:00:00"]),
        ("0 10/25 * * * *", ["01-01 00:10:00", "01-01 00:35:00", "01-01 01:10:00"]),
        ("0 5-15/5 0 * * *", ["01-01 00:05:00", "01-01 00:10:00", "01-01 00:15:00"]),
        ("15 0 0 1,15 * *", ["01-01 00:00:15", "01-15 00:00:15", "02-01 00:00:15"]),
        ("0 0 0 29 2 *", ["02-29 00:00:00"]),
        ("0 0 0 1 JAN *", ["01-01 00:00:00"]),
        # Both day fields restricted: either may match. With a star, even a stepped one, both must.
        ("0 0 0 13 * 5", ["01-08 00:00:00", "01-13 00:00:00", "01-15 00:00:00"]),
        ("0 0 0 */2 * 5", ["01-15 00:00:00", "01-29 00:00:00", "02-05 00:00:00"]),
        ("@daily", ["01-02 00:00:00", "01-03 00:00:00", "01-04 00:00:00"]),
        ("@weekly", ["01-03 00:00:00", "01-10 00:00:00", "01-17 00:00:00"]),
    ],
)  # fmt: skip
def test_six_fields_fire_when_kfp_fires_them(text: str, expected: list[str]) -> None:
    assert fires(text, count=len(expected)) == expected


@pytest.mark.parametrize(
    ("five", "six"),
    [
        ("30 2 * * *", "0 30 2 * * *"),
        ("*/15 * * * *", "0 */15 * * * *"),
        ("0 0 1 * *", "0 0 0 1 * *"),
        (" 0  9  *  *  1-5 ", "0 0 9 * * 1-5"),
    ],
)
def test_five_fields_are_read_as_crontab_does_and_that_is_said(five: str, six: str) -> None:
    cron = parse_cron(five)
    assert cron.text == six
    assert "five fields" in cron.notice
    assert repr(six) in cron.notice
    assert parse_cron(six).notice == ""


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ("0 fields", "second, minute, hour")),
        ("0 2 * *", ("4 fields",)),
        ("0 0 2 * * * 2027", ("7 fields",)),
        ("* 30 2 * * *", ("60 times within a minute", "write 0")),
        ("*/5 * * * * *", ("12 times within a minute",)),
        ("0 60 2 * * *", ("'60' for the minute", "0 to 59")),
        ("0 0 24 * * *", ("'24' for the hour", "0 to 23")),
        ("0 0 2 0 * *", ("'0' for the day of month", "1 to 31")),
        ("0 0 2 * 13 *", ("'13' for the month",)),
        ("0 0 2 * * 7", ("day of week", "0 to 6", "Sunday is 0")),
        ("0 0 2 * * 5L", ("'5L'", "day of week")),
        ("0 0 2 * * 5#2", ("'5#2'",)),
        ("0 0 2 L * *", ("'L' for the day of month",)),
        ("0 0 2 * * fri-mon", ("'fri-mon'", "backwards")),
        ("0 0 2 * * FOO", ("'FOO'",)),
        ("0 0/0 2 * * *", ("step of 0",)),
        ("0 0 2 *-5 * *", ("'*-5'",)),
        ("0 -1 2 * * *", ("'-1' for the minute",)),
        ("0 1, 2 * * *", ("'' for the minute",)),
        ("0 1.5 2 * * *", ("'1.5'",)),
        ("0 \N{ARABIC-INDIC DIGIT ONE} 2 * * *", ("for the minute",)),
        ("@every 1h", ("--every",)),
        ("@reboot", ("@daily",)),
        ("TZ=Asia/Tokyo 0 0 2 * * *", ("7 fields",)),
    ],
)
def test_what_kfp_would_refuse_or_misread_is_one_sentence(
    text: str, parts: tuple[str, ...]
) -> None:
    with pytest.raises(SpecError) as refused:
        parse_cron(text)
    assert all(part in str(refused.value) for part in parts), refused.value


def test_a_cron_that_never_fires_is_refused() -> None:
    with pytest.raises(SpecError, match="never fires within five years"):
        fires("0 0 0 30 2 *")


def test_a_time_that_the_clocks_skip_does_not_fire_that_day() -> None:
    march = datetime(2027, 3, 27, tzinfo=UTC)
    assert fires("0 30 2 * * *", march, BERLIN) == [
        "03-27 02:30:00", "03-29 02:30:00", "03-30 02:30:00",
    ]  # fmt: skip


def test_a_time_that_the_clocks_repeat_fires_twice_as_in_kfp() -> None:
    october = datetime(2027, 10, 31, tzinfo=BERLIN)
    moments = next_firings(parse_cron("0 30 2 * * *"), october, BERLIN, 3)
    assert [moment.astimezone(UTC).hour for moment in moments] == [0, 1, 1]
    assert [in_words(moment) for moment in moments] == [
        "Sun 31 Oct 2027 02:30 CEST", "Sun 31 Oct 2027 02:30 CET", "Mon 1 Nov 2027 02:30 CET",
    ]  # fmt: skip


def test_words_name_seconds_only_where_there_are_some() -> None:
    (moment,) = next_firings(parse_cron("7 0 2 * * *"), NEW_YEAR, ZULU, 1)
    assert in_words(moment) == "Fri 1 Jan 2027 02:00:07 UTC"


@st.composite
def crons(draw: st.DrawFn) -> str:
    def field(low: int, high: int) -> str:
        first = draw(st.integers(low, high))
        last = draw(st.integers(first, high))
        shape = draw(st.sampled_from(["*", f"{first}", f"{first}-{last}", f"*/{high // 2}"]))
        return shape + ("/3" if shape == f"{first}-{last}" else "")

    day = draw(st.sampled_from(["*", "?", "1-28"]))
    return f"{draw(st.integers(0, 59))} {field(0, 59)} {field(0, 23)} {day} * {field(0, 6)}"


@given(crons(), st.datetimes(datetime(2026, 1, 1), datetime(2030, 1, 1)))
def test_firings_ascend_and_fit_the_fields(text: str, start: datetime) -> None:
    cron, after = parse_cron(text), start.replace(tzinfo=UTC)
    moments = list(islice(cron.firings(after, BERLIN), 8))
    assert all(early < late for early, late in pairwise([after, *moments]))
    for moment in moments:
        assert moment.second in cron.seconds
        assert moment.minute in cron.minutes
        assert moment.hour in cron.hours


def test_in_the_zone_without_a_database_each_moment_comes_once() -> None:
    assert next_firings(parse_cron("0 30 2 * * *"), NEW_YEAR, UTC, 3) == [
        datetime(2027, 1, day, 2, 30, tzinfo=UTC) for day in (1, 2, 3)
    ]
