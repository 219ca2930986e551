"""Argo's part in Terminate: it tells a task to end, by the command that its pod names."""

import json
import time

from e2e.places import Place, kubectl
from kfp_jax.kube.resources import PODS

KILL_COMMAND = "workflows.argoproj.io/kill-cmd-main"


def terminate(place: Place, pod: str) -> None:
    """Sends SIGTERM as Argo does, and again 1.2 s later while the container lives."""
    annotations = place.get(PODS, pod)["metadata"].get("annotations", {})
    # Argo's own program signals process 1, with which everything in the container ends in a second.
    command = json.loads(annotations.get(KILL_COMMAND, '["sh", "-c", "kill -$0 1", "%d"]'))
    filled = [part.replace("%d", "15") for part in command]
    kubectl("exec", "-n", place.namespace, pod, "-c", "main", "--", *filled)
    time.sleep(1.2)
    if place.get(PODS, pod)["status"]["phase"] == "Running":
        # It may end meanwhile.
        kubectl("exec", "-n", place.namespace, pod, "-c", "main", "--", *filled, check=False)
