"""A real S3 server, SeaweedFS, on loopback; it can be killed and started again."""

import json
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from uuid import uuid4

ACCESS_KEY = "kfp-jax-test"
SECRET_KEY = "a-secret-of-the-tests"
READ_ONLY_KEY = "kfp-jax-reader"
WRITER_KEY = "kfp-jax-writer"  # may not make a bucket


_ANY_CERTIFICATE = ssl.create_default_context()
_ANY_CERTIFICATE.check_hostname = False
_ANY_CERTIFICATE.verify_mode = ssl.CERT_NONE


class S3Server:
    """SeaweedFS with accounts that may do all, all but make a bucket, and read.

    With `tls`, a folder that holds key.pem and cert.pem, it speaks TLS alone.
    """

    def __init__(self, folder: Path, *, tls: Path | None = None) -> None:
        self._folder = folder
        self._tls = tls
        self._ports = _free_ports(8)
        self._process: subprocess.Popen[bytes] | None = None
        accounts = [
            _account("all", ACCESS_KEY, ["Admin", "Read", "Write", "List", "Tagging"]),
            _account("writer", WRITER_KEY, ["Read", "Write", "List"]),
            _account("reader", READ_ONLY_KEY, ["Read", "List"]),
        ]
        (folder / "data").mkdir(parents=True)
        (folder / "s3.json").write_text(json.dumps({"identities": accounts}))
        # By default each bucket takes 7 volumes: with the fifth none would be left, and all further
        # writes be answered with an error that clients repeat for minutes.
        (folder / "master.toml").write_text("[master.volume_growth]\ncopy_1 = 1\n")
        self.start()

    @property
    def endpoint(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._ports[0]}"

    def environ(self, access: str = ACCESS_KEY, secret: str = SECRET_KEY) -> dict[str, str]:
        """The variables by which a program finds the server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": access,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self) -> None:
        program = shutil.which("weed") or str(Path(sys.executable).with_name("weed"))
        s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = self._ports
        ports = {
            "s3.port": s3, "s3.port.grpc": s3_grpc,
            "master.port": master, "master.port.grpc": master_grpc,
            "volume.port": volume, "volume.port.grpc": volume_grpc,
            "filer.port": filer, "filer.port.grpc": filer_grpc,
            "s3.port.iceberg": 0, "s3.port.lance": 0,
        }  # fmt: skip
        tls = ("key", "cert") if self._tls else ()
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    program, "server", "-s3", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
                    f"-dir={self._folder / 'data'}", f"-s3.config={self._folder / 's3.json'}",
                    "-volume.max=500", "-master.volumeSizeLimitMB=256",
                    "-master.telemetry=false",
                    f"-filer.localSocket={self._folder / 'filer.sock'}",
                    f"-s3.localSocket={self._folder / 's3.sock'}",
                    *(f"-{name}={port}" for name, port in ports.items()),
                    *(f"-s3.{name}.file={self._tls}/{name}.pem" for name in tls),
                ],
                stdout=log, stderr=log, cwd=self._folder,
            )  # fmt: skip
        self._wait_until_ready()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def bucket(self) -> str:
        """Makes a bucket and returns its name."""
        name = f"b{uuid4().hex[:12]}"
        import obstore
        from obstore.store import S3Store

        for attempt in range(60):
            # The first object makes the bucket, as it does for an account that may do all.
            store = S3Store(name, config=_config(self), client_options={"allow_http": True})
            try:
                obstore.put(store, ".made", b"")
            except (obstore.exceptions.BaseError, FileNotFoundError):
                self._make_bucket(name)
                time.sleep(0.1 + attempt / 100)
            else:
                return name
        raise AssertionError((self._folder / "log").read_text()[-3000:])

    def _make_bucket(self, name: str) -> None:
        request = urllib.request.Request(  # a bucket is a folder of the filer
            f"http://127.0.0.1:{self._ports[6]}/buckets/{name}/", method="POST"
        )
        with urllib.request.urlopen(request, timeout=10):
            pass

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(
                    f"{self.endpoint}/healthz", timeout=2, context=_ANY_CERTIFICATE
                ):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise AssertionError((self._folder / "log").read_text()[-3000:])


def _config(server: S3Server) -> dict[str, str]:
    return {
        "endpoint": server.endpoint,
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
        "region": "us-east-1",
    }


def _account(name: str, key: str, actions: list[str]) -> dict[str, object]:
    credentials = [{"accessKey": key, "secretKey": SECRET_KEY}]
    return {"name": name, "credentials": credentials, "actions": actions}


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()
