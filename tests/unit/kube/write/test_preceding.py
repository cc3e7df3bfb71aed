"""Nominations and conditions of the same pods: which waits for which, and what is one write (V12,
V13).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gangsched.kube.http.faults import ApiFault, Unreachable
from gangsched.kube.write.status import StatusWriter
from gangsched.model.protocol import CancelPreemption, PreparePreemption, SetPodCondition
from tests.unit.kube.fakes import Answer, FakeBinds, Sent, running, settle
from tests.unit.kube.write.preempting import MEMBERS, Desk, at_work


def waits(desk: Desk, uid: str) -> bool:
    """Whether a refusal of the pod would wait for a write about its nomination."""
    return desk.writer.preceding.precedes(
        SetPodCondition(uid, "ns", "pod", "Unschedulable", "no room")
    )


@asynccontextmanager
async def telling(desk: Desk) -> AsyncIterator[StatusWriter]:
    """A writer of conditions beside that of preemptions."""
    runtime = desk.time.runtime()
    status = StatusWriter(
        desk.api,
        FakeBinds(desk.time),
        desk.told.append,
        preceded=desk.writer.preceding.precedes,
        runtime=runtime,
    )
    desk.writer.preceding.conditions = status
    async with running(status.run()):
        yield status


async def test_it_is_told_when_a_nomination_is_cleared() -> None:
    """V12: also if it cannot be, and not before the last of several orders about the same pod is
    carried out.
    """
    async with at_work() as desk:
        status = StatusWriter(
            desk.api,
            FakeBinds(desk.time),
            desk.told.append,
            runtime=desk.time.runtime(),
        )
        cleared: list[str] = []
        vars(status)["cleared"] = cleared.append
        desk.writer.preceding.conditions = status
        desk.api.blocked = asyncio.Event()
        desk.writer.order(CancelPreemption("1", MEMBERS))
        desk.writer.order(CancelPreemption("1/left", MEMBERS[:1]))
        await settle()
        assert [waits(desk, uid) for uid in ("m0", "m1", "other")] == [True, True, False]
        desk.api.blocked.set()
        await settle()
        assert sorted(cleared) == ["m0", "m1"]
        assert not waits(desk, "m0")
    async with at_work(lambda sent: Unreachable("The API server is away.")) as desk:
        desk.writer.order(CancelPreemption("1", MEMBERS))
        await desk.time.advance(60.0)
        assert not waits(desk, "m0")


async def test_refusal_is_written_once_the_nomination_is_cleared() -> None:
    """V12: autoscalers pass over a pod with a nomination, so nobody sees a pod that is refused and
    has one.
    """
    async with at_work() as desk, telling(desk) as status:
        desk.api.blocked = asyncio.Event()
        desk.writer.order(CancelPreemption("1", MEMBERS[:1]))
        status.put(SetPodCondition("m0", "ns", "high-0", "Unschedulable", "no room"))
        await desk.time.advance(5.0)
        assert [sent.body["status"] for sent in desk.api.sent] == [{"nominatedNodeName": None}]
        desk.api.blocked.set()
        await desk.time.advance(1.0)
        assert [list(sent.body["status"]) for sent in desk.api.sent] == [
            ["nominatedNodeName"],
            ["conditions"],
        ]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_nomination_carries_the_condition_of_its_pod(fails: bool) -> None:
    """V13: one write says where the pod is to go and why it waits; what comes meanwhile is written
    after it. If it cannot be made, the condition is written by itself."""
    refusal = ApiFault(422, "Invalid", "no")

    def answer(sent: Sent) -> Answer:
        return refusal if fails and "nominatedNodeName" in sent.body["status"] else {}

    async with at_work(answer) as desk, telling(desk) as status:
        desk.api.blocked = asyncio.Event()
        desk.writer.order(PreparePreemption("1", MEMBERS[:1], ()))
        status.put(SetPodCondition("m0", "ns", "high-0", "Preempting", "first"))
        await settle()
        status.put(SetPodCondition("m0", "ns", "high-0", "Preempting", "second"))
        await desk.time.advance(5.0)
        assert [sorted(sent.body["status"]) for sent in desk.api.sent] == [
            ["conditions", "nominatedNodeName"]
        ]
        desk.api.blocked.set()
        await desk.time.advance(5.0)
        written = [
            each["message"] for sent in desk.api.sent for each in sent.body["status"]["conditions"]
        ]
        assert written == ["first", "second"]
        assert not status.conditions


async def test_a_nomination_that_waits_for_a_connection_carries_what_comes_meanwhile() -> None:
    """In a wave there are more nominations than connections: the condition need not be there when
    one is ordered.
    """
    async with at_work(connections=1) as desk, telling(desk) as status:
        desk.api.blocked = asyncio.Event()
        desk.writer.order(PreparePreemption("1", MEMBERS, ()))
        await settle()
        status.put(SetPodCondition("m1", "ns", "high-1", "Preempting", "waiting"))
        await desk.time.advance(1.0)
        assert len(desk.api.sent) == 1
        desk.api.blocked.set()
        await desk.time.advance(1.0)
        assert [sorted(sent.body["status"]) for sent in desk.api.sent] == [
            ["nominatedNodeName"],
            ["conditions", "nominatedNodeName"],
        ]
        assert not status.conditions


async def test_a_condition_does_not_wait_for_a_nomination_that_a_shutdown_stops() -> None:
    """It was to be carried, and is free to be written by itself."""
    async with at_work(connections=1) as desk:
        desk.api.blocked = asyncio.Event()
        desk.writer.order(PreparePreemption("1", MEMBERS, ()))
        await settle()
        assert waits(desk, "m1")
        assert not waits(desk, "m0")
    assert not waits(desk, "m1")
    assert desk.writer.in_flight.idle.is_set()
