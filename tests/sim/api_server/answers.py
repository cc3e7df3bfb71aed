"""Answers of the API server: a status and a body, or a stream of lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from tests.sim.api_server.store import Change


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it left; `path` has no query."""

    method: str
    target: str
    body: bytes = b""
    accept: str = ""
    content_type: str = ""
    path: str = field(init=False, default="")
    query: dict[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        split = urlsplit(self.target)
        object.__setattr__(self, "path", split.path)
        object.__setattr__(
            self, "query", {name: values[0] for name, values in parse_qs(split.query).items()}
        )

    @property
    def is_watch(self) -> bool:
        """Whether it asks for a stream."""
        return self.query.get("watch") == "true"

    @property
    def writes(self) -> bool:
        """Whether it changes something."""
        return self.method != "GET"


@dataclass(frozen=True, slots=True)
class Shown:
    """What an answer shows of a resource once it has arrived: a page of a list, `is_last` for the
    last one.
    """

    resource: str
    changes: Sequence[Change]
    token: str
    is_last: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer; `retry_after_s` is the header, `shown` what a list shows."""

    status: int
    body: bytes
    retry_after_s: int | None = None
    shown: Shown | None = None

    def encode(self) -> bytes:
        """The bytes of HTTP/1.1."""
        after = f"Retry-After: {self.retry_after_s}\r\n" if self.retry_after_s is not None else ""
        head = f"HTTP/1.1 {self.status} OK\r\nContent-Type: application/json\r\n{after}"
        return f"{head}Content-Length: {len(self.body)}\r\n\r\n".encode() + self.body


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
)
STREAM_END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a stream."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def ok(body: Any, status: int = 200) -> Answer:
    """An answer with an object."""
    return Answer(status, msgspec.json.encode(body))


def raw(body: bytes, status: int = 200) -> Answer:
    """An answer with an encoded object."""
    return Answer(status, body)


def refusal(
    code: int,
    reason: str,
    message: str,
    *,
    retry_after_s: int | None = None,
    causes: Sequence[dict[str, str]] = (),
) -> Answer:
    """A Status."""
    return Answer(code, msgspec.json.encode(status(code, reason, message, causes)), retry_after_s)


def status(
    code: int, reason: str, message: str, causes: Sequence[dict[str, str]] = ()
) -> dict[str, Any]:
    """The Status object."""
    details = {"details": {"causes": list(causes)}} if causes else {}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        **details,
    }


def gateway(code: int) -> Answer:
    """A proxy's page: no Status."""
    return Answer(code, b"<html>gateway</html>")
