"""Trainer's status server as a pod meets it: HTTPS, a made authority, the file of a token."""

import ipaddress
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kfp_jax_runtime import status_server

PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ns/trainjobs/mnist/status"


@dataclass
class FakeStatusServer:
    """What it was sent, and what it answers.

    Attributes:
        environ: What Trainer sets in a pod.
        posts: Token and body of each post that it took.
        answer: Its next status code.
        before: Called before each answer.
    """

    environ: dict[str, str]
    posts: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    asked: int = 0
    answer: int = 200
    before: Callable[[], object] = lambda: None
    changed: threading.Condition = field(default_factory=threading.Condition)

    def wait_for(self, found: Callable[[], bool], seconds: float = 10) -> None:
        with self.changed:
            assert self.changed.wait_for(found, seconds), self.posts

    @property
    def statuses(self) -> list[dict[str, Any]]:
        return [body["trainerStatus"] for _, body in self.posts]


@contextmanager
def fake_status_server(folder: Path) -> Iterator[FakeStatusServer]:
    """Runs one on loopback; its files are in the folder."""
    key, authority = _certificate("authority", None)
    own_key, own = _certificate("status", (key, authority))
    (folder / "ca.crt").write_bytes(_pem(authority))
    private = own_key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "server.pem").write_bytes(private + _pem(own))
    (folder / "token").write_text("first\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    fake = FakeStatusServer(
        {
            status_server.URL: f"https://127.0.0.1:{server.server_port}{PATH}",
            status_server.CA_CERTIFICATE: str(folder / "ca.crt"),
            status_server.TOKEN: str(folder / "token"),
        }
    )
    server.RequestHandlerClass = _handler(fake)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(fake: FakeStatusServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            fake.before()
            code = fake.answer if self.path == PATH else 404
            self.send_response(code)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")
            with fake.changed:
                fake.asked += 1
                if code == 200:
                    fake.posts.append((self.headers["Authorization"], body))
                fake.changed.notify_all()

        def log_message(self, *_: object) -> None:
            pass

    return Handler


Issuer = tuple[ec.EllipticCurvePrivateKey, x509.Certificate]


def _certificate(name: str, issuer: Issuer | None) -> Issuer:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[1].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    signer = issuer[0] if issuer else key
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
    )
    if issuer is None:
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(usage, critical=True)
    else:
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    return key, builder.sign(signer, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
