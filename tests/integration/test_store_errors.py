"""What a store answers that is not as it should be, and the one sentence that it becomes."""

import subprocess
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from fakes.s3_server import S3Server
from kfp_jax_store import StoreError, open_store, private_folder

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


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"AWS_ENDPOINT_URL": "seaweedfs.kubeflow:9000"}, "is no address; write http://host:port"),
        ({"AWS_ENDPOINT_URL": "http://user:hunter2@127.0.0.1:9"}, "holds a password"),
        ({"AWS_ACCESS_KEY_ID": "a\nb"}, "hold no line breaks"),
        ({"AWS_ACCESS_KEY_ID": "a\n"}, "cannot be reached at http://127.0.0.1:9"),
    ],
)
def test_settings_that_nobody_could_send_are_named(variables: dict[str, str], said: str) -> None:
    environ = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }
    with pytest.raises(StoreError, match=said) as refused:
        open_store("s3://b/x", environ | variables, patience=SHORT).put("a", b"")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("uri", ["s3://b//x", "s3://b/x//y", "s3://b/x?endpoint=y", "s3://b/a#b"])
def test_a_uri_with_two_meanings_is_refused(uri: str) -> None:
    with pytest.raises(StoreError, match="is not a folder in an object store"):
        open_store(uri, {})


def test_a_link_in_place_of_our_own_temporary_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = private_folder("launcher")
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o755)
    assert private_folder("launcher").stat().st_mode & 0o777 == 0o700
    made.rmdir()
    made.symlink_to(tmp_path)
    with pytest.raises(StoreError, match="is somebody else's"):
        private_folder("launcher")
