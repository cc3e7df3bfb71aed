"""Faults of single requests and streams: what goes wrong on the way, by chance.

Invariant: every fault has a name, is counted when it strikes, and stops when `stop` is called. A
fault never makes the API server say what is not so: a Status of 404 comes from the server alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto
from random import Random

from tests.sim.api_server.answers import Answer, Request, gateway, refusal


class Reply(Enum):
    """What becomes of the server's answer."""

    COMES = auto()
    NEVER = auto()
    RESET = auto()


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a request.

    It `arrives` after `late_s`; with `instead` it is answered so at once, and carried out all the
    same if it arrives.
    """

    name: str = ""
    arrives: bool = True
    late_s: float = 0.0
    reply: Reply = Reply.COMES
    reply_late_s: float = 0.0
    instead: Answer | None = None


NORMAL = Fate()
LATEST_S = 55.0
"""An API server works on no request for longer than a minute."""
READS = (
    "request lost",
    "request reset",
    "answer lost",
    "answer reset",
    "answer late",
    "500",
    "503 of a gateway",
    "429",
    "401",
)
WRITES = (
    *READS,
    "request late",
    "404 of a gateway",
    "409 of storage",
    "409 of storage, carried out later",
    "500, carried out",
    "504, carried out later",
    "403",
)
MOVES = (
    *WRITES,
    "request late",
    "request late",
    "answer lost",
    "409 of storage, carried out later",
    "504, carried out later",
)
MORE_OFTEN = 5
"""Binds and evictions are few, and what they leave open is worth more histories."""


class RequestFaults:
    """`rate` is the share of requests that a fault strikes; `names` limits which."""

    def __init__(self, rng: Random, rate: float, names: frozenset[str]) -> None:
        self._rng = rng
        self.rate = rate
        self._names = names
        self.counts: Counter[str] = Counter()

    def stop(self) -> None:
        """Let everything pass from now on."""
        self.rate = 0.0

    def fate(self, request: Request) -> Fate:
        """What becomes of this one."""
        is_move = request.writes and request.path.endswith(("/binding", "/eviction"))
        if self._rng.random() >= self.rate * (MORE_OFTEN if is_move else 1):
            return NORMAL
        name = self._rng.choice(MOVES if is_move else WRITES if request.writes else READS)
        if name not in self._names or (name == "403" and request.path.endswith("reviews")):
            return NORMAL
        self.counts[name] += 1
        return self._make(name)

    def _make(self, name: str) -> Fate:
        rng = self._rng
        match name:
            case "request lost":
                return Fate(name, arrives=False, reply=Reply.NEVER)
            case "request reset":
                return Fate(name, arrives=False, reply=Reply.RESET)
            case "answer lost":
                return Fate(name, reply=Reply.NEVER)
            case "answer reset":
                return Fate(name, reply=Reply.RESET)
            case "answer late":
                return Fate(name, reply_late_s=rng.uniform(0.1, 15.0))
            case "request late":
                return Fate(name, late_s=rng.uniform(0.1, rng.choice((1.0, 12.0, LATEST_S))))
            case "500, carried out":
                return Fate(
                    name, instead=refusal(500, "InternalError", "etcdserver: request timed out")
                )
            case "504, carried out later":
                late_s = rng.uniform(0.0, 9.0)
                return Fate(
                    name,
                    late_s=late_s,
                    instead=refusal(504, "Timeout", "request did not complete in time"),
                )
            case "409 of storage, carried out later":
                late_s = rng.uniform(0.0, 9.0)
                return Fate(
                    name,
                    late_s=late_s,
                    instead=refusal(409, "Conflict", "etcdserver: request timed out"),
                )
            case _:
                return Fate(name, arrives=False, instead=_refused(name))


def _refused(name: str) -> Answer:
    match name:
        case "500":
            return refusal(
                500,
                "InternalError",
                "an error on the server has prevented the request from succeeding",
            )
        case "503 of a gateway":
            return gateway(503)
        case "404 of a gateway":
            return gateway(404)
        case "429":
            return refusal(429, "TooManyRequests", "the server is busy", retry_after_s=1)
        case "401":
            return refusal(401, "Unauthorized", "Unauthorized")
        case "403":
            return refusal(403, "Forbidden", "an admission webhook denied the request")
        case "409 of storage":
            return refusal(409, "Conflict", "the storage was busy")
    raise AssertionError(name)
