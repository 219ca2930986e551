"""What an API server's answer means: an error by its meaning, told in one sentence. Pure."""

import json
import re
from collections.abc import Mapping
from typing import Any

from kfp_jax.errors import (
    ClusterError,
    Conflict,
    Forbidden,
    NotFound,
    Rejected,
    Throttled,
    Unavailable,
)
from kfp_jax.kube.requests import Request

_SHOWN_CHARACTERS = 600
_LACKS_RIGHT = re.compile(r'User "[^"]*" cannot ')


class Expired(Unavailable):
    """The version or page that was asked for is no longer kept; list again."""


class NotSent(Unavailable):
    """No connection came about, so the server has not seen the request."""


class Dropped(Unavailable):
    """The connection broke; the server may have done what was asked."""


class Silent(Unavailable):
    """The connection stands, but nothing came for too long."""


class Untrusted(Unavailable):
    """The server's certificate does not hold; trying again is of no use."""


def error(request: Request, status: int, headers: Mapping[str, str], body: bytes) -> ClusterError:
    """Returns the error that an answer with a status of 400 or more stands for."""
    document = _status(body)
    after = headers.get("Retry-After", "")
    return status_error(
        request,
        {"code": status, **document},
        retry_after=float(after) if after.isdecimal() else 0.0,
    )


def status_error(
    request: Request, document: Mapping[str, Any], retry_after: float = 0.0
) -> ClusterError:
    """Returns the error that a `Status` object stands for, from an answer or from a watch."""
    code = document.get("code", 0)
    reason = str(document.get("reason", ""))
    details = document.get("details") or {}
    retry_after = retry_after or float(details.get("retryAfterSeconds") or 0)
    said = _said(document)
    kind, remedy = _meaning(code, reason, said)
    seen = f"{code}: {said}" if said else str(code)
    return kind(
        f"The API server could not {request.action} ({seen}); {remedy}.",
        reason=reason,
        retry_after=retry_after,
    )


def _meaning(code: int, reason: str, said: str) -> tuple[type[ClusterError], str]:
    """Returns the class of an answer, and what to do about it."""
    match code:
        case 401:
            return Forbidden, "log in again, or renew the token that this account uses"
        case 403 if said and not _LACKS_RIGHT.search(said):
            return Rejected, "change what the server names, or ask those who set that rule"
        case 403:
            return Forbidden, "have the account bound to a Role that allows it"
        case 404 if reason:
            return NotFound, "check its name and namespace"
        case 404:
            return NotFound, "install what serves this kind of object, or use another backend"
        case 409 if reason == "AlreadyExists":
            return Conflict, "use another name, or delete the object that has it"
        case 409:
            return Conflict, "look at the object: it is not the one that was meant"
        case 410:
            return Expired, "list again"
        case 429:
            return Throttled, "try again later, and ask less often"
        case code if code < 500:
            return Rejected, "change what the server names"
        case _:
            return (
                Unavailable,
                "try again later, and look at the server or its webhooks if it lasts",
            )


def _status(body: bytes) -> Mapping[str, Any]:
    """Returns the body if it is a `Status`; any other text may hold anything, so it is dropped."""
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    if isinstance(document, dict) and document.get("kind") == "Status":
        return document
    return {}


def _said(document: Mapping[str, Any]) -> str:
    """Returns the server's sentence on one line, without its end."""
    said = " ".join(str(document.get("message") or "").split()).rstrip(".")
    return said if len(said) <= _SHOWN_CHARACTERS else f"{said[:_SHOWN_CHARACTERS]}..."
