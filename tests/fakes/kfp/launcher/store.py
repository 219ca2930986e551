"""An S3 store as a task's launcher uses it: the standard library alone, path style, one PUT a file.

The real launcher reads its credentials through the API server. Here they are in files beside it,
for the rights of the task's account are ours to test.
"""

import datetime
import hashlib
import hmac
import shutil
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

FOLDER = Path("/kfp-launcher-store")
UNSIGNED = "UNSIGNED-PAYLOAD"


class StoreError(Exception):
    """The store refused something, or lacks it."""


def find() -> "Store | None":
    """Returns the store that the pod was given; without one artifacts are in a volume."""
    if not FOLDER.exists():
        return None
    names = ("endpoint", "accesskey", "secretkey")
    return Store(*((FOLDER / name).read_text(encoding="utf-8").strip() for name in names))


@dataclass(frozen=True)
class Store:
    """A store, with the right to use it."""

    endpoint: str
    access_key: str
    secret_key: str

    def download(self, uri: str, target: Path) -> None:
        """Fetches an object, or all below it; of neither nothing is left."""
        bucket, key = _place(uri)
        for found in self.keys(bucket, key):
            inside = found.removeprefix(key).lstrip("/")
            path = target / inside if inside else target
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._call("GET", bucket, found) as answer, path.open("wb") as file:
                shutil.copyfileobj(answer, file)

    def upload(self, source: Path, uri: str) -> None:
        """Stores a file, or all files of a folder."""
        bucket, key = _place(uri)
        if source.is_file():
            self.put(bucket, key, source.read_bytes())
            return
        for path in sorted(source.rglob("*")):
            if path.is_file():
                self.put(bucket, f"{key}/{path.relative_to(source)}", path.read_bytes())

    def put(self, bucket: str, key: str, data: bytes) -> None:
        """Stores one object."""
        self._call("PUT", bucket, key, data=data).close()

    def get(self, bucket: str, key: str) -> bytes:
        """Returns one object."""
        with self._call("GET", bucket, key) as answer:
            return bytes(answer.read())

    def keys(self, bucket: str, key: str) -> list[str]:
        """Returns the keys of an object, or of all below it."""
        found: list[str] = []
        token = ""
        while True:
            query = {"list-type": "2", "prefix": key}
            if token:
                query["continuation-token"] = token
            with self._call("GET", bucket, "", query) as answer:
                page = ElementTree.fromstring(answer.read())
            space = page.tag.partition("}")[0] + "}"
            found += [item.text or "" for item in page.iter(f"{space}Key")]
            token = page.findtext(f"{space}NextContinuationToken") or ""
            if not token:
                return [one for one in found if one == key or one.startswith(f"{key}/")]

    def _call(
        self,
        method: str,
        bucket: str,
        key: str,
        query: dict[str, str] | None = None,
        data: bytes | None = None,
    ) -> "urllib.response.addinfourl":
        path = urllib.parse.quote(f"/{bucket}/{key}" if key else f"/{bucket}")
        asked = urllib.parse.urlencode(sorted((query or {}).items()), quote_via=urllib.parse.quote)
        request = urllib.request.Request(
            f"{self.endpoint}{path}{'?' if asked else ''}{asked}", data=data, method=method
        )
        host = urllib.parse.urlsplit(self.endpoint).netloc
        for name, value in self._signed(method, host, path, asked).items():
            request.add_header(name, value)
        try:
            return urllib.request.urlopen(request, timeout=60)
        except urllib.error.URLError as error:
            raise StoreError(f"{method} {bucket}/{key}: {error}") from error

    def _signed(self, method: str, host: str, path: str, query: str) -> dict[str, str]:
        """Returns the headers of a request signed by AWS's version 4."""
        now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
        headers = {"host": host, "x-amz-content-sha256": UNSIGNED, "x-amz-date": now}
        names = ";".join(headers)
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        asked = "\n".join([method, path, query, lines, names, UNSIGNED])
        scope = f"{now[:8]}/us-east-1/s3/aws4_request"
        digest = hashlib.sha256(asked.encode()).hexdigest()
        key = f"AWS4{self.secret_key}".encode()
        for part in scope.split("/"):
            key = _hmac(key, part)
        signature = _hmac(key, "\n".join(["AWS4-HMAC-SHA256", now, scope, digest])).hex()
        credential = f"AWS4-HMAC-SHA256 Credential={self.access_key}/{scope}"
        return {
            **headers,
            "Authorization": f"{credential}, SignedHeaders={names}, Signature={signature}",
        }


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _place(uri: str) -> tuple[str, str]:
    bucket, _, key = uri.partition("://")[2].partition("/")
    return bucket, key
