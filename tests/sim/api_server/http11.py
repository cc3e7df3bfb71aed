"""HTTP/1.1 as the server reads it: the bytes of one connection, cut into requests."""

from __future__ import annotations

from tests.sim.api_server.answers import Request


class RequestReader:
    """Bodies have a length; there are no chunks."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes) -> list[Request]:
        """The requests that these bytes complete."""
        self._received += data
        found = []
        while (request := self._take()) is not None:
            found.append(request)
        return found

    def _take(self) -> Request | None:
        ends = self._received.find(b"\r\n\r\n")
        if ends < 0:
            return None
        first, *lines = self._received[:ends].decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        assert "transfer-encoding" not in headers
        length = int(headers.get("content-length", 0))
        if len(self._received) < ends + 4 + length:
            return None
        body = bytes(self._received[ends + 4 : ends + 4 + length])
        del self._received[: ends + 4 + length]
        method, target, _ = first.split(" ")
        return Request(
            method, target, body, headers.get("accept", ""), headers.get("content-type", "")
        )
