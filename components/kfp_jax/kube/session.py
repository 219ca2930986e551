"""The connections to one API server with one set of credentials."""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from kfp_jax.errors import Unavailable
from kfp_jax.kube import answers
from kfp_jax.kube.answers import Dropped, NotSent, Silent, Untrusted
from kfp_jax.kube.requests import Request
from kfp_jax.kube.stop import Stop

CONNECT_SECONDS = 5.0
# Admission webhooks may take 10 s each.
ANSWER_SECONDS = 30.0
_CONNECTIONS_KEPT = 8
_CHUNK = 64 * 1024
_WIRE_ERRORS = (HTTPError, HTTPException, OSError)


@dataclass(frozen=True)
class Access:
    """How to reach an API server.

    Attributes:
        server: Its address, `https://host:port`, with a path where it lies behind one.
        namespace: Where to work unless told otherwise.
        authorization: Gives the header's value of this moment, or "".
        tls: Certificates and keys, by the names that urllib3 gives them.
    """

    server: str
    namespace: str
    authorization: Callable[[], str]
    tls: Mapping[str, Any] = field(default_factory=dict)


class Session:
    """The connections of one set of credentials."""

    def __init__(self, access: Access) -> None:
        self.access = access
        parts = urlsplit(access.server)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._secure else 80)
        self._root = parts.path.rstrip("/")
        self.pool = urllib3.PoolManager(
            maxsize=_CONNECTIONS_KEPT,
            retries=False,
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=ANSWER_SECONDS),
            **access.tls,
        )

    def send(self, request: Request) -> urllib3.BaseHTTPResponse:
        """Returns the whole answer, on a connection that is kept for the next."""
        address = f"{self.access.server.rstrip('/')}{request.url}"
        with self._translated(request, ANSWER_SECONDS):
            return self.pool.request(
                request.method,
                address,
                body=request.encoded(),
                headers=self._headers(request),
                redirect=False,
            )

    @contextmanager
    def opened(
        self, request: Request, silence: float, stop: Stop
    ) -> Iterator[urllib3.HTTPResponse]:
        """Gives an answer whose body is still to be read, on a connection of its own."""
        kind = HTTPSConnection if self._secure else HTTPConnection
        connection = kind(self._host, self._port, timeout=CONNECT_SECONDS, **self._tls)
        try:
            with self._translated(request, silence):
                connection.connect()
            assert isinstance(connection.sock, socket.socket)
            wire = connection.sock
            connection.timeout = silence
            # Also while no header has come: a kubelet sends none before the first line of a log.
            with stop.calls(lambda: _hang_up(wire)):
                with self._translated(request, silence):
                    connection.request(
                        request.method,
                        f"{self._root}{request.url}",
                        headers=self._headers(request),
                        preload_content=False,
                    )
                    response = connection.getresponse()
                yield response
        finally:
            connection.close()

    def pieces(
        self, request: Request, response: urllib3.HTTPResponse, silence: float, stop: Stop
    ) -> Iterator[bytes]:
        """Yields the body as it comes."""
        with self._translated(request, silence):
            if response.status >= 400:
                raise answers.error(request, response.status, response.headers, response.read())
        while True:
            try:
                with self._translated(request, silence):
                    piece = response.read1(_CHUNK)
            except Unavailable:
                if stop.is_set:
                    return
                raise
            if not piece:
                return
            yield piece

    @property
    def _tls(self) -> Mapping[str, Any]:
        return self.access.tls if self._secure else {}

    def _headers(self, request: Request) -> dict[str, str]:
        headers = {"Accept": "application/json, */*", "User-Agent": "kfp-jax"}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if authorization := self.access.authorization():
            headers["Authorization"] = authorization
        return headers

    @contextmanager
    def _translated(self, request: Request, silence: float) -> Iterator[None]:
        try:
            yield
        except _WIRE_ERRORS as error:
            raise _unavailable(error, request, self.access.server, silence) from error


def _unavailable(error: Exception, request: Request, server: str, silence: float) -> Unavailable:
    """Returns what a failure of the connection means."""
    kind: type[Unavailable] = Dropped
    seen, remedy = "the connection broke", "look at the network and at the server"
    if isinstance(error, SSLError | OSError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        kind = Untrusted
        seen, remedy = "its certificate is not trusted", "name the right certificate authority"
    elif isinstance(error, NewConnectionError | ConnectTimeoutError | ConnectionRefusedError):
        kind = NotSent
        seen, remedy = "no connection to it came about", "check its address and that it runs"
    elif isinstance(error, ReadTimeoutError | TimeoutError):
        kind = Silent
        seen = f"nothing came for {silence:g} s"
    return kind(f"The API server {server} could not {request.action}: {seen}; {remedy}.")


def _hang_up(wire: socket.socket) -> None:
    """Ends both directions, so that a thread that waits for this socket goes on."""
    with suppress(OSError):  # closed already
        # Not the method of a TLS socket: that would forget its keys under the waiting thread.
        socket.socket.shutdown(wire, socket.SHUT_RDWR)
