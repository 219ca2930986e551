"""`kfp-jax schedule`: pipelines that KFP runs again and again."""

import re
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Annotated

import typer

from kfp_jax.cli import options
from kfp_jax.cli.cluster import note
from kfp_jax.cli.tables import print_facts, print_json, print_table
from kfp_jax.errors import SpecError
from kfp_jax.schedules import manage
from kfp_jax.schedules.cron import in_words, parse_cron
from kfp_jax.schedules.pipeline import read_pipeline
from kfp_jax.schedules.server import TOKEN_VARIABLE, Connection, Server
from kfp_jax.schedules.spec import Schedule, time_zone

_LATER = ("2nd", "3rd", "4th", "5th")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

schedule = typer.Typer(
    help="Have KFP run a pipeline again and again: at most one run at a time, none made up for.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Name = Annotated[str, typer.Argument(help="The schedule's name.")]
PipelineArgument = Annotated[
    str, typer.Argument(help="One of our pipelines by name, or a compiled one's .yaml file.")
]
CronOption = Annotated[
    str,
    typer.Option("--cron", help="Six fields, seconds first: '0 30 2 * * *' is nightly at 02:30."),
]
Every = Annotated[str, typer.Option("--every", help="Or a plain interval: 6h, 90m, 1d.")]
Arguments = Annotated[
    list[str] | None,
    typer.Option("--argument", "-a", help="name=value for the pipeline; repeat it."),
]
Experiment = Annotated[str, typer.Option("--experiment", help="What its runs belong to.")]
ServiceAccount = Annotated[
    str, typer.Option("--service-account", help="Of its pods; else KFP's default.")
]
Root = Annotated[
    str, typer.Option("--pipeline-root", help="Where artifacts go; else KFP's default.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check and show, and call nobody.")]
_SERVER = "KFP's API"
Zone = Annotated[
    str,
    typer.Option(
        "--time-zone",
        envvar="CRON_SCHEDULE_TIMEZONE",
        help="The server's zone, if its administrator set one.",
        rich_help_panel=_SERVER,
    ),
]
Host = Annotated[
    str,
    typer.Option(
        "--host",
        help="Its URL; else KF_PIPELINES_ENDPOINT, else that of the cluster.",
        rich_help_panel=_SERVER,
    ),
]
UserNamespace = Annotated[
    str,
    typer.Option("--namespace", help="Yours, where KFP has several.", rich_help_panel=_SERVER),
]
TokenFile = Annotated[
    str,
    typer.Option(
        "--token-file",
        help=f"File with a bearer token; else {TOKEN_VARIABLE}, else the pod's own.",
        rich_help_panel=_SERVER,
    ),
]
CaFile = Annotated[
    str,
    typer.Option("--ca-file", help="Who signed the server's certificate.", rich_help_panel=_SERVER),
]


def _connection(
    *,
    host: Host = "",
    namespace: UserNamespace = "",
    token_file: TokenFile = "",
    ca_file: CaFile = "",
) -> Connection:
    token = ""
    if token_file:
        try:
            token = Path(token_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"--token-file {token_file} cannot be read: {error}.") from error
    return Connection(host, namespace, token, ca_file)


_takes_connection = options.takes(_connection)


@schedule.command("create")
@_takes_connection
def create(
    connection: Connection,
    *,
    name: Name,
    pipeline: PipelineArgument,
    cron: CronOption = "",
    every: Every = "",
    argument: Arguments = None,
    experiment: Experiment = "Default",
    service_account: ServiceAccount = "",
    pipeline_root: Root = "",
    paused: Annotated[bool, typer.Option("--paused", help="Make it, and leave it off.")] = False,
    dry_run: DryRun = False,
    zone: Zone = "UTC",
) -> None:
    """Make a schedule; what is there already and does the same is left as it is.

    Example: kfp-jax schedule create nightly mnist --cron '0 30 2 * * *' -a num_nodes=4
    """
    wanted = _schedule(
        name, pipeline, cron, every, argument, experiment, service_account, pipeline_root
    )
    _show(wanted, time_zone(zone), dry_run=dry_run)
    if dry_run:
        return
    new = manage.create(Server(connection), wanted, paused=paused)
    state = "is made" + (" and paused" if paused else "") if new else "was there and does the same"
    note(f"Schedule {name} {state}.")


@schedule.command("update")
@_takes_connection
def update(
    connection: Connection,
    *,
    name: Name,
    pipeline: PipelineArgument,
    cron: CronOption = "",
    every: Every = "",
    argument: Arguments = None,
    experiment: Experiment = "Default",
    service_account: ServiceAccount = "",
    pipeline_root: Root = "",
    dry_run: DryRun = False,
    zone: Zone = "UTC",
) -> None:
    """Put another schedule into the place of one, with all that it is; a paused one stays so.

    A run that goes on is left alone. If it is interrupted, the same command finishes it.

    Example: kfp-jax schedule update nightly mnist --cron '0 0 4 * * *' -a num_nodes=8
    """
    wanted = _schedule(
        name, pipeline, cron, every, argument, experiment, service_account, pipeline_root
    )
    where = time_zone(zone)
    _show(wanted, where, dry_run=dry_run)
    if dry_run:
        return
    changed = manage.update(Server(connection), wanted, where, note=note)
    note(f"Schedule {name} {'is changed' if changed else 'does that already'}.")


@schedule.command("pause")
@_takes_connection
def pause(connection: Connection, *, name: Name) -> None:
    """Turn a schedule off; a run that goes on is left alone.

    Example: kfp-jax schedule pause nightly
    """
    was_on = manage.pause(Server(connection), name)
    note(f"Schedule {name} {'is paused' if was_on else 'was paused already'}.")


@schedule.command("resume")
@_takes_connection
def resume(connection: Connection, *, name: Name) -> None:
    """Turn a schedule on again; runs that were due meanwhile are not made up for.

    Example: kfp-jax schedule resume nightly
    """
    was_off = manage.resume(Server(connection), name)
    note(f"Schedule {name} {'is on again' if was_off else 'was on already'}.")


@schedule.command("list")
@_takes_connection
def list_schedules(
    connection: Connection, *, as_json: options.Json = False, zone: Zone = "UTC"
) -> None:
    """List the schedules, also those that others made: state, next firing, last run.

    Example: kfp-jax schedule list
    """
    found = manage.listed(Server(connection), datetime.now(UTC), time_zone(zone))
    if as_json:
        print_json([_as_json(item) for item in found])
    elif found:
        columns = ["schedule", "state", "when", "next", "last run", "ended", "made by"]
        print_table(columns, [_row(item) for item in found])
    else:
        note("There are no schedules.")
    for item in found:
        if item.found.unfinished:
            note(
                f"A change of schedule {item.found.name} was interrupted; repeat the command, or"
                " use resume or pause."
            )
        if item.found.newest.error:
            note(f"KFP says of schedule {item.found.name}: {item.found.newest.error}")


@schedule.command("delete")
@_takes_connection
def delete(connection: Connection, *, name: Name) -> None:
    """Remove a schedule; its runs of before stay.

    Example: kfp-jax schedule delete nightly
    """
    manage.delete(Server(connection), name)
    note(f"Schedule {name} is deleted.")


def _schedule(
    name: str,
    pipeline: str,
    cron: str,
    every: str,
    argument: list[str] | None,
    experiment: str,
    service_account: str,
    pipeline_root: str,
) -> Schedule:
    if cron and (text := parse_cron(cron).notice):
        note(text)
    return Schedule(
        name=name,
        pipeline=read_pipeline(pipeline),
        cron=cron,
        every=_seconds(every),
        arguments=options.assignments(argument, "-a"),
        experiment=experiment,
        service_account=service_account,
        pipeline_root=pipeline_root,
    )


def _seconds(text: str) -> int:
    """Returns the seconds of `6h`; 0 for nothing.

    Raises:
        SpecError: It is no such text.
    """
    if not text:
        return 0
    match = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if not match:
        raise SpecError(f"--every {text!r:.40} is not valid; write a number and s, m, h or d: 6h.")
    return int(match[1]) * _UNITS[match[2]]


def _show(wanted: Schedule, zone: tzinfo, *, dry_run: bool) -> None:
    first, *others = wanted.next_firings(datetime.now(UTC), zone)
    rows = {
        "pipeline": wanted.pipeline.label,
        "when": _when(wanted.cron, wanted.every),
        "next": in_words(first),
        **{name: in_words(moment) for name, moment in zip(_LATER, others, strict=False)},
        "arguments": ", ".join(f"{key}={value}" for key, value in wanted.arguments.items()) or "-",
        "experiment": wanted.experiment,
        "account": wanted.service_account or "KFP's default",
        "runs": "one at a time, none made up for, never from the cache",
    }
    print_facts(f"Schedule {wanted.name}{' (dry run)' if dry_run else ''}", rows, good=True)


def _when(cron: str, every: int) -> str:
    return cron or f"every {every} s"


def _row(item: manage.Listed) -> list[str]:
    newest, last = item.found.newest, item.last_run
    return [
        item.found.name,
        item.found.state,
        _when(newest.cron, newest.every),
        in_words(item.next_firing) if item.next_firing else "-",
        in_words(last.created) if last else "-",
        last.state if last else "-",
        "kfp-jax" if newest.mark else "others",
    ]


def _as_json(item: manage.Listed) -> dict[str, object]:
    newest, last = item.found.newest, item.last_run
    return {
        "name": item.found.name,
        "id": newest.id,
        "state": item.found.state,
        "cron": newest.cron,
        "every_seconds": newest.every,
        "next": item.next_firing.isoformat() if item.next_firing else None,
        "last_run": last
        and {
            "id": last.id,
            "state": last.state,
            "created": last.created.isoformat(),
        },
        "ours": newest.mark is not None,
    }
