"""Both images run as any user, without one writable folder but /tmp."""

from typing import Any

import pytest
from e2e.places import Place, until
from kfp_jax.components.launching import IMAGE
from kfp_jax.kube.resources import PODS
from kfp_jax.manifests.pod import CONTAINER_SECURITY, CPU, POD_SECURITY

USES = {
    "launcher": (IMAGE, "kfp-jax --help && python3 -c 'import kfp.dsl, kfp_jax.components, pylab'"),
    "launcher-holds-no-jax": (IMAGE, "! python -c 'import jax'"),
    "trainer-cpu": (
        CPU.image,
        "python -c 'import jax, kfp_jax_runtime; print(jax.numpy.ones(3).sum())'",
    ),
}


def pod(image: str, script: str, uid: int | None) -> dict[str, Any]:
    user = {} if uid is None else {"runAsUser": uid}
    container = {
        "name": "main",
        "image": image,
        "command": ["sh", "-ec", f"id -u; {script}"],
        "securityContext": {**CONTAINER_SECURITY, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "uses-image"},
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": "pipeline-runner",
            "securityContext": {**POD_SECURITY, **user},
            "containers": [container],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    }


@pytest.mark.parametrize("uid", [None, 1_000_650_000])
@pytest.mark.parametrize("use", USES)
def test_an_image_needs_no_user_of_its_own(place: Place, use: str, uid: int | None) -> None:
    place.create(PODS, pod(*USES[use], uid))

    def ended() -> str:
        phase = place.get(PODS, "uses-image")["status"]["phase"]
        return phase if phase in ("Succeeded", "Failed") else ""

    phase = until("the pod ends", ended)
    log = place.log("uses-image", "main")
    assert phase == "Succeeded", log
    assert log.splitlines()[0] == str(uid or 65532)
