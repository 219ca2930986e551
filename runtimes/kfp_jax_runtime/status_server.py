"""Progress and metrics for Trainer's status server, where the cluster offers one.

It shows them in the TrainJob's `status.trainerStatus`, for those who look at the job and not at its
log. Training neither waits for it nor fails with it: a daemon thread sends what is newest, at most
every five seconds, since the server's quota with the API server is small and the whole cluster's.
Standard library only.
"""

import http.client
import json
import math
import ssl
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

URL = "KUBEFLOW_TRAINER_SERVER_URL"
CA_CERTIFICATE = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
TOKEN = "KUBEFLOW_TRAINER_SERVER_TOKEN"

EVERY_SECONDS = 5.0
LAST_SECONDS = 2.0
"""For how long a program that has succeeded waits for its last status to be sent."""
TRIES = 4
"""So many posts may fail in a row; then the server has heard the last of this process."""
MAX_METRICS = 256
MAX_CHARACTERS = 64
"""Of a metric's name and of its value."""
_ANSWER_SECONDS = 5.0


@dataclass(frozen=True)
class Server:
    """Where to post, and the files that hold what that takes; both are rotated while we run."""

    url: str
    ca_certificate: Path
    token: Path

    @classmethod
    def of_environment(cls, environ: Mapping[str, str]) -> "Server | None":
        """Returns the server that Trainer names in a pod; None where it has none."""
        found = [environ.get(name, "") for name in (URL, CA_CERTIFICATE, TOKEN)]
        if not all(found) or not found[0].startswith("https://"):
            return None
        return cls(found[0], Path(found[1]), Path(found[2]))

    def post(self, status: Mapping[str, object]) -> None:
        """Replaces the job's status by this one.

        Raises:
            OSError: It did not take it.
        """
        parts = urlsplit(self.url)
        # Not urllib.request: it would go through the proxy that a pod may have for the world.
        connection = http.client.HTTPSConnection(
            parts.hostname or "",
            parts.port,
            timeout=_ANSWER_SECONDS,
            context=ssl.create_default_context(cafile=str(self.ca_certificate)),
        )
        try:
            connection.request(
                "POST",
                parts.path,
                body=json.dumps({"trainerStatus": status}, allow_nan=False).encode(),
                headers={
                    "Authorization": f"Bearer {self.token.read_text().strip()}",
                    "Content-Type": "application/json",
                },
            )
            answer = connection.getresponse()
            text = answer.read(500).decode(errors="replace")
            if answer.status != 200:
                raise OSError(f"it answered {answer.status}: {' '.join(text.split())[:200]}")
        except http.client.HTTPException as error:
            raise OSError(f"it speaks no HTTP: {error!r}") from error
        finally:
            connection.close()


class Newest:
    """The status that the reports so far amount to. Pure."""

    def __init__(self) -> None:
        self._metrics: dict[str, str] = {}
        self._first: tuple[float, int] | None = None
        self._last: tuple[float, int, int] | None = None
        self._ended = False

    def take(self, report: Mapping[str, object]) -> bool:
        """Takes one report; returns whether it says anything that a status holds."""
        values = report.get("values")
        if isinstance(values, Mapping):
            for name, value in values.items():
                self._take_metric(str(name), value)
        done, total, moment = (report.get(key) for key in ("done", "total", "time"))
        if isinstance(done, int) and isinstance(total, int) and isinstance(moment, int | float):
            if self._first is None or done < self._first[1]:
                self._first = (moment, done)
            self._last = (moment, done, total)
        self._ended = self._ended or report.get("kind") == "result"
        return report.get("kind") in ("metrics", "progress", "result")

    def status(self, moment: float) -> dict[str, object]:
        """Returns all that is known: each post replaces the one before.

        Args:
            moment: now, in seconds since the epoch.
        """
        found: dict[str, object] = {
            "metrics": [{"name": name, "value": value} for name, value in self._metrics.items()],
            "lastUpdatedTime": datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        if self._ended:
            return {**found, "progressPercentage": 100, "estimatedRemainingSeconds": 0}
        if self._last is None or self._last[2] <= 0:
            return found
        when, done, total = self._last
        # 100 is said by a program that has succeeded: it may still evaluate and export.
        found["progressPercentage"] = max(0, min(99, 100 * done // total))
        if self._first is not None and done > self._first[1]:
            pace = (when - self._first[0]) / (done - self._first[1])
            found["estimatedRemainingSeconds"] = max(0, math.ceil(pace * (total - done)))
        return found

    def _take_metric(self, name: str, value: object) -> None:
        """Keeps a metric's newest value; none is better than one that holds no more."""
        self._metrics.pop(name, None)
        # What is not finite comes as text.
        if isinstance(value, int | float) and 1 <= len(name) <= MAX_CHARACTERS:
            text = repr(value)
            if len(text) <= MAX_CHARACTERS:
                self._metrics[name] = text
        while len(self._metrics) > MAX_METRICS:
            del self._metrics[next(iter(self._metrics))]


class StatusPoster:
    """Posts what the reports of process 0 amount to."""

    def __init__(
        self,
        post: Callable[[Mapping[str, object]], None],
        *,
        every: float = EVERY_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Starts to wait for reports.

        Args:
            post: sends a status, or raises OSError.
            every: seconds between two posts, at least.
            clock: tells the time of a status.
        """
        self._post = post
        self._every = every
        self._clock = clock
        self._newest = Newest()
        self._changed = threading.Condition()
        self._news = self._closing = False
        self._thread = threading.Thread(target=self._run, name="status server", daemon=True)
        self._thread.start()

    def take(self, report: Mapping[str, object]) -> None:
        """Takes one report; returns at once."""
        with self._changed:
            if self._newest.take(report):
                self._news = True
                self._changed.notify_all()

    def close(self, seconds: float = LAST_SECONDS) -> None:
        """Sends what is newest, if that takes no longer than so many seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(seconds)

    def _run(self) -> None:
        failures = 0
        while self._wait_for_news():
            with self._changed:
                self._news = False
                status = self._newest.status(self._clock())
            try:
                self._post(status)
                failures = 0
            except (OSError, ValueError) as error:
                failures += 1
                if failures == TRIES:
                    _give_up(error)
                    return
                with self._changed:
                    self._news = not self._closing  # it is still to be told
            with self._changed:
                self._changed.wait_for(lambda: self._closing, self._every)

    def _wait_for_news(self) -> bool:
        """Returns whether there is something to post; False once all is told."""
        with self._changed:
            self._changed.wait_for(lambda: self._news or self._closing)
            return self._news


def _give_up(error: Exception) -> None:
    sys.stderr.write(
        f"kfp-jax: the TrainJob shows no progress any more, because Trainer's status server failed"
        f" {TRIES} times in a row: {error}\n"
    )


def poster(environ: Mapping[str, str]) -> StatusPoster | None:
    """Returns what posts to the status server of this pod; None where there is none."""
    server = Server.of_environment(environ)
    return StatusPoster(server.post) if server else None
