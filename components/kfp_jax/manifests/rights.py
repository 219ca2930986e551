"""Every call that a launcher makes: its Role grants them, and `doctor` asks for each."""

from collections.abc import Iterator
from dataclasses import dataclass

from kfp_jax.manifests import jobset, runtime
from kfp_jax.store_access import DEFAULT_SECRET

TRAINER_GROUP, TRAINER_VERSION = runtime.API_VERSION.split("/")
JOBSET_GROUP, JOBSET_VERSION = jobset.API_VERSION.split("/")

_FOLLOW = ("get", "list", "watch")
_RUN = ("create", "delete", *_FOLLOW, "patch")


@dataclass(frozen=True)
class Right:
    """What an account must be allowed.

    Attributes:
        group: API group.
        resource: Plural, with a subresource behind a slash.
        verbs: All that are asked for.
        backends: Which run no job without it.
        without: What is not known or done without it, though jobs run.
        name: The one object that it is asked for; "" for any.
    """

    group: str
    resource: str
    verbs: tuple[str, ...]
    backends: tuple[str, ...] = ()
    without: str = ""
    name: str = ""

    def calls(self) -> Iterator[tuple[str, str, str]]:
        """Yields group, resource and verb of each call."""
        for verb in self.verbs:
            yield self.group, self.resource, verb


QUEUE = Right(
    "kueue.x-k8s.io", "workloads", ("list",), without="nobody is told why a job is still queued"
)
"""Where Kueue is there; granted by the overlays with a queue."""

LAUNCHER = (
    Right(TRAINER_GROUP, "trainjobs", _RUN, ("trainer",)),
    Right(JOBSET_GROUP, "jobsets", _RUN, ("jobset",)),
    Right(
        TRAINER_GROUP,
        "trainingruntimes",
        ("create", "delete", "get", "list", "patch"),
        without="no max_restarts, patch or JAX_* variables on the backend trainer",
    ),
    Right("", "pods", _FOLLOW, ("trainer", "jobset")),
    Right("", "pods/log", ("get",), without="no lines, metrics or model of a job are known"),
    Right("", "pods", ("patch",), without="Terminate in KFP leaves a second to end the job"),
    Right(
        "", "pods", ("delete",), without="what waits for a failed process keeps its grace of 30 s"
    ),
    Right("", "configmaps", ("create", "get", "patch"), without="no sweep as a pipeline step"),
    Right("", "events", ("list",), without="nobody is told why a job does not start"),
    Right(
        "",
        "persistentvolumeclaims",
        ("get",),
        without="a volume that only one machine can mount is not noticed",
    ),
    Right("", "services", ("get",), without="a foreign Service of a job's name is not noticed"),
    Right(
        "",
        "secrets",
        ("get",),
        without="no artifacts in the object store of Kubeflow Pipelines",
        name=DEFAULT_SECRET,
    ),
)
