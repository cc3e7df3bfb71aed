"""The outbox: one state per order, turns between namespaces, rates, and no work while nothing can
be done.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from gangsched.kube.http.faults import ApiFault, Fault, Fenced
from gangsched.kube.write.outbox import ONLY_OF_UNBOUND, Outbox
from gangsched.kube.write.rate_limits import Rate, WriteBudget, WriteLimits
from gangsched.kube.write.writer import IsDue, Kind, Level
from tests.unit.kube.fakes import FakeBinds, FakeTime, running


class Order(NamedTuple):
    """What is written here."""

    namespace: str
    name: str


class Desk:
    """An outbox at work in fake time; `asked` are the orders it asked about, `written` those it
    wrote.
    """

    def __init__(
        self,
        limits: WriteLimits,
        capacity: int | None = None,
        final: frozenset[int] = frozenset(),
        levels: int = 1,
    ) -> None:
        self.time = FakeTime()
        self.binds = FakeBinds(self.time)
        self.warnings: list[str] = []
        self.asked: list[Order] = []
        self.written: list[Order] = []
        self.answer: dict[str, IsDue] = {}
        self.fault: Fault | None = None
        runtime = self.time.runtime(self.warnings.append)
        self.outbox: Outbox[Order] = Outbox(
            self,
            Kind(
                noun="orders",
                levels=(Level(patience_s=1.0, workers=4),) * levels,
                capacity=capacity,
                final=final,
            ),
            urgent=(self.binds.in_flight,),
            budget=WriteBudget(limits, runtime.now),
            level=lambda order: int(order.name == "minor") if levels > 1 else 0,
            runtime=runtime,
        )

    def due(self, order: Order) -> IsDue:
        self.asked.append(order)
        return self.answer.get(order.name, IsDue.NOW)

    async def write(self, order: Order) -> None:
        if self.fault is not None:
            raise self.fault
        self.written.append(order)


@asynccontextmanager
async def at_work(
    limits: WriteLimits = WriteLimits(),  # noqa: B008  (frozen)
    **kind: int | frozenset[int],
) -> AsyncIterator[Desk]:
    desk = Desk(limits, **kind)  # type: ignore[arg-type]
    async with running(desk.outbox.run()):
        yield desk


def put(desk: Desk, *orders: Order) -> None:
    for order in orders:
        desk.outbox.put(order, order)


async def test_namespaces_take_turns() -> None:
    """One tenant's backlog does not hold up another's first order."""
    async with at_work() as desk:
        desk.binds.begin()
        put(desk, *(Order("crowded", f"c{n}") for n in range(1000)), Order("quiet", "q"))
        desk.binds.end()
        await desk.time.advance(1)
        assert len(desk.written) == 1001
        assert desk.written.index(Order("quiet", "q")) < 3


async def test_a_namespace_has_a_rate_of_its_own() -> None:
    """Ten at once and ten a second of one namespace, whatever waits there; another one is not
    slowed down.
    """
    async with at_work(WriteLimits(namespace=Rate(10, 0.1))) as desk:
        put(desk, *(Order("crowded", f"c{n}") for n in range(100)))
        await desk.time.advance(0.05)
        assert len(desk.written) == 10
        put(desk, *(Order("quiet", f"q{n}") for n in range(10)))
        await desk.time.advance(0.001)
        assert len(desk.written) == 20
        await desk.time.advance(2)
        assert len(desk.written) == 40
        await desk.time.advance(7.5)
        assert len(desk.written) == 110


async def test_all_together_have_a_rate() -> None:
    """What all namespaces write has a bound, and they share it in turns."""
    async with at_work(WriteLimits(total=Rate(10, 0.1))) as desk:
        put(desk, *(Order(f"ns{n % 5}", f"o{n}") for n in range(100)))
        await desk.time.advance(1.05)
        assert len(desk.written) == 20
        assert {sum(order.namespace == f"ns{n}" for order in desk.written) for n in range(5)} == {4}


async def test_orders_whose_pods_are_being_bound_cost_nothing() -> None:
    """Each is asked about once and then again when its bind is answered, not every now and then."""
    async with at_work() as desk:
        orders = [Order("ns", f"o{n}") for n in range(5000)]
        desk.answer = {order.name: IsDue.AFTER_BIND for order in orders}
        put(desk, *orders)
        await desk.time.advance(600)
        assert len(desk.asked) == 5000
        desk.answer.clear()
        desk.outbox.answered(orders[7])
        desk.outbox.answered(Order("ns", "nobody"))
        await desk.time.advance(1)
        assert desk.written == [orders[7]]
        assert len(desk.asked) == 5001


async def test_a_full_outbox_drops_from_the_longest_namespace() -> None:
    """A tenant that floods the queue loses its own oldest orders."""
    async with at_work(capacity=10) as desk:
        desk.binds.begin()
        put(desk, Order("quiet", "q"), *(Order("crowded", f"c{n}") for n in range(50)))
        desk.binds.end()
        await desk.time.advance(1)
        assert sorted(desk.written) == [
            *sorted(Order("crowded", f"c{n}") for n in range(41, 50)),
            Order("quiet", "q"),
        ]
        assert desk.outbox.counts.dropped == 41


async def test_trouble_is_told_once() -> None:
    """Many orders with one trouble are one warning; a 404 that the API server did not say proves
    nothing.
    """
    async with at_work(final=frozenset({400})) as desk:
        desk.fault = ApiFault(404, "", "<html>no backend</html>", is_status=False)
        put(desk, *(Order("ns", f"o{n}") for n in range(20)))
        await desk.time.advance(30)
        assert desk.warnings == ["Cannot write orders: <html>no backend</html>; trying again."]
        desk.fault = None
        await desk.time.advance(30)
        assert len(desk.written) == 20


@pytest.mark.parametrize(
    "said",
    [
        "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: not before Monday",
        'admission webhook "w.example.com" denied the request: not before Monday',
        'admission webhook "w.example.com" denied the request without explanation',
    ],
)
async def test_what_admission_denies_is_written_once_it_may_be(said: str) -> None:
    """E1: a policy answers 422 if its author says nothing else, and it may go."""
    async with at_work(final=frozenset({422})) as desk:
        desk.fault = ApiFault(422, "Invalid", f'pods "o" is forbidden: {said}')
        put(desk, Order("ns", "o"))
        await desk.time.advance(60)
        assert (len(desk.warnings), desk.outbox.counts.dropped) == (1, 0)

        desk.fault = None
        await desk.time.advance(10)
        assert desk.written == [Order("ns", "o")]


async def test_shutdown_does_not_wait_for_rates() -> None:
    """Draining writes what is left without pauses and rates."""
    async with at_work(WriteLimits(namespace=Rate(1, 60.0))) as desk:
        put(desk, *(Order("ns", f"o{n}") for n in range(20)))
        await desk.time.advance(1)
        assert len(desk.written) == 1
        draining = asyncio.create_task(desk.outbox.drain(5))
        await desk.time.advance(1)
        assert await draining == 0
        assert len(desk.written) == 20


async def test_what_the_fence_held_back_is_dropped_silently() -> None:
    """Who leads now tells what is to be told; an order is not kept for the next term."""
    async with at_work() as desk:
        desk.fault = Fenced("not ours")
        put(desk, *(Order("ns", f"o{n}") for n in range(20)))
        await desk.time.advance(1)
        desk.fault = None
        await desk.time.advance(30)
        assert (desk.written, desk.warnings, len(desk.outbox)) == ([], [], 0)


VOID = [
    ApiFault(404, "NotFound", 'pods "a" not found'),
    ApiFault(
        403,
        "Forbidden",
        "unable to create new content in namespace x because it is being terminated",
    ),
    ApiFault(409, "Conflict", "Precondition failed: UID in precondition: a, UID in object meta: b"),
    ApiFault(
        422,
        "Invalid",
        f"ValidatingAdmissionPolicy 'gangsched-pod-status' denied request: {ONLY_OF_UNBOUND} (…)",
    ),
    Fenced("not ours"),
]


@pytest.mark.parametrize(
    "fault", VOID, ids=lambda fault: type(fault).__name__ + str(getattr(fault, "status", ""))
)
async def test_what_nobody_needs_any_more_is_no_fault(fault: Fault) -> None:
    """It is dropped at once, without a warning, and no alert counts it."""
    async with at_work() as desk:
        desk.fault = fault
        put(desk, Order("ns", "o"))
        await desk.time.advance(30)
        counts = desk.outbox.counts
        assert (counts.dropped, counts.faults, desk.warnings, len(desk.outbox)) == (1, 0, [], 0)


def test_the_admission_policy_says_what_the_outbox_looks_for() -> None:
    """Its words are in a manifest, and the outbox knows a pod that was bound meanwhile by them."""
    manifest = Path(__file__).parents[4] / "manifests" / "admission.yaml"
    assert ONLY_OF_UNBOUND in manifest.read_text()


@pytest.mark.parametrize("due", [IsDue.NOW, IsDue.NEVER])
async def test_an_order_that_changes_its_level_twice_is_done_once(due: IsDue) -> None:
    """It stands in the queue of its level twice then, and once in the other's."""
    async with at_work(levels=2) as desk:
        desk.answer["major"] = due
        desk.binds.begin()
        for name in ("major", "minor", "major"):
            desk.outbox.put("key", Order("ns", name))
        desk.binds.end()
        await desk.time.advance(3.0)
        assert desk.written == ([Order("ns", "major")] if due is IsDue.NOW else [])
        assert len(desk.outbox) == 0


async def test_an_order_that_changed_its_level_is_dropped_once() -> None:
    """A full outbox drops the oldest orders; what stands in two queues is one of them."""
    async with at_work(levels=2, capacity=2) as desk:
        desk.binds.begin()
        for name in ("major", "minor", "major", "minor"):
            desk.outbox.put("key", Order("ns", name))
        for number in range(4):
            desk.outbox.put(number, Order("ns", "minor"))
        assert len(desk.outbox) == 2
        desk.binds.end()
        await desk.time.advance(3.0)
        assert len(desk.written) == 2
