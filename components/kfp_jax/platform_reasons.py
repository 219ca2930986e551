"""What Kubernetes' own words for an end, or for a start that does not come, mean. Data."""

from collections.abc import Mapping
from dataclasses import dataclass

from kfp_jax.status import (
    DELETED,
    FOREIGN_JOBSET,
    INIT_FAILED,
    JOB_REFUSED,
    OUT_OF_MEMORY,
    POD_REFUSED,
    QUOTA,
    WEBHOOK_DOWN,
)

# Ends that Kubernetes itself tells of: no process says this only because another one failed.
EVICTIONS: Mapping[str, str] = {
    "Evicted": "was evicted from its machine",
    "Preempted": "made room for a pod of higher priority",
    "PreemptionByScheduler": "made room for a pod of higher priority",
    "Preempting": "made room for a pod of higher priority",
    "DeletionByTaintManager": "lost its machine",
    "DeletionByPodGC": "lost its machine",
    "NodeLost": "lost its machine",
    "NodeShutdown": "lost its machine, which was shut down",
    "Terminated": "lost its machine, which was shut down",
    "TerminationByKubelet": "was ended by its machine",
    "EvictionByEvictionAPI": "had to leave its machine, as in a drain",
    DELETED: "was deleted by somebody",
}
NOT_STARTED = ("StartError", "ContainerCannotRun", "RunContainerError", "CreateContainerError")
PLATFORM_ENDS = frozenset({OUT_OF_MEMORY, INIT_FAILED, *NOT_STARTED, *EVICTIONS})


@dataclass(frozen=True)
class Told:
    """What the platform says of a whole job, or of what keeps it from starting.

    Attributes:
        sentence: Ours; {who} and {message} stand for whom it is about and for the platform's words.
        remedy: What to do.
    """

    sentence: str
    remedy: str


HOLDS: Mapping[str, Told] = {
    "Unschedulable": Told(
        "no machine has room for {who}: {message}",
        "ask for less in resources, or have machines added",
    ),
    "SchedulingGated": Told(
        "a scheduling gate holds {who} back: {message}", "ask those who run the queue"
    ),
    "ImagePullBackOff": Told(
        "the image of {who} cannot be pulled: {message}",
        "check its name, and that image_pull_secrets let the machines have it",
    ),
    "ErrImageNeverPull": Told(
        "the image of {who} is not on its machine: {message}", "load it there, or let it be pulled"
    ),
    "InvalidImageName": Told("the image of {who} has no valid name: {message}", "correct image"),
    "CreateContainerConfigError": Told(
        "{who} lacks something that it refers to: {message}",
        "create that Secret or ConfigMap, or correct the reference",
    ),
    "CreateContainerError": Told(
        "the container of {who} cannot be made: {message}", "check the command and the volumes"
    ),
    "RunContainerError": Told(
        "the container of {who} cannot be run: {message}", "check that the image has this command"
    ),
    "CrashLoopBackOff": Told(
        "{who} fails again and again: {message}", "look at its log of the time before"
    ),
    "FailedMount": Told("a volume cannot be mounted: {message}", "check the volumes"),
    QUOTA: Told(
        "the namespace's quota leaves no room for it: {message}",
        "ask for less, or wait until other jobs have ended",
    ),
    POD_REFUSED: Told(
        "the cluster refuses its pods: {message}",
        "change what it names, or ask those who set that rule",
    ),
    JOB_REFUSED: Told(
        "its controller cannot make what it needs: {message}",
        "change what it names, or ask those who run the cluster",
    ),
    WEBHOOK_DOWN: Told(
        "the cluster's admission does not answer: {message}", "ask those who run the cluster"
    ),
    FOREIGN_JOBSET: Told(
        "{message}, so its own cannot be made", "delete that JobSet, or use another name"
    ),
}
JOB_ENDS: Mapping[str, Told] = {
    "DeadlineExceeded": Told(
        "the cluster ended it at its deadline", "raise the deadline or train less"
    ),
    "TrainingRuntimeNotSupported": Told(
        "Trainer cannot use its runtime: {message}", "name another runtime"
    ),
    "ReachedMaxRestarts": Told(
        "all its restarts are used up: {message}", "its last lines are in its log"
    ),
}
