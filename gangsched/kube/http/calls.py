"""Requests for parts that do not handle faults: every result is a status and JSON.

Invariant: server and network errors never raise; status 0 means that there was no answer. Changes
(PUT, PATCH) pass the write gate, so that only the leader makes them; a POST that only queries the
API server does not.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gangsched.kube.http.client import JSON, MERGE_PATCH
from gangsched.kube.http.connection_pool import ConnectionPool
from gangsched.kube.http.faults import ApiFault, Fault

TIMEOUT_S = 5.0


async def call(pool: ConnectionPool, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and body of the answer to one request; a PATCH body is a JSON merge patch."""
    # A SubjectAccessReview is a POST that changes nothing: standbys must be able to send it.
    sender = pool if method in {"PUT", "PATCH"} else pool.client
    content = None if body is None else msgspec.json.encode(body)
    content_type = MERGE_PATCH if method == "PATCH" else JSON

    try:
        answer = await sender.request(
            method,
            path,
            content,
            content_type=content_type,
            timeout_s=TIMEOUT_S,
        )
        return 200, msgspec.json.decode(answer)
    except ApiFault as fault:
        return fault.status, None
    except (Fault, msgspec.DecodeError):
        return 0, None
