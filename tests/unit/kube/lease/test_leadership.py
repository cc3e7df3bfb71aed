"""Leadership: planning begins when the lease is ours and the past is known, and ends by
the clock.
"""

from __future__ import annotations

import asyncio

import pytest

from gangsched.kube.http.faults import Unreachable
from gangsched.kube.http.permissions import Lease
from gangsched.kube.lease.elector import Elector
from gangsched.kube.lease.leadership import Leadership
from tests.unit.kube.fakes import FakeTime, settle
from tests.unit.kube.lease.test_elector import TIMING, LeaseServer


class Desk:
    """One replica."""

    def __init__(self) -> None:
        self.time, self.server = FakeTime(), LeaseServer()
        self.known = asyncio.Event()
        self.fault: Unreachable | None = None
        self.warnings: list[str] = []
        self.began_after_s: list[float] = []
        runtime = self.time.runtime(self.warnings.append)
        elector = Elector(
            self.server, self.server, Lease("ns", "l"), identity="a", timing=TIMING, runtime=runtime
        )
        self.leadership = Leadership(elector, self.caught_up, runtime)

    async def caught_up(self) -> None:
        if self.fault is not None:
            raise self.fault
        await self.known.wait()

    def term(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.leadership.run_term(self.began_after_s.append))


@pytest.fixture
async def desk() -> Desk:
    return Desk()


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


async def test_a_term_begins_when_the_past_is_known(desk: Desk) -> None:
    """The lease alone is not enough, and is renewed meanwhile."""
    task = desk.term()
    await desk.time.advance(5.0)
    assert desk.leadership.fence.is_open()
    assert not desk.leadership.leads()
    desk.known.set()
    await desk.time.advance(0.0)
    assert desk.leadership.leads()
    assert desk.began_after_s == [5.0]
    await desk.time.advance(60.0)
    assert desk.leadership.leads()
    await end(task)
    assert not desk.leadership.leads()


async def test_a_term_ends_with_the_lease(desk: Desk) -> None:
    """Whoever runs it learns of it, and the next term needs the past again."""
    desk.known.set()
    task = desk.term()
    await desk.time.advance(1.0)
    desk.server.hangs = True
    await desk.time.advance(8.9)
    assert not task.done()
    await desk.time.advance(2.0)
    assert task.done()
    assert not desk.leadership.leads()
    desk.server.hangs = False
    desk.known.clear()
    task = desk.term()
    await desk.time.advance(3.0)
    assert not desk.leadership.leads()
    desk.known.set()
    await desk.time.advance(1.0)
    assert desk.leadership.leads()
    await end(task)


async def test_nothing_is_planned_once_the_lease_may_be_over(desk: Desk) -> None:
    """A process that was stopped does not lead when it goes on, before anything has noticed."""
    desk.known.set()
    task = desk.term()
    await desk.time.advance(1.0)
    assert desk.leadership.leads()
    desk.time.at_s += 30.0
    assert not desk.leadership.leads()
    await end(task)


async def test_watches_that_stay_behind_leave_the_lease_to_others(desk: Desk) -> None:
    """After one lease's time it is released, for as long."""
    task = desk.term()
    await desk.time.advance(15.2)
    assert desk.server.holder == ""
    assert desk.warnings == ["The watches are behind: for 15 s the lease is left to others."]
    await desk.time.advance(14.0)
    assert desk.server.holder == ""
    desk.known.set()
    await desk.time.advance(2.0)
    assert desk.leadership.leads()
    await end(task)


async def test_a_lease_lost_while_catching_up_is_no_term(desk: Desk) -> None:
    """It is acquired again; nobody is told that a term began."""
    task = desk.term()
    await desk.time.advance(1.0)
    desk.server.write(
        {"spec": {"holderIdentity": "b", "leaseDurationSeconds": 15, "renewTime": "x"}}
    )
    await desk.time.advance(3.0)
    assert not desk.leadership.fence.is_open()
    desk.known.set()
    await desk.time.advance(1.0)
    assert (desk.began_after_s, task.done()) == ([], False)
    await desk.time.advance(40.0)
    assert desk.leadership.leads()
    await end(task)


async def test_a_list_that_fails_is_asked_for_again(desk: Desk) -> None:
    """With a warning, and no term before it has succeeded."""
    desk.known.set()
    desk.fault = Unreachable("No answer.")
    task = desk.term()
    await desk.time.advance(1.0)
    assert not desk.leadership.leads()
    assert desk.warnings[0] == "Cannot read what was written before: No answer; trying again."
    desk.fault = None
    await desk.time.advance(3.0)
    assert desk.leadership.leads()
    await end(task)
    await settle()


async def test_release_ends_everything(desk: Desk) -> None:
    """The next one need not wait."""
    desk.known.set()
    task = desk.term()
    await desk.time.advance(1.0)
    await end(task)
    assert await desk.leadership.release()
    assert desk.server.holder == ""
    assert not await desk.leadership.release()
