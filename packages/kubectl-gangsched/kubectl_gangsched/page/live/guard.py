"""Who may ask: the checks of every request, and the headers of every answer.

Invariant: as Jupyter, not as `kubectl proxy`. Another site, another user of this machine, or a name
that resolves to this address gets nothing. The code in the link is good once; the key that it is
exchanged for is in no address and in no cookie, which all ports of an address share.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""Of every answer, also of refusals. There is no header of CORS."""
BODY_BYTES = 64 * 1024
SCHEME_CODE = "Code "
SCHEME_KEY = "Bearer "


@dataclass(slots=True)
class Refused(Exception):  # noqa: N818  (an answer, no error of ours)
    """A request that gets no answer; `sentence` says why."""

    status: int
    sentence: str


@dataclass(slots=True)
class Guard:
    """One session: a code that is good once, and a key."""

    port: int
    code: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    _key: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_used(self) -> bool:
        """Whether the code has been exchanged."""
        return bool(self._key)

    def check_origin(self, headers: Mapping[str, str], *, is_page: bool) -> None:
        """Refuse requests of other sites and under other names; `is_page` is that of the page
        itself, which has no data and may be opened from anywhere, but not in a frame.
        """
        host = headers.get("host", "").lower()
        hosts = {f"{name}:{self.port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        if host not in hosts:
            raise Refused(421, "This address is served under no such name.")

        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host}":
            raise Refused(403, "Another site may not ask this.")

        site = headers.get("sec-fetch-site", "same-origin")
        if site == "same-origin" or (is_page and site == "none"):
            return

        is_opened = headers.get("sec-fetch-mode") == "navigate"
        if not (is_page and is_opened and headers.get("sec-fetch-dest") == "document"):
            raise Refused(403, "Another site may not ask this.")

    def exchange(self, authorization: str) -> str:
        """The key for the code of the link. Raises Refused."""
        code = authorization.removeprefix(SCHEME_CODE)
        with self._lock:
            if self._key:
                raise Refused(
                    401,
                    "This link has been used: run kubectl gangsched ui again for another one.",
                )
            if not _equal(code, self.code) or not authorization.startswith(SCHEME_CODE):
                raise Refused(401, "This link is not the one that kubectl gangsched ui printed.")

            self._key = secrets.token_urlsafe(32)
            return self._key

    def check_key(self, authorization: str) -> None:
        """Refuse requests without the key."""
        key = authorization.removeprefix(SCHEME_KEY)
        known = self._key
        if not known or not authorization.startswith(SCHEME_KEY) or not _equal(key, known):
            raise Refused(401, "Open the link that kubectl gangsched ui printed.")


def check_body(headers: Mapping[str, str]) -> int:
    """The length of a body that may be read. Raises Refused."""
    if headers.get("transfer-encoding"):
        raise Refused(411, "A question has a Content-Length.")

    length = headers.get("content-length", "")
    # int() would read digits of other scripts, too.
    if not (length.isascii() and length.isdigit() and len(length) < 10):
        raise Refused(411, "A question has a Content-Length.")
    if int(length) > BODY_BYTES:
        raise Refused(413, f"A question has at most {BODY_BYTES // 1024} KiB.")
    if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Refused(415, "A question is JSON.")

    return int(length)


def _equal(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode(), known.encode())
