"""One folder in an object store, and the errors that it answers with, each in one sentence."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit
from uuid import uuid4

from kfp_jax_store.uri import Location, location

KFP_ENDPOINT: Final = "http://seaweedfs.kubeflow:9000"
"""Where KFP 2.17 itself takes minio:// to, unless it is told otherwise."""

PART_BYTES: Final = 8 * 1024 * 1024
"""Larger files are sent in parts of this size. S3 takes 10,000 of them: 78 GiB a file."""

PARTS_AT_ONCE: Final = 2
PATIENCE: Final = timedelta(minutes=5)
"""How long one request is repeated where the store does not answer or says 5xx."""

Problem = Literal[
    "credentials", "expired", "permission", "bucket", "endpoint", "tls", "missing", ""
]

_CODE = re.compile(r"<Code>(\w+)</Code>")
_ADDRESS = re.compile(r"https?://\S+")
_CODES: Final[Mapping[str, Problem]] = {
    "AccessDenied": "permission",
    "AllAccessDisabled": "permission",
    "ExpiredToken": "expired",
    "ExpiredTokenException": "expired",
    "InvalidAccessKeyId": "credentials",
    "InvalidToken": "credentials",
    "InvalidBucketName": "bucket",
    "NoSuchBucket": "bucket",
    "RequestTimeTooSkewed": "expired",
    "SignatureDoesNotMatch": "credentials",
    "TokenRefreshRequired": "expired",
}
_SENTENCES: Final[Mapping[Problem, str]] = {
    "credentials": (
        "{uri} refused the credentials ({code}); check {keys}, or the secret that they come from."
    ),
    "expired": "{uri} takes the credentials for expired ({code}); renew them, and check the clock.",
    "permission": (
        "{uri} does not let these credentials {what} there ({code}); grant them to list, read,"
        " write and delete in that folder, or choose another."
    ),
    "bucket": "{uri} is in a bucket that does not exist; create {bucket!r} or name another.",
    "endpoint": (
        "{uri} cannot be reached at {endpoint}; check AWS_ENDPOINT_URL, the network, and whether"
        " the store runs."
    ),
    "tls": (
        "{uri} cannot be reached at {endpoint}: its TLS certificate is not trusted, or it does"
        " not speak TLS; check http or https in AWS_ENDPOINT_URL, or name its authority's file in"
        " SSL_CERT_FILE."
    ),
    "missing": "{uri} holds no {name}; check the URI, or run again what should have written it.",
    "": "{uri} could not {what}{at}: {text}; see the store's own log, or try again.",
}


_AWS_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_KEYS: Final = {"s3": _AWS_KEYS, "minio": _AWS_KEYS, "gs": "GOOGLE_SERVICE_ACCOUNT_KEY"}


class StoreError(Exception):
    """The store refused, did not answer, or does not hold what was asked for; one sentence.

    Attributes:
        problem: Which of the known problems it is, or "".
    """

    def __init__(self, message: str, problem: Problem = "") -> None:
        super().__init__(message)
        self.problem = problem


@dataclass(frozen=True)
class Found:
    """An object in a folder, as a listing has it."""

    name: str
    size: int
    tag: str
    """The ETag without quotes: of S3 the MD5 of the content, or of that of its parts."""


class Store:
    """A folder in an object store. Paths are relative to it; each call may wait for minutes."""

    def __init__(self, uri: str, where: Location, endpoint: str, client: Any) -> None:
        self.uri = uri.rstrip("/")
        self._where = where
        self._endpoint = endpoint
        self._client = client

    def put(self, name: str, content: bytes | Path) -> None:
        """Writes an object whole or not at all; a large file goes in parts."""
        import obstore

        with self._errors("write", name):
            obstore.put(
                self._client,
                name,
                content,
                chunk_size=PART_BYTES,
                max_concurrency=PARTS_AT_ONCE,
                # One request for what fits into a part, so that its ETag is its MD5.
                use_multipart=isinstance(content, Path) and content.stat().st_size > PART_BYTES,
            )

    def get(self, name: str) -> bytes:
        """Returns an object's content."""
        import obstore

        with self._errors("read", name):
            return bytes(obstore.get(self._client, name).bytes())

    def get_if_there(self, name: str) -> bytes | None:
        """Returns an object's content, or None."""
        try:
            return self.get(name)
        except StoreError as error:
            if error.problem == "missing":
                return None
            raise

    def fetch(self, name: str, path: Path, take: Callable[[Any], object]) -> None:
        """Writes an object to a file, and hands each of its pieces to `take`."""
        import obstore

        with self._errors("read", name):
            pieces = obstore.get(self._client, name).stream(min_chunk_size=1024 * 1024)
            with path.open("wb") as file:
                for piece in pieces:
                    file.write(piece)
                    take(piece)

    def objects(self, under: str = "") -> Iterator[Found]:
        """Yields all objects under a folder, in folders of it too."""
        import obstore

        with self._errors("list", under):
            for page in obstore.list(self._client, prefix=under or None):
                for item in page:
                    yield Found(item["path"], item["size"], (item["e_tag"] or "").strip('"'))

    def delete(self, names: list[str]) -> None:
        """Deletes objects; one that is not there does not matter."""
        import obstore

        if names:
            with self._errors("delete", names[0]):
                obstore.delete(self._client, names)

    def probe(self) -> None:
        """Finds out whether one may write, read, list and delete here.

        Raises:
            StoreError: One may not.
        """
        # First, because SeaweedFS makes a bucket, mistyped or not, of whoever may write to it.
        next(self.objects(), None)
        name = f".kfp-jax-probe-{uuid4().hex}"
        self.put(name, b"kfp-jax")
        try:
            self.get(name)
        finally:
            self.delete([name])

    @contextmanager
    def _errors(self, what: str, name: str) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as error:
            problem = _problem(str(error)) or "missing"
            raise self._error(problem, what, name, error) from None
        except (BaseError, ValueError) as error:
            # Not as cause: the library's text holds the request, with the key's name in it.
            raise self._error(_problem(str(error)), what, name, error) from None
        except BaseException as error:
            # What Rust's libraries give up at, such as a line break within a key.
            if type(error).__name__ != "PanicException":
                raise
            keys = _KEYS[self._where.scheme]
            raise StoreError(
                f"{self.uri} cannot be asked with these settings; check that {keys} and"
                " AWS_ENDPOINT_URL hold no line breaks or control characters."
            ) from None

    def _error(self, problem: Problem, what: str, name: str, error: Exception) -> StoreError:
        text = str(error)
        code = _CODE.search(text)
        return StoreError(
            _SENTENCES[problem].format(
                uri=self.uri,
                keys=_KEYS[self._where.scheme],
                what=what,
                name=name,
                at=f" {name}" if name else "",
                code=code[1] if code else "HTTP 403",
                bucket=self._where.bucket,
                endpoint=self._endpoint or "its default address",
                text=code[1] if code else _first_line(text),
            ),
            problem,
        )


def open_store(uri: str, environ: Mapping[str, str], *, patience: timedelta = PATIENCE) -> Store:
    """Returns the folder of a URI, without a look at it.

    Args:
        uri: `s3://bucket/folder`, `minio://...` or `gs://...`.
        environ: The standard variables: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
            AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL; for gs://
            GOOGLE_SERVICE_ACCOUNT_KEY, the key file's content; whatever else
            the account's identity comes from, such as a web identity token.
        patience: How long one request is repeated.

    Raises:
        StoreError: The URI is malformed, or obstore is not installed.
    """
    try:
        where = location(uri)
    except ValueError as error:
        raise StoreError(f"{error}.") from None
    environ = {name: value.strip() for name, value in environ.items()}  # `echo` adds a line break
    try:
        from obstore.store import GCSStore, S3Store
    except ImportError:
        raise StoreError(
            f"{uri} needs the package obstore, which is not installed here; install kfp-jax[s3]."
        ) from None
    retry: Any = {
        "max_retries": 1000,
        "retry_timeout": patience,
        "backoff": {
            "init_backoff": timedelta(milliseconds=200),
            "max_backoff": timedelta(seconds=5),
        },
    }
    prefix = where.key or None
    endpoint = "" if where.scheme == "gs" else endpoint_of(where.scheme, environ)
    _check_endpoint(endpoint)
    try:
        if where.scheme == "gs":
            key = environ.get("GOOGLE_SERVICE_ACCOUNT_KEY")
            config: Any = {"service_account_key": key} if key else {}
            google = GCSStore(where.bucket, prefix=prefix, config=config, retry_config=retry)
            return Store(uri, where, endpoint, google)
        client = S3Store(
            where.bucket,
            prefix=prefix,
            config=_s3_config(endpoint, environ),
            # Without HTTP/2, which no store of this kind speaks well.
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "connect_timeout": timedelta(seconds=10),
                "timeout": timedelta(minutes=5),
            },
            retry_config=retry,
        )
    except Exception as error:  # noqa: BLE001 - the library has no common class for what it refuses
        raise StoreError(f"{uri} cannot be opened: {_first_line(str(error))}; check it.") from None
    return Store(uri, where, endpoint, client)


def endpoint_of(scheme: str, environ: Mapping[str, str]) -> str:
    """Returns the address of the store, or "" for that of the cloud."""
    named = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or ""
    return named.rstrip("/") or (KFP_ENDPOINT if scheme == "minio" else "")


def _check_endpoint(endpoint: str) -> None:
    parts = urlsplit(endpoint)
    if endpoint and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise StoreError(
            f"AWS_ENDPOINT_URL is {endpoint!r:.80}, which is no address; write http://host:port or"
            " https://host:port."
        )
    if parts.password:
        raise StoreError(
            f"AWS_ENDPOINT_URL holds a password, which messages would show; give it by {_AWS_KEYS}."
        )


def _s3_config(endpoint: str, environ: Mapping[str, str]) -> Any:
    config: dict[str, Any] = {
        "region": environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    }
    if endpoint:
        config |= {"endpoint": endpoint, "virtual_hosted_style_request": False}
    names = {
        "access_key_id": "AWS_ACCESS_KEY_ID",
        "secret_access_key": "AWS_SECRET_ACCESS_KEY",
        "session_token": "AWS_SESSION_TOKEN",
    }
    return config | {key: environ[name] for key, name in names.items() if environ.get(name)}


def _problem(text: str) -> Problem:
    code = _CODE.search(text)
    if code and code[1] in _CODES:
        return _CODES[code[1]]
    low = text.lower()
    told = _ADDRESS.sub("", low)  # which holds words of the user's
    if "169.254.169.254" in low or "instance metadata" in low or ("token" in low and "imds" in low):
        return "credentials"
    if any(word in told for word in ("certificate", "invaliddata", "invalidcontenttype")):
        return "tls"
    if "error sending request" in told or "dns error" in told or "connect" in told:
        return "endpoint"
    if "401 unauthorized" in told:
        return "credentials"
    if "403 forbidden" in told or "permission" in told:
        return "permission"
    return ""


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:200]
