"""Recurring runs as the server has them, and which of them is a schedule. Pure.

A recurring run of KFP cannot be changed. To change a schedule a new one takes the place of the old,
so for a while there are several of one name. Each carries, in its description, which generation of
the schedule it is and whether it is meant to be on; the newest counts.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from kfp_jax.errors import Conflict, NotFound

_MAX_LABEL = 60
_MARK = re.compile(r"kfp-jax schedule (\{.*\})\s*$", re.DOTALL)


@dataclass(frozen=True)
class Mark:
    """What a recurring run of ours says of itself.

    Attributes:
        generation: Of its schedule; the highest counts.
        paused: Whether it is meant to be off.
        digest: Of what it does.
        pipeline: What the user called the pipeline, for people; long ones lose their beginning.
    """

    generation: int
    paused: bool
    digest: str
    pipeline: str

    def description(self) -> str:
        """Returns the description of the recurring run, which `read_mark` reads."""
        # KFP's database keeps 255 characters.
        label = self.pipeline[-_MAX_LABEL:].encode("ascii", "replace").decode()
        return f"kfp-jax schedule {json.dumps({**asdict(self), 'pipeline': label})}"


def read_mark(description: str) -> Mark | None:
    """Returns the mark in a description; None where somebody else made the recurring run."""
    match = _MARK.search(description)
    try:
        return Mark(**json.loads(match[1])) if match else None
    except (TypeError, ValueError):
        return None


@dataclass(frozen=True)
class Record:
    """A recurring run.

    Attributes:
        cron: "" where it has an interval.
        every: Seconds; 0 where it has a cron.
        error: What the server says is wrong with it, or "".
        body: All that a copy of it needs, as the API has it.
    """

    id: str
    name: str
    enabled: bool
    created: datetime
    cron: str
    every: int
    experiment: str
    error: str
    mark: Mark | None
    body: Mapping[str, Any]

    @property
    def order(self) -> tuple[int, datetime, str]:
        """What makes it newer than another of its schedule; never equal for two."""
        return (self.mark.generation if self.mark else 0, self.created, self.id)


@dataclass(frozen=True)
class Found:
    """A schedule as it is: its recurring runs, the newest first.

    Attributes:
        records: At least one.
    """

    records: tuple[Record, ...]

    @property
    def newest(self) -> Record:
        """The recurring run that counts."""
        return self.records[0]

    @property
    def name(self) -> str:
        """Its name."""
        return self.newest.name

    @property
    def replaced(self) -> tuple[Record, ...]:
        """Those whose place the newest takes."""
        return self.records[1:]

    @property
    def unfinished(self) -> bool:
        """Whether a change of it was interrupted before its end."""
        if not self.replaced or self.newest.mark is None:
            return False
        as_meant = self.newest.enabled is not self.newest.mark.paused
        return not as_meant or any(record.enabled for record in self.replaced)

    @property
    def paused(self) -> bool:
        """Whether it is meant to be off."""
        if self.replaced and self.newest.mark:
            return self.newest.mark.paused
        return not self.newest.enabled

    @property
    def state(self) -> str:
        """One word for people."""
        if self.unfinished:
            return "UNFINISHED"
        return "PAUSED" if self.paused else "ENABLED"


def schedules(records: Iterable[Record]) -> list[Found]:
    """Returns the schedules that records make, by name; a foreign record is one of its own."""
    ours: dict[str, list[Record]] = {}
    found = []
    for record in records:
        if record.mark is None:
            found.append(Found((record,)))
        else:
            ours.setdefault(record.name, []).append(record)
    for same in ours.values():
        found.append(Found(tuple(sorted(same, key=lambda record: record.order, reverse=True))))
    return sorted(found, key=lambda item: (item.name, item.newest.order))


def the_schedule(name: str, records: Iterable[Record]) -> Found | None:
    """Returns the schedule of that name, or None.

    Raises:
        Conflict: There are several, of which at most one is ours.
    """
    found = [item for item in schedules(records) if item.name == name]
    if len(found) > 1:
        ids = ", ".join(item.newest.id for item in found)
        raise Conflict(
            f"{len(found)} recurring runs have the name {name} ({ids}), and somebody else made"
            " some; delete or rename those in KFP's pages."
        )
    return found[0] if found else None


def there(name: str, found: Found | None, known: Sequence[str] = ()) -> Found:
    """Returns the schedule.

    Raises:
        NotFound: There is none of that name.
    """
    if found is None:
        names = ", ".join(known) or "none"
        raise NotFound(f"There is no schedule {name}; there are: {names}.")
    return found


@dataclass(frozen=True)
class Step:
    """One call that brings a schedule into the state that is wanted."""

    verb: str  # disable, enable or delete
    record: Record


def steps(records: Iterable[Record], keep: str, *, enabled: bool) -> list[Step]:
    """Returns the calls after which `keep` is the only one on, or none is, in their order.

    The old is off before the new is on: an interruption in between leaves a gap, which the next
    call ends, and never two that fire.
    """
    every = list(records)
    others = [record for record in every if record.id != keep]
    off = [Step("disable", record) for record in others if record.enabled]
    kept = next(record for record in every if record.id == keep)
    turn = [] if kept.enabled is enabled else [Step("enable" if enabled else "disable", kept)]
    return [*off, *turn, *(Step("delete", record) for record in others)]
