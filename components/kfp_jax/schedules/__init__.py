"""Schedules: pipelines that KFP runs again and again, as recurring runs."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kfp_jax.schedules import manage
from kfp_jax.schedules.pipeline import read_pipeline
from kfp_jax.schedules.server import Connection, Server
from kfp_jax.schedules.spec import Schedule, time_zone

__all__ = ["Connection", "schedule"]


def schedule(
    name: str,
    pipeline: str,
    *,
    cron: str = "",
    every: int = 0,
    arguments: Mapping[str, Any] | None = None,
    experiment: str = "Default",
    service_account: str = "",
    pipeline_root: str = "",
    time_zone_name: str = "UTC",
    connection: Connection | None = None,
) -> list[datetime]:
    """Has KFP run a pipeline again and again: makes the schedule, or changes the one of its name.

    One run at a time, nothing is made up for, the cache is off. Calling it again changes nothing;
    a call that was interrupted is finished by the next.

    Args:
        name: The schedule's.
        pipeline: The name of one of our pipelines, or a compiled one's file.
        cron: When, as KFP's six fields; five are read as crontab's.
        every: Or seconds between runs, from 60 on.
        arguments: The pipeline's.
        experiment: What its runs belong to; made if it is not there.
        service_account: Of its pods; "" for KFP's default.
        pipeline_root: Where its runs put artifacts; "" for KFP's default.
        time_zone_name: The zone of KFP's server (its CRON_SCHEDULE_TIMEZONE).
        connection: Where KFP is; by default as `kfp.Client` finds it.

    Returns:
        The next five firings.

    Raises:
        SpecError: Something given is wrong; nothing was called.
        ClusterError: The server refused or did not answer.
    """
    zone = time_zone(time_zone_name)
    wanted = Schedule(
        name, read_pipeline(pipeline), cron, every, arguments or {}, experiment,
        service_account, pipeline_root,
    )  # fmt: skip
    firings = wanted.next_firings(datetime.now(UTC), zone)
    server = Server(connection or Connection())
    if manage.exists(server, name):
        manage.update(server, wanted, zone)
    else:
        manage.create(server, wanted)
    return firings
