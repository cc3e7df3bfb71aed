"""What is done with is gone at once, not when the garbage collector comes.

The collector looks at young objects after 30,000 net allocations and hardly ever at old ones
(`GC_THRESHOLDS`). Until then a cycle keeps all that it reaches: a ledger the snapshot of its plan,
a fault the request that it ended.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pytest

import gangsched
from gangsched.api.keys import EXPECTED_RUNTIME
from gangsched.kube.http.client import JSON
from gangsched.kube.http.faults import ApiFault, Unreachable
from gangsched.kube.write.binder import Binder
from gangsched.kube.write.outbox import Outbox
from gangsched.kube.write.writer import IsDue, Kind, Level
from gangsched.model.preemption import Preemption
from gangsched.model.protocol import Bind, BindGone, Message
from gangsched.model.reservation import ReservationLimits
from gangsched.state.rule_set import Rules
from tests.builders import members, node, pod_group
from tests.unit.kube.fakes import FakeBinds, FakeTime, serving
from tests.world import World

TIMES = 20
SEED = 7
OURS = str(Path(gangsched.__file__).parent)


@contextmanager
def nothing_for_the_collector() -> Iterator[None]:
    """Fail when the context leaves objects or frames of gangsched that only the garbage collector
    finds.
    """
    gc.collect()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found = Counter(name for name in map(_of_ours, gc.garbage) if name)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not found


def _of_ours(found: object) -> str:
    """The name of a type of ours, or of a function whose frame it is; "" for anything else."""
    if isinstance(found, FrameType):
        code = found.f_code
        return f"frame of {code.co_qualname}" if code.co_filename.startswith(OURS) else ""
    kind = type(found)
    return kind.__qualname__ if kind.__module__.startswith("gangsched.") else ""


def test_plans_leave_nothing_for_the_collector() -> None:
    """Gangs start, wait with reservations, preempt, hold, end and are deleted."""
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    rules = Rules(reservations=ReservationLimits(share=1.0))
    world = World(*(node(f"n{index}", 8) for index in range(6)), rules=rules, preempts=True)
    with nothing_for_the_collector():
        for number in range(60):
            name, size, gpus = f"g{number}", rng.randint(2, 4), rng.choice((1, 4, 8))
            priority, run_time = rng.choice((0, 0, 0, 1_000)), ((EXPECTED_RUNTIME, "1h"),)
            world.declare(pod_group(name, size))
            world.create(
                members(
                    name,
                    size,
                    gpus=gpus,
                    pod_group=True,
                    priority=priority,
                    run_time_metadata=run_time,
                )
            )
            world.advance(1.0)
            world.delete(
                *[pod for pod in world.pods.values() if pod.name.startswith(f"g{number - 6}-")]
            )
        assert any(plan.reservations and plan.reservations.standing for plan in world.plans)
        assert any(
            isinstance(each.preemption, Preemption)
            for plan in world.plans
            for each in plan.verdicts
        )
        world.plans.clear()


class _Order(NamedTuple):
    namespace: str
    name: str


class _Refused:
    """A writer whose objects are gone."""

    def due(self, order: _Order) -> IsDue:
        return IsDue.NOW

    async def write(self, order: _Order) -> None:
        raise ApiFault(404, "NotFound", f"{order.name} not found")


async def test_a_write_that_is_refused_leaves_nothing_for_the_collector() -> None:
    """The fault, its frames and the order."""
    time = FakeTime()
    outbox: Outbox[_Order] = Outbox(
        _Refused(),
        Kind(noun="orders", levels=(Level(patience_s=1.0, workers=1),)),
        urgent=(FakeBinds(time).in_flight,),
        runtime=time.runtime(),
    )
    task = asyncio.create_task(outbox.run())
    with nothing_for_the_collector():
        for number in range(TIMES):
            outbox.put(number, _Order("ns", f"o{number}"))
        await time.advance(60.0)
        assert outbox.counts.dropped == TIMES
    task.cancel()
    await asyncio.wait({task})


class _Lost:
    """An API server that answers no bind, and has no pods."""

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        timeout_s: float = 10.0,
    ) -> bytes:
        if method == "POST":
            raise Unreachable("No answer.")
        raise ApiFault(404, "NotFound", f"{path} not found")


async def test_a_bind_whose_answer_is_lost_leaves_nothing_for_the_collector() -> None:
    """The fault, its frames and the attempt."""
    time, outcomes = FakeTime(), list[Message]()
    binder = Binder(_Lost(), outcomes.append, runtime=time.runtime())
    task = asyncio.create_task(binder.run())
    with nothing_for_the_collector():
        binder.submit([Bind(f"u{number}", "ns", f"p{number}", "n1") for number in range(TIMES)])
        await time.advance(60.0)
        assert [type(each) for each in outcomes] == [BindGone] * TIMES
    task.cancel()
    await asyncio.wait({task})


async def test_a_request_that_is_refused_leaves_nothing_for_the_collector(tmp_path: Path) -> None:
    """The fault, the response and its connection's buffers; of requests and of watches."""
    async with serving(tmp_path) as (_, client):
        with nothing_for_the_collector():
            for _number in range(TIMES):
                with pytest.raises(ApiFault, match="nothing here"):
                    await client.request("GET", "/absent")
                with pytest.raises(ApiFault, match="nothing here"):
                    async for _chunk in client.chunks("/absent?watch=1", silence_s=5.0):
                        pass
