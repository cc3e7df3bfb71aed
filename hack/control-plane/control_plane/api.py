"""A small JSON client of the API server, for tests, the demo and the benchmarks.

    api = Api.of(plane)
    api.post("/api/v1/namespaces", {"metadata": {"name": "demo"}})

Invariant: an answer other than 2xx is an `ApiError`; no answer is an OSError. It may be used from
many threads; connections are reused. A request is repeated only if the server said 429, or if it
had closed a kept connection before reading the request. It caches only discovery, and it is too
slow to measure a server with.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias
from urllib.parse import urlencode, urlsplit

if TYPE_CHECKING:
    from control_plane.plane import ControlPlane

Object: TypeAlias = dict[str, Any]

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

PAGE = 500
#: How long the server keeps a watch open, and how long we wait for a line before we call it dead.
WATCH_S, SILENCE_S = 240, 300.0
#: A pause after a broken stream, and the longest one after a 429, in seconds.
PAUSE_S, RETRY_AFTER_MAX_S = 0.2, 2.0


class ApiError(Exception):
    """The server refused: `status` is the HTTP status code, `message` its text."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status, self.message = status, message


class Listed(NamedTuple):
    """A whole collection and the version that a watch starts from."""

    items: list[Object]
    resource_version: str


class Api:
    """One user's view of one API server. `token` is a bearer token; a client certificate lies in
    `context`.
    """

    def __init__(
        self,
        url: str,
        context: ssl.SSLContext,
        *,
        token: str = "",
        timeout_s: float = 30.0,
        accept: str = JSON,
    ) -> None:
        self.url, self._context, self._timeout_s = url, context, timeout_s
        self._headers = {"Accept": accept} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._idle: list[http.client.HTTPSConnection] = []
        self._lock = threading.Lock()
        self._kinds: dict[str, dict[str, tuple[str, bool]]] = {}

    @classmethod
    def of(cls, plane: ControlPlane, *, accept: str = JSON) -> Self:
        """The admin of a running control plane."""
        return cls(plane.url, plane.ssl_context(), accept=accept)

    def close(self) -> None:
        """Close the kept connections; the next request opens a new one."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def healthy(self, path: str) -> bool:
        """Whether a GET of `path` answers 200 now; never raises."""
        try:
            return self._send("GET", path, None, JSON)[0] == http.client.OK
        except (OSError, http.client.HTTPException):
            return False

    # --- one object ------------------------------------------------------------------------------

    def get(self, path: str) -> Object:
        """One object (or any other JSON answer)."""
        answer: Object = self.call("GET", path)
        return answer

    def post(self, path: str, body: Mapping[str, Any]) -> Object:
        """Create; the object as stored."""
        answer: Object = self.call("POST", path, body)
        return answer

    def put(self, path: str, body: Mapping[str, Any]) -> Object:
        """Replace; the object as stored."""
        answer: Object = self.call("PUT", path, body)
        return answer

    def patch(self, path: str, body: Any, *, content_type: str = MERGE_PATCH) -> Object:
        """Patch (a merge patch unless told otherwise); the object as stored."""
        answer: Object = self.call("PATCH", path, body, content_type=content_type)
        return answer

    def delete(self, path: str, *, grace_s: int | None = 0) -> bool:
        """Delete, by default at once, and what it owns after it; False if there was nothing.
        `grace_s` None: the object's grace period.
        """
        # Pods of a Job are orphaned by default, by a finalizer that only a controller-manager
        # takes off.
        options: dict[str, Any] = {"propagationPolicy": "Background"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s

        try:
            self.call("DELETE", path, options)
        except ApiError as error:
            if error.status == http.client.NOT_FOUND:
                return False
            raise
        return True

    def bind(self, namespace: str, name: str, node: str) -> None:
        """Bind a pod to a node, as a scheduler does."""
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        self.post(f"/api/v1/namespaces/{namespace}/pods/{name}/binding", binding)

    # --- many objects ----------------------------------------------------------------------------

    def list(self, path: str, **query: str | int) -> Listed:
        """Every object of a collection, read in pages. `query`: labelSelector and the like."""
        items: list[Object] = []
        page: dict[str, str | int] = {"limit": PAGE, **query}
        while True:
            answer = self.call("GET", f"{path}?{urlencode(page)}")
            items += answer["items"]
            more = answer["metadata"].get("continue")
            if not more:
                return Listed(items, answer["metadata"]["resourceVersion"])
            page["continue"] = more

    def watch(self, path: str, resource_version: str, **query: str | int) -> Watch:
        """What happens to a collection after `resource_version`."""
        return Watch(self, path, resource_version, query)

    def path_of(
        self, body: Mapping[str, Any], *, namespace: str = "default", within_s: float = 10.0
    ) -> str:
        """The path of an object's collection; `namespace` is for objects that name none.

        Waits for a kind that was defined a moment ago. Raises ApiError 404 if it is not served.
        """
        api_version, kind = str(body["apiVersion"]), str(body["kind"])
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        deadline_s = time.monotonic() + within_s
        while kind not in self._kinds.get(api_version, {}):
            try:
                resources = self.get(root)["resources"]
            except ApiError as error:
                if error.status != http.client.NOT_FOUND:
                    raise
                resources = []
            found = {
                item["kind"]: (item["name"], item["namespaced"])
                for item in resources
                if "/" not in item["name"]
            }
            self._kinds[api_version] = found
            if kind not in found and time.monotonic() > deadline_s:
                raise ApiError(
                    http.client.NOT_FOUND, f"The server knows no kind {kind} in {api_version}."
                )
            if kind not in found:
                time.sleep(PAUSE_S)
        plural, namespaced = self._kinds[api_version][kind]
        if not namespaced:
            return f"{root}/{plural}"
        return f"{root}/namespaces/{body['metadata'].get('namespace') or namespace}/{plural}"

    # --- inside ----------------------------------------------------------------------------------

    def call(self, method: str, path: str, body: Any = None, *, content_type: str = JSON) -> Any:
        """One request; returns the decoded answer. Raises ApiError, or OSError without
        an answer.
        """
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            status, retry_after, text = self._send(method, path, data, content_type)
            if status != http.client.TOO_MANY_REQUESTS or time.monotonic() > deadline_s:
                break
            time.sleep(min(float(retry_after or PAUSE_S), RETRY_AFTER_MAX_S))
        if status >= http.client.MULTIPLE_CHOICES:
            raise ApiError(status, _message(text))
        return json.loads(text) if text else {}

    def _send(
        self, method: str, path: str, data: bytes | None, content_type: str
    ) -> tuple[int, str | None, bytes]:
        """Status, Retry-After and body of one answer."""
        headers = {"Content-Type": content_type, **self._headers}
        while True:
            with self._lock:
                kept = self._idle.pop() if self._idle else None
            connection = kept or self.connect(self._timeout_s)
            try:
                connection.request(method, path, body=data, headers=headers)
                answer = connection.getresponse()
            except (ConnectionError, ssl.SSLEOFError):
                connection.close()
                if kept is None:
                    raise
                continue  # the server closed it while it was idle
            except BaseException:
                connection.close()
                raise
            try:
                text = answer.read()
            except BaseException:
                connection.close()
                raise
            if answer.will_close:
                connection.close()
            else:
                with self._lock:
                    self._idle.append(connection)
            return answer.status, answer.headers.get("Retry-After"), text

    def connect(self, timeout_s: float) -> http.client.HTTPSConnection:
        """A new connection, for `open_stream`."""
        parts = urlsplit(self.url)
        return http.client.HTTPSConnection(
            parts.hostname or "", parts.port, context=self._context, timeout=timeout_s
        )

    def open_stream(
        self, connection: http.client.HTTPSConnection, path: str
    ) -> http.client.HTTPResponse:
        """An answer that is read as it arrives, on its own connection."""
        connection.request("GET", path, headers=self._headers)
        return connection.getresponse()


class Watch:
    """Changes to a collection, in the server's order: pairs of ADDED, MODIFIED or DELETED and the
    object.

    A stream that ends or breaks is resumed after the last version seen, so nothing is lost or
    repeated. Raises ApiError 410 when the server has forgotten that version: list again. It ends
    when `close` is called, which any thread may do.
    """

    def __init__(
        self, api: Api, path: str, resource_version: str, query: Mapping[str, str | int]
    ) -> None:
        self.resource_version = resource_version
        self._api, self._path, self._query = api, path, dict(query)
        self._closed = threading.Event()
        self._connection: http.client.HTTPSConnection | None = None

    def close(self) -> None:
        """End the watch, also while another thread waits for its next line; idempotent."""
        self._closed.set()
        connection = self._connection
        if connection is not None and connection.sock is not None:
            # Not SSLSocket.shutdown: that takes the TLS object away from under the reading thread.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)

    def __iter__(self) -> Iterator[tuple[str, Object]]:
        while not self._closed.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                yield from self._stream()
            self._closed.wait(PAUSE_S)  # then the server is asked again, also when it went away

    def _stream(self) -> Iterator[tuple[str, Object]]:
        """One connection's worth of changes."""
        asked = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.resource_version,
            "timeoutSeconds": WATCH_S,
        }
        self._connection = connection = self._api.connect(SILENCE_S)
        try:
            answer = self._api.open_stream(connection, f"{self._path}?{urlencode(asked)}")
            busy = {http.client.TOO_MANY_REQUESTS, http.client.SERVICE_UNAVAILABLE}
            if answer.status in busy or self._closed.is_set():
                return
            if answer.status != http.client.OK:
                raise ApiError(answer.status, _message(answer.read()))
            for line in _lines(answer):
                if self._closed.is_set():
                    return
                yield from self._changes(json.loads(line))
        finally:
            self._connection = None
            connection.close()

    def _changes(self, event: Object) -> Iterator[tuple[str, Object]]:
        """The change in one line, if any: bookmarks only advance the version."""
        kind, body = event["type"], event["object"]
        if kind == "ERROR":
            raise ApiError(int(body.get("code") or 0), str(body.get("message")))
        self.resource_version = body["metadata"]["resourceVersion"]
        if kind != "BOOKMARK":
            yield kind, body


def _lines(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """The lines of a stream, of any length; an unfinished last one is dropped."""
    pending = b""
    while chunk := answer.read1(1 << 20):
        *lines, pending = (pending + chunk).split(b"\n")
        yield from lines


def _message(text: bytes) -> str:
    """The message of a Status object, or the body."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.decode(errors="replace").strip()
