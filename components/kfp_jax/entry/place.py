"""Where the jobs of this task run, and what they belong to there."""

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfp_jax.backends.base import Backend
from kfp_jax.backends.choice import Cluster, connect, is_local, on_cluster
from kfp_jax.backends.local import LocalBackend
from kfp_jax.kfp_task import Task, enter_task
from kfp_jax.manifests.identity import STUDY
from kfp_jax.sinks import Sink

if TYPE_CHECKING:
    from kfp_jax.backends.cluster import ClusterBackend
    from kfp_jax.kube.client import Client


@dataclass(frozen=True)
class OnCluster:
    """What a task has of the cluster that its jobs run on.

    Attributes:
        backend: Takes the jobs.
        client: To the cluster.
        task: What the jobs belong to.
    """

    backend: "ClusterBackend"
    client: "Client"
    task: Task = field(default_factory=Task)


@dataclass(frozen=True)
class TaskPlace:
    """Where this task's jobs run.

    Attributes:
        backend: Takes the jobs.
        cluster: What it is part of; None on one machine.
    """

    backend: Backend
    cluster: OnCluster | None = None


def task_place(name: str, sink: Sink, study: str = "") -> TaskPlace:
    """Returns the backend of that name; on a cluster its jobs belong to the run of this task."""
    if is_local(name):
        return TaskPlace(LocalBackend())
    client = connect(warn=sink.note)
    task = enter_task(client, os.environ, os.getpid())
    for note in task.notes:
        sink.note(note)
    labels = {**task.labels, STUDY: study} if study else task.labels
    backend = on_cluster(name, client, Cluster(labels=labels, owner=task.owner))
    return TaskPlace(backend, OnCluster(backend, client, task))
