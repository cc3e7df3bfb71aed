"""Answers that an API server, its storage or a gateway before it give when something is wrong.

Invariant: bodies are as API machinery of Kubernetes 1.36 writes them (apimachinery,
pkg/api/errors).
"""

from __future__ import annotations

import json

from tests.faults.rules import Answer

REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
"""The reason of the Status that goes with each code."""


def refusal(
    code: int, message: str = "a fault on purpose", *, retry_after_s: int | None = None
) -> Answer:
    """A Status with this code, and nothing is carried out."""
    return Answer(
        code,
        json.dumps(status(code, message, retry_after_s=retry_after_s)),
        retry_after_s=retry_after_s,
    )


def status(code: int, message: str, *, retry_after_s: int | None = None) -> dict[str, object]:
    """A Status of this code."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
    }
    details = {} if retry_after_s is None else {"details": {"retryAfterSeconds": retry_after_s}}
    return {**body, **details, "reason": REASONS[code], "code": code}


def expired_token() -> Answer:
    """What a list gets for a continue token whose revision has been compacted."""
    return refusal(
        410, "The provided continue parameter is too old to display a consistent list result."
    )


def etcd_timeout(applied_after_s: float | None) -> Answer:
    """What the API server 1.36 makes of a bind whose etcd write timed out: a Conflict with etcd's
    text in it.
    """
    text = 'Operation cannot be fulfilled on pods/binding "p": etcdserver: request timed out'
    return Answer(409, json.dumps(status(409, text)), applied_after_s=applied_after_s)


def gateway_page(code: int, applied_after_s: float | None) -> Answer:
    """What a load balancer says when the server behind it takes too long or goes away."""
    head = f"<head><title>{code}</title></head>"
    page = f"<html>{head}<body><center><h1>{code}</h1></center></body></html>"
    return Answer(code, page, "text/html", applied_after_s)
