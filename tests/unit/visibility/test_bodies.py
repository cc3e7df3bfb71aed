"""Bodies of requests: none is inflated, none is read from whom the gate stops, and none may take
long (0044).
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import Counter
from contextlib import AsyncExitStack

import aiohttp.http_parser
import pytest
from control_plane.pki import Pki

from gangsched.visibility import bodies
from gangsched.visibility.admission import CONNECTED
from tests.unit.visibility.serving import (
    ALICE,
    GANGS,
    REVIEWS,
    Api,
    proxy,
    raw_connection,
    served,
    told,
    world_of,
)

BLANKS = gzip.compress(b" " * 2**22)
GZIP = {"Content-Encoding": "gzip"}
JSON = {"Content-Type": "application/json", **ALICE}
SOON_S = 5.0


@pytest.fixture
def inflated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The encodings that somebody began to inflate."""
    found: list[str] = []
    known = aiohttp.http_parser.DeflateBuffer.__init__

    def noted(
        self: object, out: object, encoding: str | None, *rest: object, **named: object
    ) -> None:
        found.append(str(encoding))
        known(self, out, encoding, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(aiohttp.http_parser.DeflateBuffer, "__init__", noted)
    return found


def head(method: str, path: str, *lines: str, user: str = "alice") -> bytes:
    """The head of a request."""
    return "\r\n".join(
        (f"{method} {path} HTTP/1.1", "Host: here", f"X-Remote-User: {user}", *lines, "", "")
    ).encode()


async def status_and_end(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The status of an answer that ends its connection, and its body."""
    async with asyncio.timeout(SOON_S):
        answer = await reader.read()
    top, _, body = answer.partition(b"\r\n\r\n")
    return int(top.split()[1]), body


async def test_no_body_is_inflated(pki: Pki, inflated: list[str]) -> None:
    """415 for every encoding on every path, also where the plain body would be refused or
    is valid.
    """
    review = json.dumps(
        {"spec": {"podSets": [{"template": {"spec": {"containers": []}}}]}}
    ).encode()
    async with served(world_of("g"), Api(pki), pki) as url, proxy(pki) as itself:
        for body in (BLANKS, gzip.compress(review)):
            answer = await itself.post(url + REVIEWS, headers=JSON | GZIP, data=body)
            assert (answer.status, (await told(answer))[1]["reason"]) == (
                415,
                "UnsupportedMediaType",
            )
        for encoding in ("gzip", "deflate", "br", "zstd", "identity", "x"):
            for path in (GANGS, "/apis", f"{GANGS}/gangs"):
                headers = ALICE | {"Content-Encoding": encoding}
                assert (await itself.get(url + path, headers=headers, data=BLANKS)).status == 415, (
                    encoding,
                    path,
                )
        assert (await itself.get(f"{url}{GANGS}/gangs", headers=ALICE)).status == 200
    assert inflated == []


async def test_a_get_has_no_body(pki: Pki) -> None:
    """400 and its Status; a short one does not end the connection, which others share."""
    async with (
        served(world_of("g"), Api(pki), pki) as url,
        raw_connection(url, pki, is_proxy=True) as (reader, writer),
    ):
        for path in (GANGS, f"{GANGS}/gangs", "/apis", "/openapi/v2"):
            writer.write(head("GET", path, "Content-Length: 4") + b"null")
            top = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SOON_S)
            assert top.startswith(b"HTTP/1.1 400 "), path
            length = int(top.lower().partition(b"content-length:")[2].split()[0])
            assert json.loads(await reader.readexactly(length))["reason"] == "BadRequest"
        writer.write(head("GET", f"{GANGS}/gangs", "Content-Length: 100000000"))
        assert (await status_and_end(reader))[0] == 400


async def test_who_is_nobody_is_answered_unread(pki: Pki, inflated: list[str]) -> None:
    """401 ends the connection: no byte of a body is taken, and nothing that is not HTTP
    is parsed.
    """
    sent = (
        head("POST", REVIEWS, "Content-Encoding: gzip", f"Content-Length: {len(BLANKS)}") + BLANKS,
        head("POST", REVIEWS, "Content-Length: 100000000") + b"x" * 100_000,
        b"\x16\x03\x01 no HTTP at all\r\n\r\n",
        head("GET", "/apis"),
    )
    async with served(world_of("g"), Api(pki), pki) as url:
        for raw in sent:
            async with raw_connection(url, pki, is_proxy=False) as (reader, writer):
                writer.write(raw)
                status, body = await status_and_end(reader)
                assert (status, json.loads(body)["reason"]) == (401, "Unauthorized")
        async with raw_connection(url, pki, is_proxy=True) as (reader, writer):
            writer.write(
                head("POST", REVIEWS, "Content-Length: 100000000", user="") + b"x" * 100_000
            )
            assert (await status_and_end(reader))[0] == 401
    assert inflated == []


async def test_a_body_that_is_too_large_ends_the_connection(pki: Pki) -> None:
    """413 as soon as its length is known: by its head, or where it passes the limit."""
    async with served(world_of("g"), Api(pki), pki) as url:
        json_type = "Content-Type: application/json"
        async with raw_connection(url, pki, is_proxy=True) as (reader, writer):
            writer.write(head("POST", REVIEWS, json_type, "Content-Length: 524289"))
            assert (await status_and_end(reader))[0] == 413
        async with raw_connection(url, pki, is_proxy=True) as (reader, writer):
            writer.write(head("POST", REVIEWS, json_type, "Transfer-Encoding: chunked"))
            for _ in range(9):
                writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
            assert (await status_and_end(reader))[0] == 413


async def test_slow_bodies_keep_nobody_out(pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 80 that trickle each is given up after a while, most at once, and another user's requests
    pass meanwhile.
    """
    monkeypatch.setattr(bodies, "READ_WITHIN_S", 2.0)
    start = (
        head(
            "POST",
            REVIEWS,
            "Content-Type: application/json",
            "Content-Length: 1000",
            user="mallory",
        )
        + b"{"
    )
    async with (
        served(world_of("g"), Api(pki), pki) as url,
        proxy(pki) as itself,
        AsyncExitStack() as open_ones,
    ):
        slow = [
            await open_ones.enter_async_context(raw_connection(url, pki, is_proxy=True))
            for _ in range(80)
        ]
        for _, writer in slow:
            writer.write(start)
        for _ in range(5):
            assert (await itself.get(f"{url}{GANGS}/gangs", headers=ALICE)).status == 200
            assert (await itself.post(url + REVIEWS, headers=JSON, data=b"{}")).status == 422
        ends = [asyncio.create_task(status_and_end(reader)) for reader, _ in slow]
        statuses = Counter([(await end)[0] for end in ends])
        assert statuses == {408: CONNECTED[1], 429: 80 - CONNECTED[1]}
