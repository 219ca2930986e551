"""A DELETE for the last moment: all is ready, and saying so is safe in a signal handler."""

import queue
import threading
from contextlib import suppress
from typing import Self

from kfp_jax.errors import ClusterError, NotFound
from kfp_jax.kube.client import Client
from kfp_jax.kube.requests import Resource
from kfp_jax.kube.retry import ONCE

# An API server closes a connection that has been idle for 90 s.
WARM_SECONDS = 60.0


class ReadyDelete:
    """Holds one object's DELETE back until it is wanted; a context manager.

    A launcher that is told to stop may have less than a second. So a thread waits for the word, on
    a client whose connection it keeps open. The handler itself must not call the client: it may
    have interrupted a call of its own thread, which holds a lock.

    Attributes:
        error: Why the server did not delete, or None.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str,
        warm_every: float = WARM_SECONDS,
    ) -> None:
        """Starts the thread and opens the connection.

        Args:
            client: To the server.
            resource: What kind the object is.
            namespace: Where it is.
            name: Its name.
            uid: Its uid: one of the same name that comes after it is spared.
            warm_every: Seconds between the requests that keep the connection open.
        """
        self.error: ClusterError | None = None
        self._client = client
        self._object = (resource, namespace, name)
        self._uid = uid
        self._warm_every = warm_every
        # The only queue whose `put` may interrupt itself.
        self._orders: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._answered = threading.Event()
        threading.Thread(target=self._run, name=f"delete {name}", daemon=True).start()

    def send(self) -> None:
        """Has the DELETE sent, once, and returns at once."""
        self._orders.put(True)

    def wait(self, seconds: float) -> bool:
        """Returns whether the object was deleted, or was gone, within so many seconds."""
        return self._answered.wait(seconds) and self.error is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._orders.put(False)

    def _run(self) -> None:
        self._warm()
        while True:
            try:
                wanted = self._orders.get(timeout=self._warm_every)
            except queue.Empty:
                self._warm()
                continue
            if wanted:
                self._delete()
            return

    def _warm(self) -> None:
        with suppress(ClusterError):  # the DELETE itself tries for longer
            self._client.server_version(retry=ONCE)

    def _delete(self) -> None:
        try:
            with suppress(NotFound):
                self._client.delete(*self._object, uid=self._uid)
        except ClusterError as error:
            self.error = error
        finally:
            self._answered.set()
