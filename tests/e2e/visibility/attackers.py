"""Attacks on the API of gangs, each in a process of its own so that they do not slow who measures.

`python -m tests.e2e.visibility.attackers KIND FOR_S` with a `Target` as JSON in ATTACKED prints how
often each status was answered.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import select
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

GANGS = "/apis/visibility.gangsched.dev/v1alpha1"
REVIEWS = f"{GANGS}/namespaces/mallory/placementreviews"
BLANKS = gzip.compress(b" " * 2**26) * 16
"""A megabyte that holds a gigabyte."""
NOTHING = "-"


@dataclass(frozen=True)
class Target:
    """Where gangsched and the API server are, and with what the API server knows
    its administrator.
    """

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
        return http.client.HTTPSConnection(
            "127.0.0.1", self.api_port, context=context, timeout=timeout_s
        )


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
    connection: http.client.HTTPSConnection,
    method: str,
    path: str,
    headers: dict[str, str],
    body: bytes,
) -> str:
    try:
        connection.request(method, path, headers=headers, body=body)
        answer = connection.getresponse()
        answer.read()
        return str(answer.status)
    finally:
        connection.close()


def slow_body(target: Target) -> str:
    """A review of which a byte comes now and then."""
    connection = target.through()
    try:
        connection.putrequest("POST", REVIEWS)
        for name, value in (
            MALLORY | {"Content-Type": "application/json", "Content-Length": "100000"}
        ).items():
            connection.putheader(name, value)
        connection.endheaders()
        connection.send(b" " * 16_384)  # less than that the API server keeps to itself
        for _ in range(150):
            if select.select([connection.sock], [], [], 0.2)[0]:
                break
            connection.send(b" ")
        answer = connection.getresponse()
        answer.read()
        return str(answer.status)
    finally:
        connection.close()


def hard_review(target: Target) -> str:
    """A gang of which every set keeps off the others, and whose client soon gives up."""
    headers = MALLORY | {"Content-Type": "application/json"}
    return _asked(target.through(timeout_s=2.0), "POST", REVIEWS, headers, HARD)


def flood_of_lists(target: Target) -> str:
    """All gangs that mallory may see, as fast as they come."""
    return _asked(target.through(), "GET", f"{GANGS}/namespaces/mallory/gangs", MALLORY, b"")


def flood_of_discovery(target: Target) -> str:
    """What there is."""
    return _asked(target.through(), "GET", GANGS, MALLORY, b"")


def _hard() -> bytes:
    """32 sets of 31 pods, of which about half find a node."""
    return json.dumps(
        {"spec": {"gang": {"min": 992}, "podSets": [_set(number) for number in range(32)]}}
    ).encode()


def _set(number: int) -> dict[str, Any]:
    """Pods that keep off those of every other set, and spread over nodes of which there are too
    few.
    """
    own = str(number)
    others: list[Any] = [
        {"matchExpressions": [{"key": "set", "operator": "NotIn", "values": [own]}]}
    ]
    others += [{"matchLabels": {"set": str((number + step) % 32)}} for step in range(1, 8)]
    zone, host = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
    keys = [{"key": host, "operator": "NotIn", "values": [f"x{number}-{n}"]} for n in range(5)]
    spec = {
        "schedulerName": "gangsched",
        "containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": f"{number + 1}m"}}}
        ],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": keys}]
                }
            },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": host, "labelSelector": other} for other in others
                ]
            },
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"set": own}},
            }
            for key in (zone, host)
        ],
    }
    template = {"metadata": {"labels": {"set": str(number)}}, "spec": spec}
    return {"name": f"s{number}", "count": 31, "template": template}


HARD = _hard()
KINDS: dict[str, tuple[Callable[[Target], str], int]] = {
    "bombs of a stranger": (bombs_of_a_stranger, 8),
    "bombs of a user": (bombs_of_a_user, 8),
    "slow bodies": (slow_body, 80),
    "hard reviews": (hard_review, 8),
    "flood of lists": (flood_of_lists, 16),
    "flood of discovery": (flood_of_discovery, 16),
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
        thread.join(max(0.0, until_s + 1.0 - time.monotonic()))
    return answers


if __name__ == "__main__":
    found = attack(sys.argv[1], float(sys.argv[2]), Target(**json.loads(os.environ["ATTACKED"])))
    print(json.dumps(found))
