"""What a store answers that is not as it should be, and the one sentence that it becomes."""

import subprocess
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from fakes.s3_server import S3Server
from kfp_jax_store import StoreError, open_store

pytestmark = pytest.mark.integration

SHORT = timedelta(seconds=3)


class Answers(BaseHTTPRequestHandler):
    """Says to everything what Amazon says to a session that is over: SeaweedFS has no such."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b"<Error><Code>ExpiredToken</Code><Message>The token has expired.</Message></Error>"
        self.send_response(400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def expired() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_session_that_is_over_is_to_be_renewed(expired: str) -> None:
    environ = {
        "AWS_ENDPOINT_URL": expired,
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_SESSION_TOKEN": "the-token",
    }
    with pytest.raises(
        StoreError, match=r"takes the credentials for expired \(ExpiredToken\)"
    ) as e:
        open_store("s3://b/x", environ, patience=SHORT).put("a", b"")
    assert e.value.problem == "expired"
    assert "the-token" not in str(e.value)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate of our own, and a server's key and certificate that it signed."""
    folder = tmp_path_factory.mktemp("tls")
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    request = ["openssl", "req", "-x509", *new]
    own = ["-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ours"]
    servers = ["-CA", "ca.pem", "-CAkey", "ca.key", "-keyout", "key.pem", "-out", "cert.pem"]
    of = ["-subj", "/CN=store", "-addext", "subjectAltName=IP:127.0.0.1"]
    for command in (
        [*request, *own],
        [*request, *servers, *of, "-addext", "basicConstraints=critical,CA:FALSE"],
    ):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


def test_tls_of_an_authority_of_ones_own(
    authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = S3Server(tmp_path / "s3", tls=authority)
    try:
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        with pytest.raises(StoreError, match="its TLS certificate is not trusted") as caught:
            open_store("s3://bucket/x", server.environ(), patience=SHORT).put("a", b"1")
        assert caught.value.problem == "tls"
        assert "\n" not in str(caught.value)

        monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))
        store = open_store("s3://bucket/x", server.environ(), patience=SHORT)
        store.put("a", b"1")
        assert store.get("a") == b"1"
    finally:
        server.kill()
