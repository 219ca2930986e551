"""URIs of folders in object stores."""

from dataclasses import dataclass
from typing import Final

SCHEMES: Final = ("s3", "minio", "gs")
"""minio is KFP's word for a store that speaks S3 at an address of its own."""


@dataclass(frozen=True)
class Location:
    """A folder in a bucket; `key` is "" for the bucket's root, and never ends with a slash."""

    scheme: str
    bucket: str
    key: str


def is_remote(uri: str) -> bool:
    """Returns whether a URI is one of an object store that we can work with."""
    return uri.partition("://")[0] in SCHEMES and "://" in uri


def join(uri: str, name: str) -> str:
    """Returns the URI of what lies at `name` in a folder."""
    return f"{uri.rstrip('/')}/{name}"


def location(uri: str) -> Location:
    """Returns the parts of a URI.

    Raises:
        ValueError: it names no bucket, another kind of storage, or a folder above its own.
    """
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    key = key.strip("/")
    parts = key.split("/") if key else []
    odd = "//" in rest or "?" in rest or "#" in rest or any(part in (".", "..") for part in parts)
    if scheme not in SCHEMES or not bucket or odd:
        raise ValueError(
            f"{uri!r:.200} is not a folder in an object store; write s3://bucket/folder (or"
            " minio://, gs://), without empty parts, '.', '..', '?' or '#'"
        )
    return Location(scheme, bucket, key)
