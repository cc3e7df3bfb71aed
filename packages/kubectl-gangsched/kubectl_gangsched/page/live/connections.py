"""Places for connections, and what one may send until when.

Invariant: every user of this machine can connect, and whoever has not shown the key takes no place
of those who have: strangers have a few places, and the oldest of them goes when another one comes.
"""

from __future__ import annotations

import io
import socket
import threading
import time
from contextlib import suppress
from typing import Any

STRANGERS = 32
KNOWN = 32
"""A browser opens six to one host."""
STRANGER_S = 5.0
"""How long a stranger may take for a request, however slowly it comes."""
REQUEST_S = 15.0
"""The same for the others, and for whoever takes an answer."""
HEAD_BYTES = 16 * 1024


class TooLong(OSError):  # noqa: N818  (what the request is)
    """More bytes came than a request may have."""


class Connections:
    """The connections that are open."""

    def __init__(self) -> None:
        """There are none."""
        self._lock = threading.Lock()
        #: The oldest first.
        self._strangers: dict[socket.socket, None] = {}
        self._known: set[socket.socket] = set()

    def admit(self, connection: socket.socket) -> None:
        """Give a place to a stranger, in place of the oldest one if there are too many."""
        with self._lock:
            self._strangers[connection] = None
            if len(self._strangers) > STRANGERS:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                # Its thread ends by that.
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)

    def prove(self, connection: socket.socket) -> bool:
        """Keep the place of one that has shown the key; False if too many have."""
        with self._lock:
            if connection not in self._known and len(self._known) >= KNOWN:
                return False

            self._strangers.pop(connection, None)
            self._known.add(connection)
            return True

    def is_known(self, connection: socket.socket) -> bool:
        """Whether it has shown the key."""
        return connection in self._known

    def leave(self, connection: socket.socket) -> None:
        """Give the place back."""
        with self._lock:
            self._strangers.pop(connection, None)
            self._known.discard(connection)


class BoundedReader(io.RawIOBase):
    """What a client sends: so many bytes until a deadline.

    `socket.settimeout` alone limits each silence: a byte every few seconds would go on forever.
    """

    def __init__(self, connection: socket.socket) -> None:
        """Nothing may be read before `begin`."""
        super().__init__()
        self._connection = connection
        self._deadline_s = 0.0
        self._left = 0

    def begin(self, within_s: float, most: int) -> None:
        """Allow so many bytes from now on."""
        self._deadline_s = time.monotonic() + within_s
        self._left = most

    def readable(self) -> bool:
        """It is for reading."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes. Raises TimeoutError and TooLong."""
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        if not self._left:
            raise TooLong

        self._connection.settimeout(left_s)
        try:
            number = self._connection.recv_into(buffer, min(len(buffer), self._left))
        finally:
            self._connection.settimeout(REQUEST_S)

        self._left -= number
        return number
