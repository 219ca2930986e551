"""An S3 server in a pod of the cluster: SeaweedFS, whose program is in the shared folder."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from e2e.places import Place, until
from fakes.kfp.launcher import store as s3
from kfp_jax.errors import Conflict
from kfp_jax.kube.requests import Resource
from kfp_jax.kube.resources import CONFIG_MAPS, PODS, SERVICES

ACCESS_KEY = "kfp-jax-test"
SECRET_KEY = "a-secret-of-the-tests"
BUCKET = "mlpipeline"
SECRET = "mlpipeline-minio-artifact"
_SECRETS = Resource("", "v1", "secrets")
_PORT = 8333


@dataclass(frozen=True)
class ClusterStore:
    """A store, by the address that pods know and by the one that tests know."""

    in_pods: str
    here: s3.Store

    def files(self, uri: str, folder: Path) -> Path:
        """Returns a copy of what is at a URI."""
        target = folder / uri.rpartition("/")[2]
        self.here.download(uri, target)
        return target

    def give(self, place: Place) -> str:
        """Tells a namespace of the store, as an administrator of KFP does; returns its secret.

        KFP's launcher reads its own in files: see `fakes.kfp.launcher.store`.
        """
        keys = {"accesskey": ACCESS_KEY, "secretkey": SECRET_KEY}
        try:
            place.create(_SECRETS, {"metadata": {"name": SECRET}, "stringData": keys})
        except Conflict:
            return "kfp-store"  # it knows already
        of_launcher = {
            "metadata": {"name": "kfp-store"},
            "stringData": {**keys, "endpoint": self.in_pods},
        }
        place.create(_SECRETS, of_launcher)
        reference = {
            "secretName": SECRET, "accessKeyKey": "accesskey", "secretKeyKey": "secretkey"
        }  # fmt: skip
        provider = {
            "endpoint": self.in_pods.partition("://")[2],
            "disableSSL": True,
            "region": "us-east-1",
            "credentials": {"fromEnv": False, "secretRef": reference},
        }
        providers = yaml.safe_dump({"minio": {"default": provider}})
        place.create(
            CONFIG_MAPS, {"metadata": {"name": "kfp-launcher"}, "data": {"providers": providers}}
        )
        return "kfp-store"


@contextmanager
def cluster_store(place: Place, image: str) -> Iterator[ClusterStore]:
    """Runs the server in a place until the block ends."""
    program = shutil.which("weed") or str(Path(sys.executable).with_name("weed"))
    shutil.copy2(program, place.folder / "weed")
    account = {
        "name": "all",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (place.folder / "s3.json").write_text(json.dumps({"identities": [account]}))
    (place.folder / "master.toml").write_text("[master.volume_growth]\ncopy_1 = 1\n")
    place.create(PODS, _server(place, image))
    place.create(
        SERVICES,
        {
            "metadata": {"name": "seaweedfs"},
            "spec": {"selector": {"app": "seaweedfs"}, "ports": [{"port": _PORT}]},
        },
    )
    until(
        "the store answers",
        lambda: any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in place.get(PODS, "seaweedfs")["status"].get("conditions", ())
        ),
    )
    address = place.get(SERVICES, "seaweedfs")["spec"]["clusterIP"]
    with _forwarded(place) as port:
        here = s3.Store(f"http://127.0.0.1:{port}", ACCESS_KEY, SECRET_KEY)
        here.put(BUCKET, ".made", b"")  # makes the bucket
        yield ClusterStore(f"http://{address}:{_PORT}", here)


def _server(place: Place, image: str) -> dict[str, Any]:
    folder = str(place.folder)
    command = [
        f"{folder}/weed", "server", "-s3", f"-s3.port={_PORT}", "-ip=127.0.0.1", "-ip.bind=0.0.0.0",
        "-dir=/data", f"-s3.config={folder}/s3.json", "-volume.max=500",
        "-master.volumeSizeLimitMB=256", "-master.telemetry=false",
    ]  # fmt: skip
    return {
        "metadata": {"name": "seaweedfs", "labels": {"app": "seaweedfs"}},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "command": command,
                    "workingDir": folder,
                    "readinessProbe": {
                        "httpGet": {"path": "/healthz", "port": _PORT},
                        "periodSeconds": 1,
                    },
                    "volumeMounts": [
                        {"name": "program", "mountPath": folder},
                        {"name": "data", "mountPath": "/data"},
                    ],
                }
            ],
            "securityContext": {"runAsUser": 0},
            "volumes": [
                {"name": "program", "hostPath": {"path": folder}},
                {"name": "data", "emptyDir": {}},
            ],
        },
    }


@contextmanager
def _forwarded(place: Place) -> Iterator[int]:
    command = ["kubectl", "port-forward", "-n", place.namespace, "pod/seaweedfs", f":{_PORT}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forward:
        try:
            assert forward.stdout
            line = forward.stdout.readline()
            found = re.search(r"127\.0\.0\.1:(\d+)", line)
            assert found, line
            yield int(found[1])
        finally:
            forward.kill()
