"""Watches: the log of one resource as a stream of lines, from a resourceVersion on.

Invariant: a stream shows every change after its version once and in order, or ends; a version that
the log has forgotten is answered 410. Bookmarks come now and then. When lines arrive is the
network's business.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tests.sim.api_server.answers import Answer, Request, refusal, status
from tests.sim.api_server.server import Place, selected
from tests.sim.api_server.store import Change, Store

BOOKMARK_EVERY_S = 20.0
Send = Callable[[bytes, Change | None], None]
"""Takes a line and the change that it shows."""


class Stream:
    """One watch, open until `close`; `send` takes its lines, `end` is called when the server ends
    it.
    """

    def __init__(
        self, store: Store, place: Place, request: Request, send: Send, end: Callable[[], None]
    ) -> None:
        self._store, self._place, self._request = store, place, request
        self._send, self._end = send, end
        self.is_open = False

    @property
    def resource(self) -> str:
        """What it is about."""
        return self._place.kind

    def begin(self) -> Answer | None:
        """Send what has happened since its version; the refusal if that is not known any more."""
        since = self._request.query.get("resourceVersion", "")
        version = int(since) if since else self._store.version
        if version < self._store.compacted[self.resource]:
            return refusal(410, "Expired", f"too old resource version: {version}")
        self.is_open = True
        if not since:  # as the API server: what exists comes first
            for change in self._store.changes(self.resource):
                self._line("ADDED", change)
        for change in self._store.log[self.resource]:
            if change.version > version:
                self.heard(change)
        return None

    def heard(self, change: Change) -> None:
        """Send a change of its resource."""
        if self.is_open and change.resource == self.resource:
            self._line(change.type, change)

    def bookmark(self) -> None:
        """Tell how far it is."""
        if self.is_open and self._request.query.get("allowWatchBookmarks") == "true":
            body = {"metadata": {"resourceVersion": str(self._store.version)}}
            self._send(msgspec.json.encode({"type": "BOOKMARK", "object": body}) + b"\n", None)

    def fail(self, code: int, reason: str) -> None:
        """End it with an ERROR line."""
        if self.is_open:
            line = {
                "type": "ERROR",
                "object": status(code, reason, f"{reason} in the middle of a watch"),
            }
            self._send(msgspec.json.encode(line) + b"\n", None)
            self.close()

    def close(self) -> None:
        """End it."""
        if self.is_open:
            self.is_open = False
            self._end()

    def _line(self, kind: str, change: Change) -> None:
        if selected(change.body, self._request.query.get("fieldSelector", "")):
            self._send(b'{"type":"' + kind.encode() + b'","object":' + change.raw + b"}\n", change)
