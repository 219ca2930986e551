"""Finds jobs on a cluster, with their pods, events and logs."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from kfp_jax.backends.event_status import explained
from kfp_jax.backends.pod_status import JOBSET_NAME, Manifest
from kfp_jax.backends.queue_status import explained_by_queue
from kfp_jax.backends.workloads import read_workloads
from kfp_jax.cluster.jobs import ClusterJob, read_jobs, read_jobset, read_trainjob
from kfp_jax.cluster.nodes import (
    JobEvent,
    NodeState,
    missing,
    read_events,
    read_nodes,
)
from kfp_jax.errors import Forbidden, NotFound, Rejected, SpecError
from kfp_jax.kube import requests
from kfp_jax.kube.log_lines import LogCursor
from kfp_jax.kube.resources import EVENTS, JOBSETS, PODS, TRAINJOBS
from kfp_jax.kube.stop import Stop
from kfp_jax.status import JobStatus, Phase

if TYPE_CHECKING:
    from kfp_jax.kube.client import Client

_SILENCE_SECONDS = 30.0
_TAIL_LINES = 400
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")  # of any object on a cluster

T = TypeVar("T")


@dataclass(frozen=True)
class Found:
    """Jobs, and what could not be read beside them, one sentence each."""

    jobs: list[ClusterJob]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Detail:
    """One job with all that the cluster tells of it.

    Attributes:
        missing: What it lacks because kfp-jax did not make it.
        notes: What could not be read.
    """

    job: ClusterJob
    nodes: list[NodeState]
    events: list[JobEvent]
    missing: list[str]
    notes: list[str]


def find_jobs(client: "Client", namespace: str, *, labels: str = "") -> Found:
    """Returns the jobs of a namespace, of all namespaces for "".

    Raises:
        NotFound: The cluster knows neither TrainJobs nor JobSets.
        Forbidden: The account may read neither.
    """
    problems: list[Forbidden | NotFound] = []
    trainjobs = _read(lambda: client.list(TRAINJOBS, namespace, labels=labels).items, problems)
    jobsets = _read(lambda: client.list(JOBSETS, namespace, labels=labels).items, problems)
    if trainjobs is None and jobsets is None:
        raise problems[0]
    pods = _read(lambda: client.list(PODS, namespace, labels=JOBSET_NAME).items, problems)
    jobs = read_jobs(trainjobs or (), jobsets or (), pods or ())
    return Found(jobs, [str(item) for item in problems if isinstance(item, Forbidden)])


def find_job(client: "Client", namespace: str, name: str) -> tuple[ClusterJob, list[NodeState]]:
    """Returns the job of that name, and its nodes that are there now.

    Raises:
        SpecError: No job can have that name.
        NotFound: There is none.
    """
    job, pods = _find_job(client, namespace, name, [])
    return job, read_nodes(pods)


def look_up(client: "Client", namespace: str, name: str) -> Detail:
    """Returns the job of that name with its nodes and events.

    Raises:
        SpecError: No job can have that name.
        NotFound: There is none.
    """
    notes: list[str] = []
    job, pods = _find_job(client, namespace, name, notes)
    nodes = read_nodes(pods)
    events = _noted(lambda: client.list(EVENTS, namespace).items, notes) or ()
    why = explained(JobStatus(job.phase, job.reason, job.message), name, events)
    if job.queue and job.phase is Phase.QUEUED:
        why = explained_by_queue(why, job.queue, read_workloads(client, namespace, job.uid))
    job = replace(job, reason=why.reason, message=why.message)
    return Detail(job, nodes, read_events(events, job, nodes), missing(job, pods), notes)


def pod_labels(name: str) -> str:
    """Returns the selector of a job's pods; JobSet sets the label, whoever made the job."""
    return f"{JOBSET_NAME}={name}"


def last_lines(client: "Client", namespace: str, node: NodeState) -> list[str]:
    """Returns the last lines that a process wrote so far; none if it has not started."""
    return list(read_log(client, namespace, node, previous=False, tail=_TAIL_LINES))


def read_log(
    client: "Client", namespace: str, node: NodeState, *, previous: bool, tail: int = 0
) -> Iterator[str]:
    """Yields what a container has written so far; nothing if it has not started.

    Args:
        client: To the server.
        namespace: Where the pod is.
        node: Whose log.
        previous: The log of the container's run before its restart in place.
        tail: So many of the last lines; 0 for all.

    Raises:
        NotFound: Its machine has that log no more.
    """
    request = requests.pod_log(
        namespace, node.pod, node.container, follow=False, previous=previous, since="", tail=tail
    )
    cursor, head, found = LogCursor(), b"", False
    try:
        with client.stream(request, silence=_SILENCE_SECONDS, stop=Stop()) as pieces:
            for piece in pieces:
                head = head or piece
                for line in cursor.feed(piece):
                    found = True
                    yield line
            for line in cursor.end():
                found = True
                yield line
    except (NotFound, Rejected):
        return
    if head and not found:  # answered with a sentence of the kubelet's, as if that were the log
        which = "log of the run before" if previous else "log"
        raise NotFound(
            f"The {which} of process {node.process} (pod {node.pod}) is gone from its machine:"
            f" {_shown(head)}; a launcher of kfp-jax keeps logs in the output folder."
        )


def _find_job(
    client: "Client", namespace: str, name: str, notes: list[str]
) -> tuple[ClusterJob, Sequence[Manifest]]:
    if not _NAME.fullmatch(name):
        # An empty one would ask for the list of all jobs, one with a slash for something else.
        raise SpecError(
            f"{name!r:.80} is no job's name; give one that is listed by: kfp-jax list --namespace"
            f" {namespace}."
        )
    problems: list[Forbidden | NotFound] = []
    trainjob = _read(lambda: client.get(TRAINJOBS, namespace, name), problems)
    jobset = _read(lambda: client.get(JOBSETS, namespace, name), problems)
    if trainjob is not None or jobset is not None:
        pods = _read(lambda: client.list(PODS, namespace, labels=pod_labels(name)).items, problems)
        notes += [str(item) for item in problems if isinstance(item, Forbidden)]
        if trainjob is not None:
            return read_trainjob(trainjob, jobset, pods or ()), pods or ()
        if jobset is not None:
            return read_jobset(jobset, pods or ()), pods or ()
    refused = [item for item in problems if isinstance(item, Forbidden)]
    if refused:
        raise refused[0]
    raise NotFound(
        f"Namespace {namespace} has neither a TrainJob nor a JobSet {name}; list its jobs with:"
        f" kfp-jax list --namespace {namespace}."
    )


def _read(read: Callable[[], T], problems: list[Forbidden | NotFound]) -> T | None:
    try:
        return read()
    except (Forbidden, NotFound) as error:
        problems.append(error)
        return None


def _noted(read: Callable[[], T], notes: list[str]) -> T | None:
    problems: list[Forbidden | NotFound] = []
    found = _read(read, problems)
    notes += [str(item) for item in problems]
    return found


def _shown(words: bytes) -> str:
    """Returns the kubelet's words as part of a sentence."""
    return " ".join(words.decode(errors="replace").split())[:200].rstrip(".")
