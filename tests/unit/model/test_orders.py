"""Orders of an administrator: a gang is set aside, a reservation is dropped, preemption
is paused.
"""

from __future__ import annotations

from gangsched.model.orders import NO_ORDERS, Orders
from gangsched.model.protocol import Ordered
from gangsched.model.reasons import Reason
from gangsched.sentences import say
from gangsched.sentences.reserving import not_reserved
from tests.builders import members, node, pod
from tests.unit.state.preemption.test_nominations import HIGH, decide, full
from tests.unit.state.reserving.test_reservations import full as full_with_run_times
from tests.unit.state.reserving.test_reservations import gang_of
from tests.world import World


def order(world: World, orders: Orders) -> None:
    """The administrator orders this, and nothing else."""
    world.say(Ordered(orders))
    world.settle()


def test_a_gang_that_is_set_aside_waits_and_others_start() -> None:
    """Its pods say so; it starts as soon as the order is withdrawn, and what runs goes on."""
    world = World(node("a", 8), node("b", 8))
    order(world, Orders(set_aside=frozenset({"ns/g", "ns/unknown"})))
    world.create(members("g", 2, gpus=4))
    world.create(members("other", 2, gpus=4))
    world.settle()
    assert {name.split("-")[0] for name in world.bound()} == {"other"}
    refused = world.verdict("ns/g").told
    assert (refused.reason, say(refused).stable) == (
        Reason.PAUSED,
        "gang ns/g is set aside by an administrator",
    )

    order(world, Orders(set_aside=frozenset({"ns/other"})))
    assert {name.split("-")[0] for name in world.bound()} == {"other", "g"}


def test_capacity_is_no_longer_reserved_for_a_gang_that_is_named() -> None:
    """The reservation ends at once, the next gang gets one, and so does the first once the order is
    withdrawn.
    """
    world, _ = full_with_run_times()
    gang_of(world, "first", 2)
    world.settle()
    assert reserved(world) == ["ns/first"]

    order(world, Orders(unreserved=frozenset({"ns/first"})))
    assert reserved(world) == []
    ineligible = world.state.registry.groups["ns/first"].ineligible
    assert ineligible is not None
    assert (
        not_reserved(ineligible.why, namespace="ns") == "not reserved: an administrator ordered it"
    )
    gang_of(world, "second", 1)
    world.settle()
    assert reserved(world) == ["ns/second"]

    order(world, NO_ORDERS)
    world.advance(2)
    assert sorted(reserved(world)) == ["ns/first", "ns/second"]


def reserved(world: World) -> list[str]:
    """The groups that have a reservation, in order."""
    return [each.group for each in world.state.reservations.standing]


def test_preemption_that_is_paused_evicts_nobody() -> None:
    """The nomination ends, and the refusal names the administrator's reason."""
    world, low, high = full()
    decide(world, high, low)
    assert world.nominated()
    order(world, Orders(no_preemption="INC-7"))
    world.told()
    assert not world.nominated()
    assert world.evicted() == []
    assert (
        "Preemption: off, since an administrator paused preemption: INC-7."
        in say(world.verdict(HIGH).told).text
    )


def test_a_gang_that_was_refused_for_the_order_preempts_once_it_is_withdrawn() -> None:
    """No pod changes: the order alone wakes it, long before the safety net does."""
    world = World(node("a", 8), preempts=True)
    world.create(pod("low", gpus=8))
    world.settle()
    order(world, Orders(no_preemption="INC-7"))
    world.create(members("high", 1, gpus=8, priority=1_000))
    world.settle()
    assert set(world.bound()) == {"low"}
    order(world, NO_ORDERS)
    world.advance(40)
    assert set(world.bound()) == {"high-0"}
