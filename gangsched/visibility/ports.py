"""Interfaces of the server to the other parts of the daemon: types only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Json: TypeAlias = dict[str, Any]

GROUP = "visibility.gangsched.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
SERVICE = SECRET = "gangsched-visibility"
"""The Service of the overlay, whose name the certificate is for, and the Secret that all replicas
share.
"""


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """The API server's answer; status 0 when there was none."""

    status: int
    body: Any = None

    @property
    def is_ok(self) -> bool:
        """Whether the answer is a success."""
        return 200 <= self.status < 300


class Calls(Protocol):
    """Requests to the API server with the daemon's permissions; never raises for server or network
    errors.
    """

    async def __call__(self, method: str, path: str, body: Json | None = None) -> ApiAnswer:
        """Send one request; PATCH bodies are JSON merge patches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """The clocks: monotonic seconds and epoch seconds."""

    now_s: Callable[[], float]
    wall_s: Callable[[], float]
