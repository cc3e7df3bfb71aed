"""Attacks on the API of gangs, each in a process of its own so that they do not slow who measures.

`python -m tests.e2e.visibility.attackers KIND FOR_S` with a `Target` as JSON in ATTACKED prints how often each status
was answered.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

GANGS = "/apis/visibility.gangsched.dev/v1alpha1"
REVIEWS = f"{GANGS}/namespaces/mallory/placementreviews"
BLANKS = gzip.compress(b" " * 2**26) * 16
"""A megabyte that holds a gigabyte."""
NOTHING = "-"


@dataclass(frozen=True)
class Target:
    """Where gangsched and the API server are, and with what the API server knows its administrator."""

    port: int
    api_port: int
    cert: str
    key: str

    def past(self) -> http.client.HTTPSConnection:
        """As a stranger, to gangsched itself."""
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=_context(), timeout=30)

    def through(self, timeout_s: float = 30.0) -> http.client.HTTPSConnection:
        """Through the API server, to which the administrator vouches for mallory."""
        context = _context()
        context.load_cert_chain(self.cert, self.key)
        return http.client.HTTPSConnection("127.0.0.1", self.api_port, context=context, timeout=timeout_s)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def as_user(user: str) -> dict[str, str]:
    """Headers with which the administrator asks as somebody else."""
    return {"Impersonate-User": user, "Impersonate-Group": "system:authenticated"}


MALLORY = as_user("mallory")


def bombs_of_a_stranger(target: Target) -> str:
    """A body that holds a gigabyte, without a certificate."""
    return _asked(target.past(), "POST", REVIEWS, {"Content-Encoding": "gzip"}, BLANKS)


def bombs_of_a_user(target: Target) -> str:
    """The same with a GET that every authenticated user may send."""
    return _asked(target.through(), "GET", GANGS, MALLORY | {"Content-Encoding": "gzip"}, BLANKS)


def _asked(
    connection: http.client.HTTPSConnection, method: str, path: str, headers: dict[str, str], body: bytes
) -> str:
    try:
        connection.request(method, path, headers=headers, body=body)
        answer = connection.getresponse()
        answer.read()
        return str(answer.status)
    finally:
        connection.close()


KINDS: dict[str, tuple[Callable[[Target], str], int]] = {
    "bombs of a stranger": (bombs_of_a_stranger, 8),
    "bombs of a user": (bombs_of_a_user, 8),
}
"""What each attacker does again and again, and how many there are."""


def attack(kind: str, for_s: float, target: Target) -> Counter[str]:
    """How often each status was answered."""
    once, threads = KINDS[kind]
    answers: Counter[str] = Counter()
    until_s = time.monotonic() + for_s

    def again() -> None:
        while time.monotonic() < until_s:
            try:
                answers[once(target)] += 1
            except (OSError, http.client.HTTPException):
                answers[NOTHING] += 1

    crowd = [threading.Thread(target=again, daemon=True) for _ in range(threads)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join(for_s + 5.0)
    return answers


if __name__ == "__main__":
    found = attack(sys.argv[1], float(sys.argv[2]), Target(**json.loads(os.environ["ATTACKED"])))
    print(json.dumps(found))
