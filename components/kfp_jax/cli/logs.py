"""`kfp-jax logs`: what the processes of a job on a cluster write."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kfp_jax.backends.base import LogLine
from kfp_jax.cancellation import cancel_on_signals
from kfp_jax.cli import options
from kfp_jax.cli.cluster import connected, note
from kfp_jax.cluster.jobs import ClusterJob
from kfp_jax.cluster.lookup import find_job, read_log
from kfp_jax.cluster.nodes import NodeState, trains
from kfp_jax.errors import JobCancelled, NotFound, SpecError
from kfp_jax.reports import Report, parse_line
from kfp_jax.sinks import PlainSink

if TYPE_CHECKING:
    from kfp_jax.kube.client import Client


def logs(
    name: options.JobName,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")
    ] = False,
    process: Annotated[
        int | None, typer.Option("--process", help="Of this process alone.", show_default=False)
    ] = None,
    previous: Annotated[
        bool, typer.Option("--previous", help="Of the run before a container's restart in place.")
    ] = False,
    namespace: options.Namespace = "",
    context: options.Context = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Each line as it was written, as a JSON object.")
    ] = False,
) -> None:
    """Print what the processes of a job write, each line behind its process' number.

    Examples:
    kfp-jax logs mnist-0a1b2c3d-1 --follow

    kfp-jax logs mnist-0a1b2c3d-1 --process 1 --previous
    """
    if follow and previous:
        raise SpecError("--previous is of a run that has ended; leave out --follow.")
    with connected(context, namespace) as (client, where), cancel_on_signals() as cancellation:
        from kfp_jax.cluster.following import JobLogs

        job, found = find_job(client, where, name)
        nodes = [node for node in found if trains(job, node)]
        _check_process(job, nodes, process)
        reader = JobLogs(client, job, process=process, follow=follow)
        with cancellation.carried_out_by(reader.stop):
            if previous:
                lines = _previous(client, job, nodes, process)
            else:
                lines = (LogLine(*line) for line in reader.lines())
            count = _print_json(lines) if as_json else _print(lines)
    if cancellation.requested:
        raise typer.Exit(JobCancelled.exit_code)
    if not count:
        note(f"Job {name} has {_why_silent(job, nodes, previous=previous)}.")


def _why_silent(job: ClusterJob, nodes: Sequence[NodeState], *, previous: bool) -> str:
    if previous:
        return "no container that was restarted in its place"
    if job.phase.finished and not nodes:
        return (
            "no logs on the cluster any more, as its pods are gone; its launcher kept them in"
            " the output folder, under logs"
        )
    return f"written nothing yet; see: kfp-jax status {job.name} --namespace {job.namespace}"


def _check_process(job: ClusterJob, nodes: Iterable[NodeState], process: int | None) -> None:
    known = sorted({node.process for node in nodes}) or list(range(job.nodes or 0))
    if process is not None and known and process not in known:
        raise SpecError(
            f"Job {job.name} has no process {process}; it has {', '.join(map(str, known))}."
        )


def _previous(
    client: "Client", job: ClusterJob, nodes: Iterable[NodeState], process: int | None
) -> Iterator[LogLine]:
    gone: list[NotFound] = []
    for node in nodes:
        if process in (None, node.process):
            try:
                for text in read_log(client, job.namespace, node, previous=True):
                    yield LogLine(node.process, node.attempt, text)
            except NotFound as error:  # those of the others may be there
                gone.append(error)
    if gone:
        raise gone[0]


def _print(lines: Iterable[LogLine]) -> int:
    """Prints lines for people, reports as what they say; returns how many came."""
    sink = PlainSink(sys.stdout)
    count, attempt = 0, 1
    for count, line in enumerate(lines, start=1):  # noqa: B007  wanted after the loop
        if line.attempt > attempt:
            attempt = line.attempt
            sink.note(f"Attempt {attempt}:")
        report = parse_line(line.text)
        if isinstance(report, Report):
            sink.report(line.process, report)
        else:
            sink.log(line)
        if sink.failure:  # here the lines are all that was asked for
            raise sink.failure
    return count


def _print_json(lines: Iterable[LogLine]) -> int:
    count = 0
    for count, line in enumerate(lines, start=1):  # noqa: B007  wanted after the loop
        sys.stdout.write(json.dumps(line._asdict()) + "\n")
        sys.stdout.flush()
    return count
