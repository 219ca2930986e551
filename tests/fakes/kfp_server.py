"""KFP's API server in this process, as far as schedules ask it: plain HTTP on loopback.

What comes in and what goes out is checked by the models of `kfp-server-api`: a field that they do
not have, or a value that they refuse, is a 400 or fails the test. Nothing fires by itself; a test
says so with `fire`.
"""

import itertools
import json
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import kfp_server_api
from kfp_server_api import models

Json = dict[str, Any]
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Refused(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


def checked(data: Json, model: str) -> Json:
    """Returns JSON that a model reads and writes without loss."""
    kind = getattr(models, model)
    unknown = set(data) - set(kind.attribute_map.values())
    if unknown:
        raise Refused(400, f"proto: unknown field {sorted(unknown)[0]!r}")
    api = kfp_server_api.ApiClient(kfp_server_api.Configuration(host="http://unused"))

    class Answer:
        def __init__(self) -> None:
            self.data = json.dumps(data)

    value = api.deserialize(Answer(), model)
    result: Json = api.sanitize_for_serialization(value)
    assert {key for key, item in data.items() if item is not None} <= result.keys()
    return result


class FakeKfpServer:
    def __init__(self, *, token: str = "") -> None:
        self.token = token
        self.requests: list[tuple[str, str, Json]] = []  # method, path, body
        self.recurring: dict[str, Json] = {}
        self.runs: dict[str, Json] = {}
        self.experiments: dict[str, Json] = {}
        self.before: Callable[[str, str], None] = lambda method, path: None
        self.left: int | None = None  # requests until the client is as good as dead
        self.page = ""  # answers with that instead
        self.most_enabled = 0  # of one name, at once
        self.now = START
        self._ids = itertools.count(1)
        handler = type("Handler", (_Handler,), {"api": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    # What a test does and sees.

    def fire(self, recurring_run_id: str, state: str = "SUCCEEDED") -> Json:
        """Makes a run of a recurring run, as the controller does."""
        owner = self.recurring[recurring_run_id]
        number = next(self._ids)
        run = checked(
            {
                "run_id": f"run-{number}",
                "display_name": f"{owner['display_name']}-{number}",
                "recurring_run_id": recurring_run_id,
                "experiment_id": owner["experiment_id"],
                "state": state,
                "created_at": self._tick(),
            },
            "V2beta1Run",
        )
        self.runs[run["run_id"]] = run
        return run

    def enabled(self, name: str) -> list[Json]:
        return [
            item
            for item in self.recurring.values()
            if item["display_name"] == name and item["status"] == "ENABLED"
        ]

    def of(self, name: str) -> list[Json]:
        return [item for item in self.recurring.values() if item["display_name"] == name]

    def calls(self, method: str, part: str = "") -> list[Json]:
        return [body for verb, path, body in self.requests if verb == method and part in path]

    def add(self, **fields: Any) -> Json:
        """Makes a recurring run as somebody else would."""
        return self.create_recurring_run(
            {
                "mode": "ENABLE",
                "trigger": {"cron_schedule": {"cron": "0 0 1 * * *"}},
                "pipeline_spec": {"root": {}},
                "runtime_config": {},
                "max_concurrency": "1",
                "experiment_id": "",
                **fields,
            }
        )

    # What it answers.

    def check_token(self, authorization: str) -> None:
        if self.token and authorization != f"Bearer {self.token}":
            raise Refused(401, "Unauthenticated: the token is not valid")

    def answer(self, method: str, path: str, query: dict[str, str], body: Json) -> Json:
        rest = path.removeprefix("/apis/v2beta1/")
        if (method, rest) == ("GET", "healthz"):
            return checked({"multi_user": False}, "V2beta1GetHealthzResponse")
        kinds = {
            "recurringruns": (self.recurring, "recurringRuns", "ListRecurringRunsResponse"),
            "runs": (self.runs, "runs", "ListRunsResponse"),
            "experiments": (self.experiments, "experiments", "ListExperimentsResponse"),
        }
        if method == "GET" and rest in kinds:
            return self._list(*kinds[rest], query)
        if (method, rest) == ("POST", "recurringruns"):
            return self.create_recurring_run(body)
        if (method, rest) == ("POST", "experiments"):
            number = next(self._ids)
            made = checked({**body, "experiment_id": f"experiment-{number}"}, "V2beta1Experiment")
            self.experiments[made["experiment_id"]] = made
            return made
        match = re.fullmatch(r"recurringruns/([\w-]+)(?::(enable|disable))?", rest)
        if not match:
            raise Refused(404, "Not Found")
        if match[1] not in self.recurring:
            raise Refused(404, f"Recurring run {match[1]} not found.")
        if method == "DELETE":
            del self.recurring[match[1]]
            # Their Workflows are owned by it.
            for run in [r for r in self.runs.values() if r["recurring_run_id"] == match[1]]:
                if run["state"] == "RUNNING":
                    run["state"] = "CANCELED"
        elif method == "POST" and match[2]:
            on = match[2] == "enable"
            self.recurring[match[1]]["status"] = "ENABLED" if on else "DISABLED"
            self.recurring[match[1]]["mode"] = "ENABLE" if on else "DISABLE"
        else:
            raise Refused(405, "Method Not Allowed")
        return {}

    def create_recurring_run(self, body: Json) -> Json:
        body = checked(body, "V2beta1RecurringRun")
        if "pipeline_spec" in body and "pipeline_version_reference" in body:
            raise Refused(400, "Invalid input error: both a spec and a version are given")
        if not 1 <= int(body["max_concurrency"]) <= 10:
            raise Refused(400, "Invalid input error: max concurrency out of 1..10")
        number = next(self._ids)
        made = checked(
            {
                **body,
                "recurring_run_id": f"recurring-{number}",
                "created_at": self._tick(),
                "status": "ENABLED" if body["mode"] == "ENABLE" else "DISABLED",
            },
            "V2beta1RecurringRun",
        )
        self.recurring[made["recurring_run_id"]] = made
        return made

    def watch(self) -> None:
        """Notes how many of one name are on."""
        names = {item["display_name"] for item in self.recurring.values()}
        counts = (len(self.enabled(name)) for name in names)
        self.most_enabled = max(self.most_enabled, *counts, 0)

    def _list(self, items: dict[str, Json], key: str, model: str, query: dict[str, str]) -> Json:
        found = list(items.values())
        for predicate in json.loads(query.get("filter", "{}")).get("predicates", ()):
            assert predicate["operation"] == "EQUALS"
            wanted = predicate["stringValue"]
            found = [item for item in found if item[predicate["key"]] == wanted]
        if "experiment_id" in query:
            found = [item for item in found if item["experiment_id"] == query["experiment_id"]]
        if query.get("sort_by") == "created_at desc":
            found.sort(key=lambda item: item["created_at"], reverse=True)
        start, size = int(query.get("page_token") or 0), int(query["page_size"])
        answer: Json = {key: found[start : start + size], "total_size": len(found)}
        if start + size < len(found):
            answer["next_page_token"] = str(start + size)
        return checked(answer, f"V2beta1{model}")

    def _tick(self) -> str:
        self.now += timedelta(seconds=1)
        return self.now.isoformat().replace("+00:00", "Z")


class _Handler(BaseHTTPRequestHandler):
    api: FakeKfpServer
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet; two would wait for each other

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body: Json = json.loads(text) if text else {}
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if self.api.left == 0:
            self.close_connection = True
            return
        try:
            self.api.before(self.command, parts.path)
            self.api.requests.append((self.command, parts.path, body))
            self.api.check_token(self.headers.get("Authorization", ""))
            answer = self.api.answer(self.command, parts.path, query, body)
            status = 200
        except Refused as refused:
            status, answer = refused.status, {"code": 3, "message": refused.message}
        self.api.watch()
        if self.api.left is not None:
            self.api.left -= 1
            if self.api.left == 0:  # what it did, nobody hears
                self.close_connection = True
                return
        if self.api.page:
            self._send(200, "text/html", self.api.page.encode())
        else:
            self._send(status, "application/json", json.dumps(answer).encode())

    do_GET = do_POST = do_DELETE = _serve

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass
