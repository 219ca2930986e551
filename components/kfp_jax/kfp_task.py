"""The KFP task that this launcher is: its run, what its jobs go with, and how it is terminated."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfp_jax.errors import ClusterError, Forbidden, NotFound, SpecError
from kfp_jax.kube.requests import Manifest
from kfp_jax.kube.resources import PODS
from kfp_jax.manifests.identity import Owner

if TYPE_CHECKING:
    from kfp_jax.kube.client import Client

POD_NAME = "KFP_POD_NAME"  # every task's pod has it
_RUN_LABEL = "pipeline/runid"  # KFP puts it on every pod of a run
_KILL = "workflows.argoproj.io/kill-cmd-main"


@dataclass(frozen=True)
class Task:
    """What jobs of a task belong to.

    Attributes:
        labels: The run, under `run`; nothing outside of KFP.
        owner: The run's Workflow. Not the pod: a retry of the task is another pod.
        notes: What the account may not do, and what follows from that, one sentence each.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    owner: Owner | None = None
    notes: tuple[str, ...] = ()


def enter_task(client: "Client", environ: Mapping[str, str], pid: int) -> Task:
    """Returns the task that this process is in, and has Terminate let it clean up.

    Args:
        client: Of the cluster that the task's pod is in.
        environ: Where KFP names the pod.
        pid: Of the process that Terminate is to tell.
    """
    name = environ.get(POD_NAME)
    if not name:
        return Task()
    try:
        pod = client.get(PODS, client.namespace, name)
    except (Forbidden, NotFound) as error:
        return Task(notes=(f"The job will belong to no run: {error}",))
    run = pod["metadata"].get("labels", {}).get(_RUN_LABEL, "")
    return Task({"run": run}, _workflow(pod), _soften_terminate(client, name, pid))


def own_run(client: "Client", environ: Mapping[str, str]) -> str:
    """Returns the run that this task's pod belongs to.

    Raises:
        SpecError: Its pod does not say so.
    """
    name = environ.get(POD_NAME, "")
    pod = client.get(PODS, client.namespace, name) if name else {"metadata": {}}
    run = pod["metadata"].get("labels", {}).get(_RUN_LABEL, "")
    if not run:
        raise SpecError(
            f"run_id is empty, and pod {name or '(unknown)'} has no label {_RUN_LABEL} that would"
            " name the run; give run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER."
        )
    return str(run)


def _workflow(pod: Manifest) -> Owner | None:
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner["kind"] == "Workflow":
            return Owner(owner["apiVersion"], owner["kind"], owner["name"], owner["uid"])
    return None


def _soften_terminate(client: "Client", name: str, pid: int) -> tuple[str, ...]:
    """Has Argo signal this process alone; returns what to say if that may not be.

    By default it signals the container's first process, with which everything dies within a second:
    too soon to see the job end, or to say so.
    """
    command = ["sh", "-c", f"kill -$0 {pid} || kill -$0 1", "%d"]
    changes = {"metadata": {"annotations": {_KILL: json.dumps(command)}}}
    try:
        client.patch(PODS, client.namespace, name, changes)
    except ClusterError as error:
        return (f"Terminate will leave this step a second to end its job: {error}",)
    return ()
