"""`kfp-jax status`: one job on a cluster, and why it is as it is."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from kfp_jax.cli import options
from kfp_jax.cli.cluster import connected, note
from kfp_jax.cli.tables import age, print_facts, print_json, print_table
from kfp_jax.cluster.lookup import Detail, last_lines, look_up
from kfp_jax.cluster.nodes import NodeState, trains
from kfp_jax.errors import ClusterError
from kfp_jax.manifests.environment import NODE
from kfp_jax.reports import Kind, Report, json_number, parse_line
from kfp_jax.sinks import Remaining, progress_of, show_values
from kfp_jax.status import Phase

_EVENTS_SHOWN = 20


def status(
    name: options.JobName,
    namespace: options.Namespace = "",
    context: options.Context = "",
    as_json: options.Json = False,
) -> None:
    """Show one job: phase, processes, progress, restarts, and its events, the newest last.

    Example: kfp-jax status mnist-0a1b2c3d-1
    """
    with connected(context, namespace) as (client, where):
        detail = look_up(client, where, name)
        lines: list[str] = []
        for node in reporter(detail):
            try:
                lines = last_lines(client, where, node)
            except ClusterError as error:  # its machine may be gone, and that be the trouble
                detail.notes.append(str(error))
    reports = read_reports(lines)
    if as_json:
        print_json(as_object(detail, reports))
        return
    now = datetime.now(UTC)
    good = detail.job.phase is not Phase.FAILED
    print_facts(f"Job {detail.job.name}", job_rows(detail, reports, now), good=good)
    if detail.nodes:
        print_table(*node_table(detail.nodes), title="Processes")
    if detail.events:
        print_table(*event_table(detail, now), title="Events, the newest last")
    for text in [*detail.missing, *detail.notes]:
        note(text)


def reporter(detail: Detail) -> list[NodeState]:
    """Returns process 0 of the newest attempt, which reports, in a list; [] if it is gone. Pure."""
    first = [node for node in detail.nodes if trains(detail.job, node) and node.process == 0]
    return sorted(first, key=lambda node: node.attempt)[-1:]


def read_reports(lines: Iterable[str]) -> list[Report]:
    """Returns the reports among the lines of a process. Pure."""
    parsed = (parse_line(line) for line in lines)
    return [item for item in parsed if isinstance(item, Report)]


def job_rows(detail: Detail, reports: Sequence[Report], now: datetime) -> dict[str, str]:
    """Returns what a person asks of a job first. Pure."""
    job = detail.job
    why = ": ".join(item for item in (job.reason, job.message) if item)
    rows = {
        "phase": job.phase.value + (", being deleted" if job.ending else ""),
        "because": why,
        "progress": describe_progress(reports) or (f"{job.progress} %" if job.progress else ""),
        "metrics": _newest_metrics(reports),
        "namespace": job.namespace,
        "backend": f"{job.backend}{f', {job.runtime}' if job.runtime else ''}",
        "nodes": "known to its runtime alone" if job.nodes is None else str(job.nodes),
        "restarts": "unknown" if job.restarts is None else str(job.restarts),
        "age": age(job.created, now),
        "run": job.run,
        "study": job.study,
        "attempt": job.attempt,
    }
    return {name: value for name, value in rows.items() if value}


def node_table(nodes: Iterable[NodeState]) -> tuple[list[str], list[list[str]]]:
    """Returns the columns and rows of a job's processes. Pure."""
    columns = ["process", "state", "attempt", "restarts", "machine", "pod", "detail"]
    rows = [
        [
            str(node.process) if node.step == NODE else f"{node.step} {node.process}",
            node.state,
            str(node.attempt),
            str(node.restarts),
            node.machine or "-",
            node.pod,
            _short(node.detail),
        ]
        for node in nodes
    ]
    return columns, rows


def event_table(detail: Detail, now: datetime) -> tuple[list[str], list[list[str]]]:
    """Returns the columns and rows of a job's events, the newest last. Pure."""
    columns = ["age", "level", "reason", "object", "message"]
    rows = [
        [
            age(event.when, now) + (f" x{event.count}" if event.count > 1 else ""),
            event.level,
            event.reason,
            f"{event.kind}/{event.name}",
            _short(event.text),
        ]
        for event in detail.events[-_EVENTS_SHOWN:]
    ]
    return columns, rows


def describe_progress(reports: Iterable[Report]) -> str:
    """Returns the last progress report for people, or "" when there is none. Pure."""
    remaining, text = Remaining(), ""
    for report in reports:
        if report.kind is Kind.PROGRESS:
            done, total = progress_of(report)
            left = remaining.seconds(report)
            eta = f", {left:.0f} s left" if left else ""
            unit = report.fields.get("unit", "step")
            text = f"{unit} {done} of {total} ({done / max(total, 1):.0%}){eta}"
    return text


def as_object(detail: Detail, reports: Sequence[Report]) -> dict[str, Any]:
    """Returns all of it for machines. Pure."""
    progress = [progress_of(item) for item in reports if item.kind is Kind.PROGRESS]
    metrics = _last_metrics(reports)
    return {
        **detail.job.to_json(),
        "progress": dict(zip(("done", "total"), progress[-1], strict=True)) if progress else None,
        "metrics": {name: json_number(value) for name, value in metrics.values.items()}
        if metrics
        else {},
        "processes": [node.to_json() for node in detail.nodes],
        "events": [event.to_json() for event in detail.events],
        "missing": detail.missing,
        "notes": detail.notes,
    }


def _last_metrics(reports: Iterable[Report]) -> Report | None:
    found = [item for item in reports if item.kind in (Kind.METRICS, Kind.RESULT)]
    return found[-1] if found else None


def _newest_metrics(reports: Iterable[Report]) -> str:
    report = _last_metrics(reports)
    if report is None:
        return ""
    at = f"step {report.step}: " if report.step is not None else ""
    return f"{at}{show_values(report)}"


def _short(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:297]}..."
