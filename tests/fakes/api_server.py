"""An API server in this process: what a launcher needs of one, and faults on demand.

It speaks plain HTTP on the loopback interface, keeps objects of any served kind, and has no
controllers: a test plays them with `put`, `remove`, and the pod helpers.
"""

import copy
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

Manifest = dict[str, Any]
CORE = tuple(
    ("v1", plural)
    for plural in (
        "configmaps",
        "events",
        "limitranges",
        "namespaces",
        "pods",
        "resourcequotas",
        "secrets",
        "services",
        "persistentvolumeclaims",
    )
)
_START = int(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()) * 1_000_000_000


@dataclass
class Recorded:
    """A request as it came."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Manifest


@dataclass
class Fault:
    """What goes wrong with the next requests that fit.

    Attributes:
        kind: "answer" a status instead; "drop" before anything is done; "lose" the answer after it
            was done; "cut" the answer after `after` bytes of its body; "silent": say nothing more
            after so many.
    """

    kind: str
    times: int
    method: str = ""
    path: str = ""
    status: int = 0
    message: str = ""
    body: bytes = b""
    retry_after: str = ""
    after: int = 0

    def fits(self, method: str, url: str) -> bool:
        return self.times > 0 and self.method in ("", method) and self.path in url


@dataclass
class Log:
    """What one run of a container wrote: moments in nanoseconds, and text with its newline."""

    lines: list[tuple[int, str]] = field(default_factory=list)
    ended: bool = False
    instead: str = ""  # what the kubelet says where the container's own words are gone


@dataclass(frozen=True)
class Place:
    """The parts of an object's path."""

    api: str  # group/version, or v1
    plural: str
    namespace: str
    name: str
    subresource: str

    @property
    def kind(self) -> tuple[str, str]:
        return self.api, self.plural


class FakeApiServer:
    def __init__(self, *served: tuple[str, str], token: str = "token-1") -> None:
        self.served = {*CORE, *served}
        self.token = token
        self.allowed: Callable[[Manifest], bool] = lambda attributes: True
        self.rules: list[Manifest] = []  # what it lists of that
        self.openapi: dict[str, Manifest] = {}
        self.warning = ""
        self.finalized: set[tuple[str, str]] = set()  # kinds that a controller takes apart first
        self.requests: list[Recorded] = []
        self.faults: list[Fault] = []
        self.objects: dict[tuple[str, str], dict[tuple[str, str], Manifest]] = {}
        self.logs: dict[tuple[str, str], list[Log]] = {}
        self.changed = threading.Condition(threading.RLock())
        self.streams = 0  # open now
        self.accepted = 0  # connections so far
        self._version = itertools.count(2)
        self._latest = 1
        self._names = itertools.count(10_000)
        self._moment = itertools.count(_START, 1000)
        self._events: list[tuple[int, tuple[str, str], str, Manifest]] = []
        self._kept_from = 0
        self._gone_as_status = False
        self._bookmarks = 0
        self._epoch = 0
        self._running = threading.Event()
        self._connections: set[socket.socket] = set()
        self._port = 0
        self.up()

    # What a test does to the server.

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def up(self) -> None:
        """Listens, on the same port as before."""
        self._running.set()
        handler = type("Handler", (_Handler,), {"api": self})
        self._http = _Server(("127.0.0.1", self._port), handler)
        self._port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def down(self) -> None:
        """Refuses connections and breaks those that are open."""
        self._http.shutdown()
        self._http.server_close()
        self._running.set()
        self.break_connections()

    def pause(self) -> None:
        """Keeps connections open and says nothing, until `resume`."""
        self._running.clear()

    def resume(self) -> None:
        self._running.set()

    def break_connections(self) -> None:
        with self.changed:
            self._epoch += 1
            self.changed.notify_all()
            for connection in list(self._connections):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def end_streams(self) -> None:
        """Ends open watches and logs as a server does whose time for them is up."""
        with self.changed:
            self._epoch += 1
            self.changed.notify_all()

    def compact(self, *, as_status: bool = False) -> None:
        """Forgets all changes: who watches from before gets 410, in the stream or as status."""
        with self.changed:
            self._kept_from, self._events = self._latest, []
            self._gone_as_status = as_status

    def bookmark(self) -> None:
        with self.changed:
            self._latest = next(self._version)
            self._bookmarks += 1
            self.changed.notify_all()

    def fail(self, status: int, times: int = 1, **more: Any) -> None:
        self.faults.append(Fault("answer", times, status=status, **more))

    def drop(self, times: int = 1, **more: Any) -> None:
        self.faults.append(Fault("drop", times, **more))

    def lose_answer(self, times: int = 1, **more: Any) -> None:
        self.faults.append(Fault("lose", times, **more))

    def cut(self, after: int, times: int = 1, **more: Any) -> None:
        self.faults.append(Fault("cut", times, after=after, **more))

    def go_silent(self, after: int = 0, times: int = 1, **more: Any) -> None:
        self.faults.append(Fault("silent", times, after=after, **more))

    def calls(self, method: str = "", path: str = "", **query: str) -> list[Recorded]:
        """Returns the requests that fit so far."""
        return [
            request
            for request in list(self.requests)
            if method in ("", request.method)
            and path in request.path
            and query.items() <= request.query.items()
        ]

    def wait_for(self, condition: Callable[[], bool], seconds: float = 5.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "what the test waits for did not come"
            time.sleep(0.002)

    # Objects.

    def put(self, api: str, plural: str, manifest: Manifest, namespace: str = "ns") -> Manifest:
        """Stores an object as it is now, as a controller would, and tells the watchers."""
        with self.changed:
            self._latest = version = next(self._version)
            item = copy.deepcopy(manifest)
            metadata = item.setdefault("metadata", {})
            if not metadata.get("name"):
                metadata["name"] = f"{metadata['generateName']}{next(self._names)}"
            if namespace:
                metadata["namespace"] = namespace
            key = (namespace, metadata["name"])
            before = self.objects.setdefault((api, plural), {}).get(key)
            metadata["uid"] = before["metadata"]["uid"] if before else f"uid-{version}"
            metadata["resourceVersion"] = str(version)
            self.objects[api, plural][key] = item
            self._tell((api, plural), "MODIFIED" if before else "ADDED", item)
            return copy.deepcopy(item)

    def remove(
        self, api: str, plural: str, name: str, namespace: str = "ns", *, alone: bool = False
    ) -> None:
        """Removes an object and what it owns, unless it goes `alone`."""
        with self.changed:
            item = self.objects[api, plural].pop((namespace, name))
            self._latest = next(self._version)
            item["metadata"]["resourceVersion"] = str(self._latest)
            self._tell((api, plural), "DELETED", item)
            if (api, plural) == ("v1", "pods"):
                for log in self.logs.pop((namespace, name), []):
                    log.ended = True
            if alone:
                return
            uid = item["metadata"]["uid"]
            owned = [
                (kind, key)
                for kind, items in self.objects.items()
                for key, other in items.items()
                if uid in [o["uid"] for o in other["metadata"].get("ownerReferences", ())]
            ]
            for (owned_api, owned_plural), (owned_namespace, owned_name) in owned:
                self.remove(owned_api, owned_plural, owned_name, owned_namespace)

    def finalize(
        self, api: str, plural: str, name: str, namespace: str = "ns", grace: int = 0
    ) -> None:
        """Says that an object is to go; whoever takes it apart removes it."""
        with self.changed:
            item = copy.deepcopy(self.objects[api, plural][namespace, name])
            # Asked once more, a pod may be given less time and never more.
            if grace < item["metadata"].get("deletionGracePeriodSeconds", grace + 1):
                item["metadata"] |= {
                    "deletionTimestamp": now(),
                    "deletionGracePeriodSeconds": grace,
                }
                self.put(api, plural, item, namespace)

    def find(self, api: str, plural: str, name: str, namespace: str = "ns") -> Manifest | None:
        with self.changed:
            return copy.deepcopy(self.objects.get((api, plural), {}).get((namespace, name)))

    def _tell(self, kind: tuple[str, str], change: str, item: Manifest) -> None:
        self._events.append((self._latest, kind, change, copy.deepcopy(item)))
        self.changed.notify_all()

    # Pods, as a kubelet keeps them.

    def add_pod(self, name: str, namespace: str = "ns", **labels: str) -> None:
        metadata = {"name": name, "labels": {k.replace("_", "-"): v for k, v in labels.items()}}
        self.put("v1", "pods", {"metadata": metadata, "status": {"phase": "Pending"}}, namespace)

    def start(self, name: str, namespace: str = "ns", container: str = "node") -> None:
        """Starts the pod's container, again if it has ended."""
        with self.changed:
            runs = self.logs.setdefault((namespace, name), [])
            runs.append(Log())
            pod = self.find("v1", "pods", name, namespace)
            assert pod is not None
            before = pod["status"].get("containerStatuses", [{}])[0].get("state", {})
            status = {
                "name": container,
                "containerID": f"run-{len(runs)}",
                "restartCount": len(runs) - 1,
                "state": {"running": {}},
                "lastState": before if "terminated" in before else {},
            }
            pod["status"] = {"phase": "Running", "containerStatuses": [status]}
            self.put("v1", "pods", pod, namespace)

    def log(self, name: str, text: str, namespace: str = "ns", moment: int | None = None) -> None:
        """Writes as the container; `text` ends with a newline, or the next one goes on with it."""
        with self.changed:
            lines = self.logs[namespace, name][-1].lines
            if lines and not lines[-1][1].endswith("\n"):
                moment_before, begun = lines.pop()
                lines.append((moment_before, begun + text))
            else:
                lines.append((next(self._moment) if moment is None else moment, text))
            self.changed.notify_all()

    def exit(self, name: str, code: int = 0, namespace: str = "ns", told: bool = True) -> None:
        """Ends the container; its status follows unless it is not `told` yet."""
        with self.changed:
            self.logs[namespace, name][-1].ended = True
            self.changed.notify_all()
            pod = self.find("v1", "pods", name, namespace)
            if pod and told:
                status = pod["status"]["containerStatuses"][0]
                terminated = {
                    "exitCode": code,
                    "reason": "Error" if code else "Completed",
                    "finishedAt": now(),
                    "containerID": status["containerID"],
                }
                status["state"] = {"terminated": terminated}
                pod["status"]["phase"] = "Failed" if code else "Succeeded"
                self.put("v1", "pods", pod, namespace)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    # What the handler asks for.

    def take_fault(self, method: str, url: str) -> Fault | None:
        with self.changed:
            fault = next((fault for fault in self.faults if fault.fits(method, url)), None)
            if fault:
                fault.times -= 1
            return fault

    def watch(
        self, kind: tuple[str, str], namespace: str, query: Mapping[str, str]
    ) -> Iterator[bytes]:
        seen, end = int(query["resourceVersion"]), time.monotonic() + float(query["timeoutSeconds"])
        with self.changed:
            epoch, bookmarks = self._epoch, self._bookmarks
        while True:
            out = []
            with self.changed:
                if seen < self._kept_from:
                    gone = _status(410, "Expired", "too old resource version")
                    yield _event("ERROR", gone)
                    return
                for version, event_kind, change, item in self._events:
                    if version > seen and event_kind == kind and _fits(item, namespace, query):
                        out.append(_event(change, item))
                seen = self._latest
                if bookmarks < self._bookmarks:
                    bookmarks = self._bookmarks
                    out.append(_event("BOOKMARK", {"metadata": {"resourceVersion": str(seen)}}))
                if not out:
                    left = end - time.monotonic()
                    if left <= 0 or epoch != self._epoch:
                        return
                    self.changed.wait(left)
            yield from out

    def read_log(self, log: Log, query: Mapping[str, str]) -> Iterator[bytes]:
        # The API takes fractions of a second, and hands whole seconds on to the kubelet.
        since = query.get("sinceTime", "1970-01-01T00:00:00Z")
        first = int(datetime.fromisoformat(since).timestamp()) * 1_000_000_000
        line = sent = 0
        if log.instead:
            yield log.instead.encode()
            return
        with self.changed:
            epoch = self._epoch
        while True:
            with self.changed:
                out = bytearray()
                while line < len(log.lines):
                    moment, text = log.lines[line]
                    stamped = f"{_timestamp(moment)} {text}".encode()
                    if moment >= first:
                        out += stamped[sent:]
                    if not text.endswith("\n"):
                        sent = len(stamped)
                        break
                    line, sent = line + 1, 0
                if not out:
                    if log.ended or "follow" not in query or epoch != self._epoch:
                        return
                    self.changed.wait(5)
                    continue
            yield bytes(out)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    api: FakeApiServer
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.api._connections.add(self.connection)
        self.api.accepted += 1

    def finish(self) -> None:
        self.api._connections.discard(self.connection)
        with suppress(OSError):
            super().finish()

    def handle(self) -> None:
        with suppress(OSError):
            super().handle()

    def log_message(self, *_: object) -> None:
        pass

    def _serve(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        recorded = Recorded(self.command, url.path, query, dict(self.headers), body)
        self.api.requests.append(recorded)
        self.fault = self.api.take_fault(self.command, self.path)
        self.api._running.wait()
        kind = self.fault.kind if self.fault else ""
        if kind == "drop":
            self._hang_up()
        elif self.fault and kind == "answer":
            fault = self.fault
            status = _status(fault.status, "Because", fault.message or "as the test says")
            headers = {"Retry-After": fault.retry_after} if fault.retry_after else {}
            self._body(fault.status, fault.body or json.dumps(status).encode(), headers)
        elif self.headers.get("Authorization") != f"Bearer {self.api.token}":
            self._answer(401, _status(401, "Unauthorized", "Unauthorized"))
        else:
            self._route(url.path, query, body)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve

    def _route(self, path: str, query: Mapping[str, str], body: Manifest) -> None:
        api = self.api
        parts = path.strip("/").split("/")
        if path == "/version":
            self._answer(200, {"gitVersion": "v1.36.2"})
        elif path.startswith("/openapi/v3/apis/"):
            self._found(api.openapi.get(path.removeprefix("/openapi/v3/apis/")))
        elif parts[-1] == "selfsubjectrulesreviews":
            self._answer(201, {**body, "status": {"resourceRules": api.rules, "incomplete": True}})
        elif parts[-1] == "selfsubjectaccessreviews":
            allowed = api.allowed(body["spec"]["resourceAttributes"])
            self._answer(201, {**body, "status": {"allowed": allowed}})
        elif parts[0] == "apis" and len(parts) == 2:
            versions = sorted(
                {a.split("/")[1] for a, _ in api.served if a.startswith(f"{parts[1]}/")}
            )
            listed = [{"version": version} for version in versions]
            preferred = {"versions": listed, "preferredVersion": listed[-1]} if listed else None
            self._found(preferred)
        elif len(parts) == (3 if parts[0] == "apis" else 2):
            plurals = [plural for served, plural in api.served if served == "/".join(parts[1:])]
            self._found(
                {"resources": [{"name": plural} for plural in plurals]} if plurals else None
            )
        else:
            place = _place(parts)
            if place.kind in api.served:
                self._object(place, query, body)
            else:
                self._found(None)

    def _object(self, place: Place, query: Mapping[str, str], body: Manifest) -> None:
        api = self.api
        with api.changed:
            items = api.objects.setdefault(place.kind, {})
            item = items.get((place.namespace, place.name))
            if self.command == "POST":
                return self._create(place, query, body)
            if not place.name and "watch" not in query:
                return self._list(place, query, items)
            if place.name and item is None:
                message = f'{place.plural} "{place.name}" not found'
                return self._answer(404, _status(404, "NotFound", message))
            if self.command == "PATCH":
                assert item is not None
                changes = {k: v for k, v in body.items() if v != {}}
                stored = api.put(*place.kind, _merged(item, changes), place.namespace)
                return self._answer(200, stored)
            if self.command == "DELETE":
                assert item is not None
                wanted = body.get("preconditions", {}).get("uid")
                if wanted not in (None, item["metadata"]["uid"]):
                    return self._answer(409, _status(409, "Conflict", "the UID does not fit"))
                if place.kind in api.finalized:
                    if place.kind == ("v1", "pods"):
                        grace = body.get("gracePeriodSeconds", 30)
                        api.finalize(*place.kind, place.name, place.namespace, grace)
                    elif body.get("propagationPolicy") == "Foreground":
                        api.finalize(*place.kind, place.name, place.namespace)
                    else:
                        api.remove(*place.kind, place.name, place.namespace, alone=True)
                else:
                    api.remove(*place.kind, place.name, place.namespace)
                return self._answer(200, _status(200, "", ""))
            if place.name and place.subresource != "log":
                return self._answer(200, item)
        if place.name:
            return self._log(place, query)
        if api._gone_as_status and int(query["resourceVersion"]) < api._kept_from:
            return self._answer(410, _status(410, "Expired", "too old resource version"))
        return self._stream(api.watch(place.kind, place.namespace, query))

    def _create(self, place: Place, query: Mapping[str, str], body: Manifest) -> None:
        name = body["metadata"].get("name")
        if name and self.api.find(*place.kind, name, place.namespace):
            message = f'{place.plural} "{name}" already exists'
            return self._answer(409, _status(409, "AlreadyExists", message))
        if query.get("dryRun"):
            return self._answer(201, body)
        headers = {"Warning": f'299 - "{self.api.warning}"'} if self.api.warning else {}
        return self._answer(201, self.api.put(*place.kind, body, place.namespace), headers)

    def _list(
        self, place: Place, query: Mapping[str, str], items: Mapping[tuple[str, str], Manifest]
    ) -> None:
        fitting = [item for _, item in sorted(items.items()) if _fits(item, place.namespace, query)]
        begin = int(query.get("continue", 0))
        size = int(query.get("limit", 0)) or len(fitting)
        more = {"continue": str(begin + size)} if begin + size < len(fitting) else {}
        metadata = {"resourceVersion": str(self.api._latest), **more}
        self._answer(200, {"metadata": metadata, "items": fitting[begin : begin + size]})

    def _log(self, place: Place, query: Mapping[str, str]) -> None:
        runs = self.api.logs.get((place.namespace, place.name), [])
        back = 2 if query.get("previous") else 1
        if len(runs) < back:
            message = f'container "{query["container"]}" is waiting to start: ContainerCreating'
            return self._answer(400, _status(400, "BadRequest", message))
        return self._stream(self.api.read_log(runs[-back], query))

    def _found(self, document: Manifest | None) -> None:
        if document is None:
            self._body(404, b"404 page not found\n", {"Content-Type": "text/plain"})
        else:
            self._answer(200, document)

    def _answer(
        self,
        status: int,
        document: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._body(status, json.dumps(document).encode(), headers or {})

    def _body(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        if self.fault and self.fault.kind in ("lose", "silent"):
            return self._break_off()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return None

    def _stream(self, pieces: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        left = self.fault.after if self.fault and self.fault.kind in ("cut", "silent") else None
        self.api.streams += 1
        try:
            if left == 0:
                return self._break_off()
            for piece in pieces:
                self.api._running.wait()
                sent = piece if left is None else piece[:left]
                if sent:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(sent), sent))
                    self.wfile.flush()
                if left is not None:
                    left -= len(sent)
                    if left <= 0:
                        return self._break_off()
            self.wfile.write(b"0\r\n\r\n")
        finally:
            self.api.streams -= 1
        return None

    def _break_off(self) -> None:
        if self.fault and self.fault.kind == "silent":
            with self.api.changed:
                epoch = self.api._epoch
                self.api.changed.wait_for(lambda: epoch != self.api._epoch)
        self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)


def _place(parts: list[str]) -> Place:
    depth = 3 if parts[0] == "apis" else 2
    api, rest = "/".join(parts[1:depth]), parts[depth:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "")[:3]
    return Place(api, plural, namespace, name, subresource)


def _fits(item: Manifest, namespace: str, query: Mapping[str, str]) -> bool:
    metadata = item["metadata"]
    if namespace not in ("", metadata.get("namespace", "")):
        return False
    labels = metadata.get("labels", {})
    for term in filter(None, query.get("labelSelector", "").split(",")):
        key, equals, value = term.partition("=")
        if key not in labels or (equals and labels[key] != value.strip("=")):
            return False
    fields = [p.split("=", 1) for p in query.get("fieldSelector", "").split(",") if p]
    return all(_at(item, key) == value for key, value in fields)


def _at(item: Any, path: str) -> Any:
    for part in path.split("."):
        item = item.get(part, {})
    return item


def _merged(item: Any, changes: Any) -> Any:
    if not isinstance(changes, dict):
        return changes
    merged = dict(item) if isinstance(item, dict) else {}
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _event(change: str, item: Manifest) -> bytes:
    return json.dumps({"type": change, "object": item}).encode() + b"\n"


def _status(code: int, reason: str, message: str) -> Manifest:
    return {"kind": "Status", "code": code, "reason": reason, "message": message}


def _timestamp(moment: int) -> str:
    seconds, nanoseconds = divmod(moment, 1_000_000_000)
    second = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{second}.{nanoseconds:09d}Z"
