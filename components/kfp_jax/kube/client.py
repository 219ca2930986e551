"""Calls to an API server: one method for each thing that a launcher asks of it."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kfp_jax.clock import Clock, SystemClock
from kfp_jax.errors import ClusterError, NotFound, Throttled, Unavailable
from kfp_jax.kube import answers, requests
from kfp_jax.kube.answers import Expired, NotSent, Untrusted
from kfp_jax.kube.requests import Manifest, Request, Resource
from kfp_jax.kube.retry import CHANCE, Backoff, Retry
from kfp_jax.kube.session import Access, Session
from kfp_jax.kube.stop import Stop


@dataclass(frozen=True)
class Listing:
    """All objects of a list, and the version from which a watch goes on."""

    items: tuple[Manifest, ...]
    version: str


@dataclass(frozen=True)
class Rights:
    """What an account may do; it may be allowed more than is listed here."""

    rules: tuple[Manifest, ...]

    def allow(self, verb: str, resource: Resource, subresource: str = "") -> bool:
        """Returns whether that is among them, for objects of any name."""
        what = f"{resource.plural}/{subresource}" if subresource else resource.plural
        every = ("*", f"*/{subresource}") if subresource else ("*",)
        return any(
            {verb, "*"} & {*rule.get("verbs", ())}
            and {resource.group, "*"} & {*rule.get("apiGroups", ())}
            and {what, *every} & {*rule.get("resources", ())}
            and not rule.get("resourceNames")
            for rule in self.rules
        )


class Client:
    """One account at one API server; any thread may use it.

    Every call may raise the `ClusterError` that its docstring does not name: `Forbidden`,
    `Throttled` and `Unavailable`. The last two come after the client has tried for as long as
    `retry` says. It tries only what may be sent twice: a create whose answer was lost is sent again
    where the name is fixed, and its `Conflict` may then come from the first one.
    """

    def __init__(
        self,
        load: Callable[[], Access],
        *,
        clock: Clock | None = None,
        retry: Retry | None = None,
        chance: Callable[[], float] = CHANCE,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Makes a client; nothing is sent yet.

        Args:
            load: Reads the access, at once and again when the server takes the account for expired.
            clock: For pauses.
            retry: How long a call is tried.
            chance: Gives random numbers from 0 to 1 for the pauses.
            warn: Takes each warning that the server sends with an answer.
        """
        self._load = load
        self.clock = clock or SystemClock()
        self._retry = retry or Retry()
        self._chance = chance
        self._warn = warn
        self._renewal = threading.Lock()
        self._session = Session(load())

    @property
    def server(self) -> str:
        """The server's address."""
        return self._session.access.server

    @property
    def namespace(self) -> str:
        """Where to work unless told otherwise."""
        return self._session.access.namespace

    def close(self) -> None:
        """Closes the connections that no call uses."""
        self._session.pool.clear()

    def backoff(self, stop: Stop) -> Backoff:
        """Returns the pauses of a caller that tries by itself."""
        return Backoff(self._retry, self.clock, stop, self._chance)

    def get(self, resource: Resource, namespace: str, name: str) -> Manifest:
        """Returns one object.

        Raises:
            NotFound: It is not there, or the server does not know its kind.
        """
        return self._call(requests.get(resource, namespace, name))

    def list(
        self,
        resource: Resource,
        namespace: str,
        *,
        labels: str = "",
        fields: str = "",
        retry: Retry | None = None,
    ) -> Listing:
        """Returns all objects that fit both selectors, of all namespaces for "".

        Raises:
            NotFound: The server does not know their kind.
        """
        try:
            return self._pages(resource, namespace, labels, fields, True, retry)
        except Expired:  # the list changed for minutes while its pages were read
            return self._pages(resource, namespace, labels, fields, False, retry)

    def create(
        self, resource: Resource, namespace: str, manifest: Manifest, *, dry_run: bool = False
    ) -> Manifest:
        """Makes an object and returns it as it was stored; a dry run checks all and stores nothing.

        Raises:
            Conflict: The name is taken, perhaps by this very call's first try.
            Rejected: Schema, admission or quota refuse it.
        """
        return self._call(requests.create(resource, namespace, manifest, dry_run=dry_run))

    def patch(self, resource: Resource, namespace: str, name: str, changes: Manifest) -> Manifest:
        """Merges changes into an object (None removes a field) and returns it.

        Raises:
            NotFound: It is not there.
            Conflict: `changes` names a resourceVersion that is not the object's any more.
            Rejected: Schema or admission refuse it.
        """
        return self._call(requests.patch(resource, namespace, name, changes))

    def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        propagation: str = "Background",
        grace: int | None = None,
    ) -> None:
        """Removes an object; what it owns goes after it, or before it with "Foreground".

        Args:
            resource: Its kind.
            namespace: Where it is.
            name: Its name.
            uid: An object of that name with another uid is spared.
            propagation: See above.
            grace: Seconds that a pod has to leave; by default what it asks for itself.

        Raises:
            NotFound: It is not there, perhaps because this very call's first try removed it.
            Conflict: The object of that name has another uid.
        """
        request = requests.delete(
            resource, namespace, name, uid=uid, propagation=propagation, grace=grace
        )
        self._call(request)

    def may(
        self,
        verb: str,
        resource: Resource,
        namespace: str,
        *,
        name: str = "",
        subresource: str = "",
        account: str = "",
    ) -> bool:
        """Returns whether this account may do that, or a service account of the namespace."""
        review = requests.access_review(
            verb, resource, namespace, name=name, subresource=subresource, account=account
        )
        return bool(self._call(review).get("status", {}).get("allowed"))

    def rights(self, namespace: str) -> Rights:
        """Returns what this account may do in a namespace, as far as the server can list that."""
        status = self._call(requests.rules_review(namespace)).get("status", {})
        return Rights(tuple(status.get("resourceRules") or ()))

    def server_version(self, *, retry: Retry | None = None) -> str:
        """Returns the server's version, such as v1.36.2."""
        request = requests.document("/version", "tell its version")
        return str(self._call(request, retry)["gitVersion"])

    def versions(self, group: str) -> tuple[str, ...]:
        """Returns the versions in which a group is served, the preferred one first; () for none."""
        answer = self._discover(f"/apis/{group}")
        names = [item["version"] for item in answer.get("versions", ())]
        preferred = answer.get("preferredVersion", {}).get("version")
        return tuple(sorted(names, key=lambda name: name != preferred))

    def serves(self, resource: Resource) -> bool:
        """Returns whether the server knows that kind of object."""
        answer = self._discover(resource.root)
        return any(item["name"] == resource.plural for item in answer.get("resources", ()))

    def openapi(self, group: str, version: str) -> Manifest:
        """Returns the OpenAPI 3 document of a group's version, {} where it is not served."""
        return self._discover(f"/openapi/v3/apis/{group}/{version}")

    @contextmanager
    def stream(self, request: Request, *, silence: float, stop: Stop) -> Iterator[Iterator[bytes]]:
        """Opens an answer that goes on, on a connection of its own; one try.

        The block gets its pieces as they come, and their end when the server ends them or `stop` is
        set. Setting that ends a wait at once.

        Args:
            request: What to send.
            silence: Seconds without a byte after which the connection is taken for dead.
            stop: Ends it from another thread.

        Raises:
            Silent: Nothing came for so long.
            Dropped: The connection broke.
        """
        session = self._session
        with session.opened(request, silence, stop) as response:
            if response.status != 401:
                yield session.pieces(request, response, silence, stop)
                return
        session = self._renewed(session)
        with session.opened(request, silence, stop) as response:
            yield session.pieces(request, response, silence, stop)

    def _pages(
        self,
        resource: Resource,
        namespace: str,
        labels: str,
        fields: str,
        paged: bool,
        retry: Retry | None,
    ) -> Listing:
        items: list[Manifest] = []
        token = ""
        while True:
            page = self._call(
                requests.list_page(resource, namespace, labels, fields, paged=paged, token=token),
                retry,
            )
            items += page.get("items") or ()
            token = page["metadata"].get("continue", "")
            if not token:
                return Listing(tuple(items), page["metadata"]["resourceVersion"])

    def _discover(self, path: str) -> Manifest:
        try:
            return self._call(requests.document(path, f"tell what {path} serves"))
        except NotFound:
            return {}

    def _call(self, request: Request, retry: Retry | None = None) -> Manifest:
        """Sends a request until it is answered, for as long as the policy says."""
        retry = retry or self._retry
        backoff = Backoff(retry, self.clock, Stop(), self._chance)
        end = self.clock.now() + retry.for_seconds
        while True:
            try:
                return self._once(request)
            except (Throttled, Unavailable) as error:
                pause = backoff.next_pause(error.retry_after)
                if not _worth_another_try(request, error) or self.clock.now() + pause > end:
                    raise
                self.clock.sleep(pause)

    def _once(self, request: Request) -> Manifest:
        session = self._session
        response = session.send(request)
        if response.status == 401:
            response = self._renewed(session).send(request)
        if response.status >= 400:
            raise answers.error(request, response.status, response.headers, response.data)
        for warning in response.headers.getlist("Warning"):
            self._warn(_warning_text(warning))
        return self._decoded(request, response.data)

    def _decoded(self, request: Request, body: bytes) -> Manifest:
        try:
            document: Manifest = json.loads(body)
        except ValueError as error:
            raise Unavailable(
                f"The API server {self.server} could not {request.action}: what answers there"
                " speaks no JSON; check its address."
            ) from error
        return document

    def _renewed(self, refused: "Session") -> "Session":
        """Returns a session with credentials read anew, once for all threads that were refused."""
        with self._renewal:
            if self._session is refused:
                self._session = Session(self._load())
                refused.pool.clear()
            return self._session


def _worth_another_try(request: Request, error: ClusterError) -> bool:
    if isinstance(error, Untrusted | Expired):
        return False
    return request.repeatable or isinstance(error, Throttled | NotSent)


def _warning_text(header: str) -> str:
    """Returns the quoted text of a warning header, `299 - "text"`."""
    return header.partition('"')[2].rpartition('"')[0] or header
