"""What people do with schedules: make, change, pause, resume, list and remove them."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from kfp_jax.clock import Clock, SystemClock
from kfp_jax.errors import Conflict, SpecError
from kfp_jax.schedules.records import (
    Found,
    Mark,
    Record,
    schedules,
    steps,
    the_schedule,
    there,
)
from kfp_jax.schedules.server import LastRun, Server
from kfp_jax.schedules.spec import Schedule, upcoming

# KFP's controller looks every ten seconds for what is due; a change so close to a firing could lose
# it or make it twice.
_NEAR = timedelta(seconds=20)
Note = Callable[[str], None]


@dataclass(frozen=True)
class Listed:
    """A schedule as people look at it.

    Attributes:
        next_firing: None where it is off, or its cron is not one that we read.
        last_run: None where it never ran.
    """

    found: Found
    next_firing: datetime | None
    last_run: LastRun | None


def create(server: Server, schedule: Schedule, *, paused: bool = False) -> bool:
    """Makes a schedule. Returns whether it was not there yet.

    Raises:
        Conflict: There is another of that name.
        ClusterError: The server refused or did not answer.
    """
    found = the_schedule(schedule.name, server.recurring_runs(schedule.name))
    if found is None:
        made = server.create(schedule, _mark(schedule, 1, paused), enabled=not paused)
        _settle(server, made, paused=paused)
        return True
    if found.newest.mark is None or found.newest.mark.digest != schedule.digest:
        whose = "" if found.newest.mark else ", made by somebody else,"
        raise Conflict(
            f"Schedule {schedule.name}{whose} is there and does something else; change it with"
            " kfp-jax schedule update, or choose another name."
        )
    if found.unfinished:
        _replace(server, found, schedule, paused=found.paused)
    return False


def update(
    server: Server,
    schedule: Schedule,
    zone: tzinfo,
    *,
    clock: Clock | None = None,
    note: Note = lambda _: None,
) -> bool:
    """Puts another schedule into the place of the one of its name. Returns whether it differs.

    One that is paused stays so. Runs that go on are left alone.

    Raises:
        NotFound: There is none.
        Conflict: Somebody else made it, or changes it at the same time.
        ClusterError: The server refused or did not answer; the same call again finishes the change.
    """
    found = the_schedule(schedule.name, server.recurring_runs(schedule.name))
    found = there(schedule.name, found, () if found else _names(server))
    if found.newest.mark is None:
        raise Conflict(
            f"Schedule {schedule.name} was made by somebody else, and its pipeline and arguments"
            " would be lost; delete it and create it anew, or choose another name."
        )
    if found.newest.mark.digest == schedule.digest and not found.unfinished:
        _tidy(server, found)
        return False
    _wait_for_quiet(found, schedule, zone, clock or SystemClock(), note)
    _replace(server, found, schedule, paused=found.paused)
    return True


def exists(server: Server, name: str) -> bool:
    """Returns whether there is a schedule of that name.

    Raises:
        Conflict: There are several.
        ClusterError: The server refused or did not answer.
    """
    return the_schedule(name, server.recurring_runs(name)) is not None


def pause(server: Server, name: str) -> bool:
    """Turns a schedule off. Returns whether it was on.

    Raises:
        NotFound: There is none.
        ClusterError: The server refused or did not answer.
    """
    found = _find(server, name)
    was_on = any(record.enabled for record in found.records)
    for record in found.records:
        if record.enabled:
            server.change("disable", record)
    if found.paused:
        _tidy(server, found)
    elif found.replaced:
        # The newest says that it is meant to be on, and would be believed.
        _replace(server, found, None, paused=True)
    return was_on


def resume(server: Server, name: str) -> bool:
    """Turns a schedule on, from the next firing on. Returns whether it was off.

    A copy takes its place: KFP would at once run what was due last while it was off, because it
    counts from a recurring run's creation or its last run.

    Raises:
        NotFound: There is none.
        ClusterError: The server refused or did not answer.
    """
    found = _find(server, name)
    if not found.paused and not found.unfinished:
        _tidy(server, found)
        return False
    _replace(server, found, None, paused=False)
    return True


def delete(server: Server, name: str) -> None:
    """Removes a schedule.

    Raises:
        NotFound: There is none.
        Conflict: One of its runs goes on, and would be removed with it.
        ClusterError: The server refused or did not answer.
    """
    found = _find(server, name)
    for run in server.last_runs(list(found.records)).values():
        if not run.ended:
            raise Conflict(
                f"Schedule {name} has a run that goes on ({run.name}, {run.id}) and would end with"
                " it; wait for it or terminate it, and pause the schedule meanwhile."
            )
    for record in found.records:
        if record.enabled:
            server.change("disable", record)
    for record in reversed(found.records):
        server.change("delete", record)


def listed(server: Server, now: datetime, zone: tzinfo) -> list[Listed]:
    """Returns all schedules, whoever made them.

    Raises:
        ClusterError: The server refused or did not answer.
    """
    records = server.recurring_runs()
    runs = server.last_runs(records)
    result = []
    for found in schedules(records):
        latest = [runs[record.id] for record in found.records if record.id in runs]
        last = max(latest, key=lambda run: run.created, default=None)
        result.append(Listed(found, _next(found, last, now, zone), last))
    return result


def _next(found: Found, last: LastRun | None, now: datetime, zone: tzinfo) -> datetime | None:
    newest = found.newest
    if not newest.enabled or not (newest.cron or newest.every):
        return None
    since = last.created if last and last.created > newest.created else newest.created
    try:
        return upcoming(newest.cron, newest.every, now, since, zone, 1)[0]
    except SpecError:  # somebody else's, which KFP reads and we refuse
        return None


def _find(server: Server, name: str) -> Found:
    found = the_schedule(name, server.recurring_runs(name))
    return there(name, found, () if found else _names(server))


def _names(server: Server) -> list[str]:
    return [found.name for found in schedules(server.recurring_runs())]


def _mark(schedule: Schedule, generation: int, paused: bool) -> Mark:
    return Mark(generation, paused, schedule.digest, schedule.pipeline.label)


def _replace(server: Server, found: Found, schedule: Schedule | None, *, paused: bool) -> None:
    """Puts a new recurring run, of a schedule or a copy, into the place of all others."""
    old = found.newest
    generation = (old.mark.generation if old.mark else 0) + 1
    if schedule:
        new = server.create(schedule, _mark(schedule, generation, paused), enabled=False)
    else:
        digest, label = (old.mark.digest, old.mark.pipeline) if old.mark else ("", "of others")
        mark = Mark(generation, paused, digest, label)
        new = server.copy(old.body, mark, enabled=False)
    _settle(server, new, paused=paused, others=found.records)


def _settle(server: Server, new: Record, *, paused: bool, others: tuple[Record, ...] = ()) -> None:
    """Makes `new` the only one that counts.

    Raises:
        Conflict: Another command has made a newer one meanwhile.
    """
    now_there = server.recurring_runs(new.name)
    known = {record.id for record in (new, *others)}
    current = [record for record in now_there if record.mark or record.id in known]
    if new.id not in {record.id for record in current}:
        raise Conflict(f"Schedule {new.name} was deleted by somebody else at the same time.")
    newest = max(current, key=lambda record: record.order)
    if newest.id != new.id:
        server.change("disable", new)
        server.change("delete", new)
        raise Conflict(
            f"Schedule {new.name} was changed by somebody else at the same time; look at it with"
            " kfp-jax schedule list, and try again."
        )
    running = _running(server, current, new)
    for step in steps(current, new.id, enabled=not paused):
        if step.verb != "delete" or step.record.id not in running:
            server.change(step.verb, step.record)


def _tidy(server: Server, found: Found) -> None:
    """Removes what was replaced while a run of it went on, once that is over."""
    running = _running(server, list(found.replaced), found.newest)
    for record in found.replaced:
        if record.id not in running:
            server.change("delete", record)


def _running(server: Server, records: list[Record], new: Record) -> set[str]:
    """Returns those with a run that goes on: KFP would remove it with its recurring run."""
    others = [record for record in records if record.id != new.id]
    runs = server.last_runs(others) if others else {}
    return {owner for owner, run in runs.items() if not run.ended}


def _wait_for_quiet(
    found: Found, schedule: Schedule, zone: tzinfo, clock: Clock, note: Note
) -> None:
    """Waits until no firing is near, so that the change neither loses nor doubles one."""
    now = datetime.fromtimestamp(clock.wall(), UTC)
    old = found.newest
    if not old.enabled:
        return
    times = [(old.cron, old.every, old.created), (schedule.cron, schedule.every, now)]
    seconds = max(quiet_in(cron, every, since, now, zone) for cron, every, since in times)
    if seconds:
        note(f"A run is due about now; the change waits {seconds:.0f} s for it.")
        clock.sleep(seconds)


def quiet_in(cron: str, every: int, since: datetime, now: datetime, zone: tzinfo) -> float:
    """Returns for how many seconds a firing is near. Pure.

    What fires every minute or so is never quiet: it is changed at once.
    """
    first, second = upcoming(cron, every, now - _NEAR, min(since, now - _NEAR), zone, 2)
    if first > now + _NEAR or second - first <= 4 * _NEAR:
        return 0.0
    return (first + _NEAR - now).total_seconds()
