"""A proxy in front of a real API server that counts, and loses answers on request."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from kfp_jax.kube.session import Access
from urllib3.util.ssl_ import create_urllib3_context

_CHUNK = 64 * 1024
_HOP_BY_HOP = ("connection", "transfer-encoding", "content-length", "keep-alive")


@dataclass(frozen=True)
class Seen:
    """One request: when it arrived whole, by time.time()."""

    moment: float
    method: str
    path: str


@dataclass
class Proxy:
    """Speaks plain HTTP on loopback and has the account of the server behind it.

    Attributes:
        url: Its address.
        seen: Every request so far.
        loses: Whether the answer to a request never arrives, though the server has done it.
    """

    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    loses: Callable[[Seen], bool] = lambda _: False

    def kubeconfig(self, folder: Path, namespace: str) -> str:
        """Writes a kubeconfig that leads through it; returns its path."""
        context = {"cluster": "proxy", "user": "nobody", "namespace": namespace}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": {"server": self.url}}],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": "proxy", "context": context}],
        }
        path = folder / "kubeconfig-of-proxy"
        path.write_text(yaml.safe_dump(document))
        return str(path)


@contextmanager
def proxy_to(access: Access) -> Iterator[Proxy]:
    """Runs one in front of a server."""
    proxy = Proxy()
    server = _Server(("127.0.0.1", 0), _handler(proxy, access))
    proxy.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # watches go on

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # somebody has hung up


def _handler(proxy: Proxy, access: Access) -> type[BaseHTTPRequestHandler]:
    parts = urlsplit(access.server)
    context = create_urllib3_context()
    context.load_verify_locations(access.tls["ca_certs"])
    if "cert_file" in access.tls:
        context.load_cert_chain(access.tls["cert_file"], access.tls.get("key_file"))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = _CHUNK
        _behind: HTTPConnection | None = None

        def _pass(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length) if length else None
            seen = Seen(time.time(), self.command, self.path)
            proxy.seen.append(seen)
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
            if access.authorization():
                headers["Authorization"] = access.authorization()
            if self._behind is None:
                assert parts.hostname is not None
                self._behind = HTTPSConnection(parts.hostname, parts.port, context=context)
            self._behind.request(self.command, self.path, body, headers)
            answer = self._behind.getresponse()
            if proxy.loses(seen):
                answer.read()
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            if answer.length is None:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.flush()
                while piece := answer.read1(_CHUNK):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")
            else:
                self.send_header("Content-Length", str(answer.length))
                self.end_headers()
                self.wfile.write(answer.read())
            self.wfile.flush()

        def _serve(self) -> None:
            try:
                self._pass()
            except (OSError, HTTPException):
                self.close_connection = True

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _serve

        def finish(self) -> None:
            if self._behind is not None:
                self._behind.close()
            with suppress(OSError):
                super().finish()

        def log_message(self, *_: object) -> None:
            pass

    return Handler
