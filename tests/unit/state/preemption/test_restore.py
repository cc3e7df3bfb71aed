"""What a new process makes of the nominations of one that died (semantics V24)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.objects import Pod
from gangsched.model.preemption import BudgetRule, PreemptionSettings, UnitKind
from gangsched.model.protocol import Evict, PreparePreemption, Replaced
from tests.builders import NAMESPACE, members, node, pod, stamped
from tests.unit.state.preemption.decided import DecidedWorld
from tests.unit.state.preemption.test_nominations import HIGH, decide, full
from tests.world import World


def bind(world: DecidedWorld, low: list[Pod]) -> None:
    """The pods as a listing shows them."""
    for each in low:
        world.pods[each.uid] = stamped(world.pods[each.uid], 2)


@pytest.mark.parametrize("evictions", [0, 1, 2])
def test_a_preemption_is_finished_after_a_crash(evictions: int) -> None:
    """Nominated and marked, and some evictions sent: the others are sent again, and the group
    starts once.
    """
    world, low, high = full()
    bind(world, low)
    sent: list[Any] = []

    def fate(order: Any) -> str:
        if isinstance(order, Evict):
            sent.append(order)
            return "later" if len(sent) > evictions else "bound"
        return "bound"

    world.fate = fate
    decide(world, high, low)
    world.settle()
    world.restart()
    world.fate = lambda order: "bound"
    world.settle()
    assert all(world.pods[each.uid].deleting for each in low)
    world.advance(30)
    assert world.bound() == {"high-0": "a", "high-1": "b"}
    assert world.events("NominationLost") == []


@pytest.mark.parametrize(
    ("kind", "marked"), [(UnitKind.POD, 0), (UnitKind.CORE, 2), (UnitKind.SURPLUS, 2)]
)
def test_single_pods_are_evicted_without_a_mark_before(kind: UnitKind, marked: int) -> None:
    """V13 (2): a mark tells a restart which gangs to finish, and of single pods there is nothing to
    finish.
    """
    world, low, high = full()
    world.decide(HIGH, [(each, node) for each, node in zip(high, "ab", strict=True)], low, kind)
    world.turn()
    (order,) = (each for each in world.ordered if isinstance(each, PreparePreemption))
    assert len(order.victims) == marked


@pytest.mark.parametrize("evictions", [1, 2, 3])
@pytest.mark.parametrize("members_", [1, 2])
def test_a_crash_among_evictions_of_single_pods_evicts_nobody_in_vain(
    members_: int, evictions: int
) -> None:
    """They are not marked (V13): all is decided anew, and those already evicted are where the
    fewest are left.
    """
    world = World(*(node(name, 9) for name in "abcd"), preempts=True)
    world.create(pod(f"low-{n}", gpus=3, grace_s=20) for n in range(12))
    world.settle()
    sent: set[str] = set()

    def fate(order: Any) -> str:
        if isinstance(order, Evict):
            sent.add(order.uid)
            return "later" if len(sent) > evictions else "bound"
        return "bound"

    world.fate = fate
    world.create(members("high", members_, gpus=9, priority=1000))
    world.create([pod("also", gpus=3)])
    world.settle()
    assert len(sent) == 3 * members_
    world.restart()
    world.fate = lambda order: "bound"
    world.settle()
    assert sum(each.deleting for each in world.pods.values()) == 3 * members_
    world.advance(30)
    assert {"high-0", f"high-{members_ - 1}"} <= world.bound().keys()
    assert "also" in world.pending(), "it is of equal priority with those that went"


@pytest.mark.parametrize(
    ("rule", "allowed", "deletes"),
    [
        (BudgetRule.LAST_RESORT, 1, True),
        (BudgetRule.LAST_RESORT, 2, False),
        (BudgetRule.RESPECT, 1, False),
    ],
)
def test_victims_beyond_a_budget_are_deleted_after_a_crash_too(
    rule: BudgetRule, allowed: int, deletes: bool
) -> None:
    """V7, V24: nothing stores that a set breaks a budget; it does if more victims are left than the
    budget allows.
    """
    world, low, high = full()
    bind(world, low)
    world.fate = lambda order: "later" if isinstance(order, Evict) else "bound"
    decide(world, high, low)
    world.settle()
    world.rules = replace(world.rules, preemption=PreemptionSettings(budgets=rule))
    world.restart()
    budget = PodDisruptionBudget(namespace=NAMESPACE, name="b", selector=(), allowed=allowed)
    world.say(Replaced(PodDisruptionBudget, (budget,)))
    world.ordered.clear()
    world.settle()
    orders = [order for order in world.ordered if isinstance(order, Evict)]
    assert [order.name for order in orders] == ["low-0", "low-1"]
    assert {order.delete for order in orders} == {deletes}


def test_nothing_is_left_of_a_nomination_of_which_only_some_members_were_written() -> None:
    """The node is cleared, and nobody is evicted for it."""
    world, _, high = full()
    world.pods[high[0].uid] = world.update(high[0], nominated_node="a")
    world.restart()
    world.settle()
    assert world.pods[high[0].uid].nominated_node == ""
    assert world.evicted() == []
    assert not world.nominated()


def test_a_gang_of_which_only_a_part_was_marked_is_not_halved() -> None:
    """Killed between two marks: one of two members would do for the room, and neither
    is evicted.
    """
    world = DecidedWorld(node("a", 8))
    low = world.create(members("low", 2, gpus=4))
    world.settle()
    bind(world, low)
    high = world.create(members("high", 1, gpus=4, priority=1000))
    world.settle()
    world.update(high[0], nominated_node="a")
    world.update(world.pods[low[0].uid], disruption_target=True)
    world.restart()
    world.settle()
    assert world.evicted() == []
    assert world.bound().keys() == {"low-0", "low-1"}


def test_members_above_the_minimum_are_evicted_as_such() -> None:
    """A marked member of a gang that keeps its minimum is surplus again."""
    world = DecidedWorld(node("a", 8))
    low = world.create(members("low", 2, gpus=4, min_member=1))
    world.settle()
    bind(world, low)
    high = world.create(members("high", 1, gpus=4, priority=1000))
    world.settle()
    world.decide(HIGH, [(high[0], "a")], [low[1]], UnitKind.SURPLUS)
    world.fate = lambda order: "later" if isinstance(order, Evict) else "bound"
    world.settle()
    world.restart()
    world.fate = lambda order: "bound"
    world.advance(40)
    assert world.bound() == {"low-0": "a", "high-0": "a"}


def test_a_mark_that_has_fallen_back_evicts_nobody() -> None:
    """After 120 s a mark is False again: then all is decided anew."""
    world, low, high = full()
    bind(world, low)
    decide(world, high, low)
    world.fate = lambda order: "later" if isinstance(order, Evict) else "bound"
    world.settle()
    for each in low:
        world.update(world.pods[each.uid], disruption_target=False)
    world.restart()
    world.settle()
    assert world.bound().keys() == {"low-0", "low-1"}
    assert [world.pods[each.uid].nominated_node for each in high] == ["", ""]


def test_a_group_that_waits_for_leaving_pods_only_is_nominated_again() -> None:
    """All were evicted before the crash: nobody else is, and the room is kept."""
    world, low, high = full()
    bind(world, low)
    decide(world, high, low)
    world.settle()
    world.restart()
    world.ordered.clear()
    world.settle()
    thief = world.create(pod("thief", gpus=8))
    world.settle()
    assert world.nominated()
    assert set(world.evicted()) <= {"low-0", "low-1"}
    world.advance(30)
    assert world.bound().keys() == {"high-0", "high-1"}
    assert thief[0].name in world.pending()


def test_a_crash_after_any_write_starts_the_group_once() -> None:
    """Whatever order is the last one that is carried out, the end is the same, and only the victims
    are evicted.
    """

    def dies_after(number: int) -> Callable[[Any], str]:
        done: list[Any] = []

        def fate(order: Any) -> str:
            done.append(order)
            return "bound" if len(done) <= number else "later"

        return fate

    for number in range(8):
        world, low, high = full()
        bind(world, low)
        decide(world, high, low)
        world.fate = dies_after(number)
        world.settle()
        world.restart()
        world.fate = lambda order: "bound"
        world.settle()
        if not world.nominated():  # nothing of it was written
            assert number == 0
            assert world.bound().keys() == {"low-0", "low-1"}
            continue
        world.advance(60)
        assert world.bound().keys() == {"high-0", "high-1"}, f"after {number} writes"
        assert sum(isinstance(order, PreparePreemption) for order in world.ordered) <= 2
