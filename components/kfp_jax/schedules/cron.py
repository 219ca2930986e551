"""KFP's cron expressions: read, refused, and their next firings, as its scheduler would have them.

KFP reads them with robfig/cron 1: six fields, seconds first, weekdays 0 (Sunday) to 6, and where
both day fields are restricted either may match. Libraries for Python put the seconds elsewhere, or
accept what KFP refuses (`7`, `L`, `#`), so the rules are written down here.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import islice

from kfp_jax.errors import SpecError

# KFP's scheduler gives up looking there, too.
_HORIZON = timedelta(days=5 * 366)
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_DESCRIPTORS = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}


@dataclass(frozen=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


_FIELDS = (
    _Field("second", 0, 59),
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, tuple(_MONTHS)),
    _Field("day of week", 0, 6, tuple(_WEEKDAYS)),
)


@dataclass(frozen=True)
class Cron:
    """When something fires.

    Attributes:
        text: The six fields, for KFP.
        seconds: And so on: the values of each field, ascending.
        any_day: Whether one of the day fields is `*` or `?`: then both must match, else either.
        notice: What was made of the text that was given, in one sentence, or "".
    """

    text: str
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    notice: str = ""

    def firings(self, after: datetime, zone: tzinfo) -> Iterator[datetime]:
        """Yields the moments after `after`, in the zone; at most five years of them.

        A wall-clock time that a change of the clocks skips does not fire, and one that it repeats
        fires twice, as in KFP.
        """
        start = after.astimezone(zone)
        for offset in range(_HORIZON.days):
            day = start.date() + timedelta(days=offset)
            if self._on(day):
                yield from (moment for moment in self._of_day(day, zone) if moment > after)

    def _on(self, day: date) -> bool:
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        right = in_month and in_week if self.any_day else in_month or in_week
        return day.month in self.months and right

    def _of_day(self, day: date, zone: tzinfo) -> Iterator[datetime]:
        for hour in self.hours:
            for fold in (0, 1):
                for minute in self.minutes:
                    for second in self.seconds:
                        moment = datetime(
                            day.year, day.month, day.day, hour, minute, second,
                            tzinfo=zone, fold=fold,
                        )  # fmt: skip
                        if fold and moment.utcoffset() == moment.replace(fold=0).utcoffset():
                            continue  # it is not repeated: both folds are one
                        # Of a time that is skipped the way back is another one.
                        back = moment.astimezone(UTC).astimezone(zone)
                        if back.replace(tzinfo=None) == moment.replace(tzinfo=None):
                            yield moment


def parse_cron(text: str) -> Cron:
    """Returns what an expression of KFP means; five fields are read as crontab's.

    Raises:
        SpecError: KFP would refuse it, or would not do what is meant.
    """
    fields, notice = _six_fields(text)
    values, stars = [], []
    for field, part in zip(_FIELDS, fields, strict=True):
        found, star = _values(part, field, text)
        values.append(found)
        stars.append(star)
    if len(values[0]) > 1:
        raise SpecError(
            f"Cron {text!r:.80} fires {len(values[0])} times within a minute, because the first of"
            " KFP's six fields is the second; write 0 there."
        )
    return Cron(
        text=" ".join(fields),
        seconds=tuple(sorted(values[0])),
        minutes=tuple(sorted(values[1])),
        hours=tuple(sorted(values[2])),
        days=frozenset(values[3]),
        months=frozenset(values[4]),
        weekdays=frozenset(values[5]),
        any_day=stars[3] or stars[5],
        notice=notice,
    )


def next_firings(cron: Cron, after: datetime, zone: tzinfo, count: int = 5) -> list[datetime]:
    """Returns the next moments.

    Raises:
        SpecError: There is none.
    """
    found = list(islice(cron.firings(after, zone), count))
    if not found:
        raise SpecError(
            f"Cron {cron.text!r} never fires within five years; look at its day and its month."
        )
    return found


def in_words(moment: datetime) -> str:
    """Returns a moment as people read it: Tue 1 Dec 2026 02:00 UTC."""
    # Not strftime: its names depend on the locale.
    weekday = _WEEKDAYS[moment.isoweekday() % 7].title()
    clock = f"{moment:%H:%M}" if not moment.second else f"{moment:%H:%M:%S}"
    month = _MONTHS[moment.month - 1].title()
    return f"{weekday} {moment.day} {month} {moment.year} {clock} {moment.tzname()}"


def _six_fields(text: str) -> tuple[Sequence[str], str]:
    stripped = text.strip()
    if stripped.startswith("@"):
        known = _DESCRIPTORS.get(stripped)
        if known is None:
            raise SpecError(
                f"Cron {text!r:.80} is none of {', '.join(_DESCRIPTORS)}; for a plain interval use"
                " --every."
            )
        return known.split(), ""
    fields = stripped.split()
    if len(fields) == 5:
        six = " ".join(["0", *fields])
        return six.split(), (
            f"Cron {stripped!r} has five fields; KFP wants the second before them, so {six!r} is"
            " used."
        )
    if len(fields) != 6:
        raise SpecError(
            f"Cron {text!r:.80} has {len(fields)} fields; give six: second, minute, hour, day of"
            " month, month, day of week (0 30 2 * * * is every night at 02:30)."
        )
    return fields, ""


def _values(part: str, field: _Field, text: str) -> tuple[set[int], bool]:
    """Returns the values of a field, and whether it has a star."""
    found: set[int] = set()
    star = False
    for item in part.split(","):
        match = re.fullmatch(r"([*?]|\w+)(?:-(\w+))?(?:/(\d{1,9}))?", item, re.ASCII)
        if not match or (match[1] in "*?" and match[2]):
            raise _refused(text, field, item, "that is no value, range or step")
        step = int(match[3] or 1)
        if match[1] in "*?":
            star, low, high = True, field.low, field.high
        else:
            low = _number(match[1], field, text, item)
            # With a step, a single value is where counting starts.
            high = _number(match[2], field, text, item) if match[2] else low
            high = field.high if match[3] and not match[2] else high
        if not step:
            raise _refused(text, field, item, "a step of 0 goes nowhere")
        if low > high:
            raise _refused(text, field, item, "the range runs backwards")
        found.update(range(low, high + 1, step))
    return found, star


def _number(word: str, field: _Field, text: str, item: str) -> int:
    if word.lower() in field.names:
        return field.low + field.names.index(word.lower())
    number = int(word) if word.isdigit() and len(word) < 9 else -1
    if not field.low <= number <= field.high:
        hint = "; Sunday is 0" if field.names and number == 7 and not field.low else ""
        raise _refused(text, field, item, f"KFP takes {field.low} to {field.high}{hint}")
    return number


def _refused(text: str, field: _Field, item: str, why: str) -> SpecError:
    return SpecError(
        f"Cron {text!r:.80} has {item!r:.40} for the {field.name}: {why}. The fields are second,"
        " minute, hour, day of month, month, day of week."
    )
