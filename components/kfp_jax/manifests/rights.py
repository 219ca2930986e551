"""Every call that a launcher or `cleanup` makes: its Role grants them, `doctor` asks for them."""

from collections.abc import Mapping

from kfp_jax.manifests.jobset import API_VERSION as JOBSET_API
from kfp_jax.manifests.runtime import GROUP

JOBSET_GROUP = JOBSET_API.partition("/")[0]

_JOB = ("create", "delete", "get", "list", "patch", "watch")

# Group and resource -> verbs.
LAUNCHER: Mapping[tuple[str, str], tuple[str, ...]] = {
    (GROUP, "trainjobs"): _JOB,
    (JOBSET_GROUP, "jobsets"): _JOB,
    (GROUP, "trainingruntimes"): ("create", "delete", "get", "list", "patch"),
    ("", "pods"): ("get", "list", "patch", "watch"),
    ("", "pods/log"): ("get",),
    ("", "events"): ("list",),
    ("", "services"): ("get",),
}
