"""A PreemptionWriter at work in fake time, with an API server in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gangsched.kube.write.preemption import PreemptionWriter
from gangsched.model.protocol import Evict, Message, NominatedMember, PodRef, PreparePreemption
from tests.unit.kube.fakes import Answer, FakeRequests, FakeTime, Sent, running

MEMBERS = (NominatedMember("m0", "ns", "high-0", "n0"), NominatedMember("m1", "ns", "high-1", "n1"))
VICTIMS = (PodRef("v0", "ns", "low-0"), PodRef("v1", "ns", "low-1"))
PREPARE = PreparePreemption("1", MEMBERS, VICTIMS)
EVICT = Evict("1", "v0", "ns", "low-0", 1_100.0)
"""Its deadline is 100 s after the beginning of a test."""


class Desk:
    """A writer at work in fake time."""

    def __init__(self, answer: Callable[[Sent], Answer] | None, connections: int = 16) -> None:
        self.time = FakeTime()
        self.api = FakeRequests(answer)
        self.told: list[Message] = []
        self.warnings: list[str] = []
        self.wanted = True
        self.gone: set[str] = set()
        self.writer = PreemptionWriter(
            self.api,
            self.told.append,
            may_send=lambda order: self.wanted,
            is_gone=self.gone.__contains__,
            connections=connections,
            runtime=self.time.runtime(self.warnings.append),
        )

    def evictions(self) -> list[Sent]:
        """The evictions sent so far."""
        return [sent for sent in self.api.sent if sent.path.endswith("/eviction")]


@asynccontextmanager
async def at_work(
    answer: Callable[[Sent], Answer] | None = None, connections: int = 16
) -> AsyncIterator[Desk]:
    desk = Desk(answer, connections)
    async with running(desk.writer.run()):
        yield desk
