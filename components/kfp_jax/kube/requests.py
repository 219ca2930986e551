"""Requests to an API server as values. Pure: nothing here is sent."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

Manifest = Mapping[str, Any]

_PAGE = "500"


@dataclass(frozen=True)
class Resource:
    """One kind of object by the words of its URL; the core group is ""."""

    group: str
    version: str
    plural: str

    @property
    def root(self) -> str:
        """Returns the path of its group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Returns the path of one object, or of all in a namespace, or of all."""
        parts = [self.root]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part]
        return "/".join(parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


PODS = Resource("", "v1", "pods")
_REVIEWS = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews")
_OTHERS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews")
_SELF = "SelfSubjectAccessReview"
_RULES = Resource("authorization.k8s.io", "v1", "selfsubjectrulesreviews")


@dataclass(frozen=True)
class Request:
    """One HTTP request.

    Attributes:
        action: What it does, in words that complete "could not ...".
        repeatable: Sending it twice does no more than sending it once, or is noticed: a create
            under a fixed name meets a conflict.
    """

    method: str
    path: str
    action: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    content_type: str = "application/json"
    repeatable: bool = True

    @property
    def url(self) -> str:
        """Returns path and query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def encoded(self) -> bytes | None:
        """Returns the body as JSON, or None."""
        return None if self.body is None else json.dumps(self.body).encode()


def get(resource: Resource, namespace: str, name: str) -> Request:
    """Reads one object."""
    path = resource.path(namespace, name)
    return Request("GET", path, f"get {_object(resource, namespace, name)}")


def list_page(
    resource: Resource, namespace: str, labels: str, fields: str, *, paged: bool, token: str
) -> Request:
    """Reads the objects that fit both selectors: 500 at a time from a page's token, or all."""
    query = {
        **_selectors(labels, fields),
        **({"limit": _PAGE} if paged else {}),
        **({"continue": token} if token else {}),
    }
    action = f"list {resource}{_within(namespace)}"
    return Request("GET", resource.path(namespace), action, query)


def watch(
    resource: Resource, namespace: str, labels: str, fields: str, *, version: str, seconds: int
) -> Request:
    """Follows the objects that fit both selectors from a version on, for so many seconds."""
    query = {
        **_selectors(labels, fields),
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": version,
        "timeoutSeconds": str(seconds),
    }
    action = f"watch {resource}{_within(namespace)}"
    return Request("GET", resource.path(namespace), action, query)


def create(resource: Resource, namespace: str, manifest: Manifest, *, dry_run: bool) -> Request:
    """Makes an object; the server refuses fields that it does not know."""
    name = manifest.get("metadata", {}).get("name", "")
    return Request(
        "POST",
        resource.path(namespace),
        f"create {_object(resource, namespace, name)}",
        {"fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})},
        manifest,
        repeatable=bool(name) or dry_run,
    )


def patch(resource: Resource, namespace: str, name: str, changes: Manifest) -> Request:
    """Merges changes into an object."""
    return Request(
        "PATCH",
        resource.path(namespace, name),
        f"patch {_object(resource, namespace, name)}",
        {"fieldValidation": "Strict"},
        changes,
        "application/merge-patch+json",
    )


def delete(
    resource: Resource,
    namespace: str,
    name: str,
    *,
    uid: str,
    propagation: str,
    grace: int | None = None,
) -> Request:
    """Removes an object if it still has that uid; "" takes any."""
    body: dict[str, Any] = {"propagationPolicy": propagation}
    if grace is not None:
        body["gracePeriodSeconds"] = grace
    if uid:
        body["preconditions"] = {"uid": uid}
    path = resource.path(namespace, name)
    return Request("DELETE", path, f"delete {_object(resource, namespace, name)}", body=body)


def pod_log(
    namespace: str,
    name: str,
    container: str,
    *,
    follow: bool,
    previous: bool,
    since: str,
    tail: int = 0,
) -> Request:
    """Reads a container's log with timestamps, from a moment on where `since` names one.

    `tail` asks for so many of its last lines; 0 for all.
    """
    query = {
        "container": container,
        "timestamps": "true",
        **({"follow": "true"} if follow else {}),
        **({"previous": "true"} if previous else {}),
        **({"sinceTime": since} if since else {}),
        **({"tailLines": str(tail)} if tail else {}),
    }
    action = f"read the log of {_object(PODS, namespace, name)}"
    return Request("GET", PODS.path(namespace, name, "log"), action, query)


def access_review(
    verb: str,
    resource: Resource,
    namespace: str,
    *,
    name: str,
    subresource: str,
    account: str = "",
) -> Request:
    """Asks whether this account may do something, or a service account of the namespace."""
    attributes = {
        "verb": verb,
        "group": resource.group,
        "version": resource.version,
        "resource": resource.plural,
        "subresource": subresource,
        "namespace": namespace,
        "name": name,
    }
    groups = (
        "system:authenticated",
        "system:serviceaccounts",
        f"system:serviceaccounts:{namespace}",
    )
    whom = {"user": f"system:serviceaccount:{namespace}:{account}", "groups": groups}
    kind, reviews = ("SubjectAccessReview", _OTHERS) if account else (_SELF, _REVIEWS)
    body = {
        "apiVersion": f"{reviews.group}/{reviews.version}",
        "kind": kind,
        "spec": {
            "resourceAttributes": {key: value for key, value in attributes.items() if value},
            **(whom if account else {}),
        },
    }
    who = f"account {account}" if account else "this account"
    return Request("POST", reviews.path(), f"ask which rights {who} has", body=body)


def rules_review(namespace: str) -> Request:
    """Asks for all that this account may do in a namespace."""
    body = {
        "apiVersion": f"{_RULES.group}/{_RULES.version}",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    return Request("POST", _RULES.path(), "ask which rights this account has", body=body)


def document(path: str, action: str) -> Request:
    """Reads what is no object, such as /version."""
    return Request("GET", path, action)


def _object(resource: Resource, namespace: str, name: str) -> str:
    return f"{resource} {name or '(with a generated name)'}{_within(namespace)}"


def _within(namespace: str) -> str:
    return f" in namespace {namespace}" if namespace else ""


def _selectors(labels: str, fields: str) -> dict[str, str]:
    pairs = {"labelSelector": labels, "fieldSelector": fields}
    return {key: value for key, value in pairs.items() if value}
