"""One list and watch per resource, however many tabs are open.

Invariant: what is shown may be read now: rights are asked for again every `RIGHTS_S` seconds, and
what may not be read any more is forgotten. A watch goes on where it ended; if the server no longer
knows that version, the resource is listed again.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlencode

import msgspec

from gangsched.kube.http.blocking import BlockingClient
from gangsched.kube.http.faults import FORBIDDEN, NOT_FOUND, ApiFault, Fault, Malformed
from kubectl_gangsched.page.live.sources import Item, Source
from kubectl_gangsched.session import told
from kubectl_gangsched.terminal import clean, sentence

RIGHTS_S = 20.0
UNSERVED_S = 60.0
"""How often a resource is asked for that is not served."""
WATCH_S = 300
RETRY_S = 0.25
LONGEST_RETRY_S = 2.0
GONE = 410


class _Object(msgspec.Struct):
    version: str = msgspec.field(name="resourceVersion", default="")


class _Versioned(msgspec.Struct):
    metadata: _Object


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _List(msgspec.Struct):
    metadata: _Object
    items: list[msgspec.Raw] | None = None


_line = msgspec.json.Decoder(_Line)
_list = msgspec.json.Decoder(_List)
_versioned = msgspec.json.Decoder(_Versioned)


class _Relist(Exception):  # noqa: N818  (no error: the list is taken again)
    """The watch cannot go on from its version."""


class Watch(threading.Thread):
    """Keeps a source up to date until `end`.

    `missing` is the sentence about why it cannot be read, "" if it can or is not known yet; `ready`
    is set once either is known. `is_current` says whether the watch is connected; `heard_s` is when
    the server last said something.
    """

    def __init__(
        self,
        client: BlockingClient,
        source: Source,
        lock: threading.Lock,
        changed: Callable[[], None],
        rights_s: float = RIGHTS_S,
    ) -> None:
        """`lock` is held while the cluster is changed, and `changed` is called afterwards."""
        super().__init__(name=f"watch of {source.name}", daemon=True)
        self.source = source
        self.missing = ""
        self.is_right = False
        self.is_served = True
        self.is_current = False
        self.heard_s = 0.0
        self.ready = threading.Event()
        self._client = client
        self._lock = lock
        self._changed = changed
        self._rights_s = rights_s
        self._over = threading.Event()
        self._connection: http.client.HTTPConnection | None = None
        self._path = ""
        self._version = ""
        self._is_relisted = False

    def run(self) -> None:
        """Read until the end."""
        retry_s = RETRY_S
        while not self._over.is_set():
            began_s = time.monotonic()
            wait_s = 0.0
            if self._is_relisted:
                self._is_relisted = False
                self._version = ""

            try:
                self._read()
            except _Relist:
                self._version = ""
            except ApiFault as fault:
                wait_s = self._refused(fault)
            except Fault as fault:
                wait_s = retry_s  # the watch goes on from where it was
                # That the server is away is said by who asks it all the time.
                if not self._version or isinstance(fault, Malformed):
                    self._say(f"{self.source.name} cannot be read now: {fault}")
            except Exception as error:  # an object that nobody expected, or a bug
                wait_s = retry_s
                self._version = ""
                self._say(f"{self.source.name} are not understood: {type(error).__name__} {error}")

            self.is_current = self.is_current and not wait_s
            # What ends at once, again and again, is tried less often, also if it is no failure.
            if time.monotonic() - began_s > LONGEST_RETRY_S:
                retry_s = RETRY_S
            else:
                wait_s = max(wait_s, retry_s)
                retry_s = min(LONGEST_RETRY_S, retry_s * 2)

            self._over.wait(wait_s)

    def end(self) -> None:
        """Let the thread end; does not wait for it."""
        self._over.set()
        self.reconnect()

    def reconnect(self) -> None:
        """Break the connection: the watch goes on with a new one."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def relist(self) -> None:
        """List again, maybe from another replica."""
        self._is_relisted = True
        self.reconnect()

    @property
    def path(self) -> str:
        """Where the resource is read; "" where it is not."""
        return self._path

    def check_rights(self) -> None:
        """Forget everything if it may not be read any more; called now and then by one thread."""
        path = self._path
        if not path:
            return

        try:
            self._client.get(f"{path}?limit=1")
        except ApiFault as fault:
            if fault.status == FORBIDDEN:
                self._close(told(fault), is_right=True)
                self.reconnect()
        except Fault:
            return

    def _read(self) -> None:
        """List, unless the watch can go on, and watch."""
        if not (self._version and self._path):
            self._version = self._listed()

        query = urlencode(
            {
                "watch": "1",
                "allowWatchBookmarks": "true",
                "resourceVersion": self._version,
                "timeoutSeconds": WATCH_S,
            }
        )
        for line in self._client.lines(f"{self._path}?{query}", self._opened):
            self._apply(line)

    def _opened(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self.is_current = True

    def _listed(self) -> str:
        """List at the widest path that may be read; the version from which to watch."""
        *wider, narrowest = self.source.paths
        for path in wider:
            try:
                return self._list(path)
            except ApiFault as fault:
                if fault.status != FORBIDDEN:
                    raise

        return self._list(narrowest)

    def _list(self, path: str) -> str:
        items: list[Item] = []
        version = ""
        for page in self._client.pages(path):
            self.heard_s = time.monotonic()
            decoded = _list.decode(page)
            version = decoded.metadata.version
            for raw in decoded.items or ():
                items.append(self.source.item(raw))

        with self._lock:
            if self._path and self._path != path:
                self.source.cluster.is_past_lost = True

            self.source.opened(path)
            self.source.replace(items)
            self._path = path

        self.missing = ""
        self.is_served = True
        self.ready.set()
        self._changed()
        return version

    def _apply(self, text: bytes) -> None:
        self.heard_s = time.monotonic()
        line = _line.decode(text)
        if line.type == "ERROR":
            raise _Relist

        with self._lock:
            # The right was taken away while this came: it is listed again, if it may be.
            if not self._path:
                raise _Relist

            self.missing = ""
            if line.type != "BOOKMARK":
                self.source.change(line.type, line.object)

            self._version = _versioned.decode(line.object).metadata.version

        if line.type != "BOOKMARK":
            self._changed()

    def _refused(self, fault: ApiFault) -> float:
        """Seconds until it is tried again."""
        if fault.status == GONE:
            self._version = ""
            return 0.0

        if fault.status == FORBIDDEN:
            self._close(told(fault), is_right=True)
            return self._rights_s
        if fault.status == NOT_FOUND:
            self.is_served = False
            self._close(f"{self.source.name} are not served in this cluster.")
            return UNSERVED_S

        self._say(f"{self.source.name} cannot be read now: {fault}")
        return LONGEST_RETRY_S

    def _say(self, text: str) -> None:
        """What is known stays, and the page says that it may be old."""
        self.missing = clean(sentence(text))
        self.is_right = False
        self.ready.set()
        self._changed()

    def _close(self, missing: str, *, is_right: bool = False) -> None:
        with self._lock:
            if is_right and self._path:
                self.source.cluster.is_past_lost = True

            self.source.closed()
            self._path = ""
            self._version = ""

        self.is_right = is_right
        self.missing = clean(missing)
        self.ready.set()
        self._changed()
