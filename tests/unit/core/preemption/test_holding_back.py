"""Groups of lower priority are held back for one that waits for room which it may preempt (V27)."""

from __future__ import annotations

import pytest

from gangsched.core.queue_sort import group_key
from gangsched.model.gang import Group
from gangsched.model.preemption import HeldBack, NotHelpful, Obstacle
from gangsched.sentences import say
from tests.builders import node, shape
from tests.running_cluster import RunningCluster, full_of_low, high


def crowded() -> RunningCluster:
    """Three nodes: one has a pod of high priority, one a pod of low priority, one is free."""
    cluster = RunningCluster([node("a"), node("b"), node("c")])
    cluster.run("peer", "a", gpus=8, priority=1000)
    cluster.run("low", "b", gpus=8, priority=1)
    return cluster


def late(priority: int = 1) -> Group:
    """A pod that would fit on the free node."""
    return high("ns/late", priority=priority)


def test_lower_group_does_not_start_where_it_would_be_evicted_soon() -> None:
    """V27: of three nodes that the gang needs one is still in use; what would take another one now
    waits.
    """
    verdicts = crowded().verdicts(high(number=3, gpus=8), late())
    found = verdicts["ns/high"].preemption
    assert isinstance(found, NotHelpful)
    assert (found.wanted, found.right) == (("a", "b", "c"), 1000)
    assert verdicts["ns/late"].binds == ()
    assert "temporarily reserved for a higher-priority gang" in say(verdicts["ns/late"].told).now


@pytest.mark.parametrize("number", [1, 2])
def test_a_gang_that_is_held_back_on_all_nodes_is_told_no_lasting_reason(number: int) -> None:
    """V27, E1: nodes are kept from it for a while; that none were eligible would send its owner to
    look at labels.
    """
    told = (
        crowded()
        .verdicts(high(number=3, gpus=8), high("ns/late", priority=1, number=number))["ns/late"]
        .told
    )
    assert "eligible" not in say(told).stable
    assert not told.never
    assert "3 node(s) are temporarily reserved for a higher-priority gang" in say(told).now


@pytest.mark.parametrize("priority", [1000, 2000])
def test_equal_and_higher_priority_is_not_held_back(priority: int) -> None:
    """V27: only what the group may preempt is held back."""
    assert crowded().verdicts(high(number=3, gpus=8), late(priority))["ns/late"].binds


def test_nobody_is_held_back_for_a_group_that_is_too_large() -> None:
    """V27: on empty nodes there would be no room for it either."""
    cluster = crowded()
    assert cluster.verdicts(high(number=4, gpus=8), late())["ns/late"].binds


def test_nobody_is_held_back_for_a_group_that_never_preempts() -> None:
    """V27: who preempts nobody takes nobody's room."""
    assert crowded().verdicts(high(number=3, gpus=8, never_preempts=True), late())["ns/late"].binds


def test_off_holds_nobody_back() -> None:
    """V27: with `hold_back_s` 0 all is as without the rule."""
    assert crowded().verdicts(high(number=3, gpus=8), late(), hold_back_s=0)["ns/late"].binds


def test_group_that_is_not_in_the_plan_is_remembered() -> None:
    """V27: the state says where others are held back for a group that nothing woke."""
    where = HeldBack("ns/high", 1000, ("c",), group_key(high(number=3, gpus=8)))
    assert not crowded().verdicts(late(), held_back=where)["ns/late"].binds


@pytest.mark.parametrize(("until_s", "binds"), [(-1.0, True), (1.0, False)])
def test_who_had_its_time_holds_nobody_back(until_s: float, binds: bool) -> None:
    """V27: else a group that waits for days would keep room unused for days."""
    waiting = high(number=3, gpus=8)
    verdicts = crowded().verdicts(waiting, late(), held_until_s={"ns/high": until_s})
    assert bool(verdicts["ns/late"].binds) is binds


def test_the_next_one_holds_others_back_when_the_first_starts() -> None:
    """V27: in the same plan, or what starts there would be evicted by the next one."""
    first, second = high(gpus=1, priority=2000), high("ns/second", 3, gpus=8, priority=900)
    where = HeldBack("ns/high", 2000, ("c",), group_key(first))
    verdicts = crowded().verdicts(first, second, late(), held_back=where)
    assert verdicts["ns/high"].binds
    assert not verdicts["ns/late"].binds


def test_only_the_first_that_waits_holds_others_back() -> None:
    """V27: one group at a time; what it may not use is open to others."""
    cluster = RunningCluster(
        [node("a", labels={"pool": "x"}), node("b", labels={"pool": "x"}), node("c")]
    )
    cluster.run("peer", "a", gpus=8, priority=1000)
    cluster.run("other", "c", gpus=4, priority=900)
    first = high(number=2, of=shape(8, node_selector=(("pool", "x"),)))
    second = high("ns/second", 3, gpus=8, priority=900)
    verdicts = cluster.verdicts(first, second, late(), lowest_waiting=1)
    assert [each.node for each in verdicts["ns/late"].binds] == ["c"]


def equals() -> RunningCluster:
    """Two nodes; a pod of high priority runs on one, the other is free."""
    cluster = RunningCluster([node("a"), node("b")])
    cluster.run("peer", "a", gpus=8, priority=1000)
    return cluster


def test_lower_group_waits_where_nothing_lower_runs() -> None:
    """V27: what a gang waits for may be in use by its equals alone."""
    verdicts = equals().verdicts(high(number=2, gpus=8), late(), lowest_waiting=1)
    found = verdicts["ns/high"].preemption
    assert isinstance(found, NotHelpful)
    assert (found.why, found.wanted) == (Obstacle.NOTHING_LOWER, ("a", "b"))
    assert not verdicts["ns/late"].binds


@pytest.mark.parametrize("lowest_waiting", [None, 1000])
def test_nothing_is_computed_where_nothing_lower_waits(lowest_waiting: int | None) -> None:
    """V25: where all priorities are equal preemption costs nothing."""
    verdict = equals().verdicts(high(number=2, gpus=8), lowest_waiting=lowest_waiting)["ns/high"]
    assert isinstance(verdict.preemption, NotHelpful)
    assert verdict.preemption.wanted == ()


def test_who_starts_holds_nobody_back() -> None:
    """V27: a gang that fits leaves the rest to others in the same plan."""
    fits = high(gpus=4)
    verdicts = crowded().verdicts(
        fits, late(), held_back=HeldBack("ns/high", 1000, ("c",), group_key(fits))
    )
    assert verdicts["ns/high"].binds
    assert verdicts["ns/late"].binds


def test_group_that_backs_off_holds_others_back() -> None:
    """V27: its next attempt would evict what starts until then."""
    cluster = full_of_low()
    cluster.pods.pop()
    cluster.gangs.clear()
    verdicts = cluster.verdicts(high(number=2, gpus=8), late(), retry_at_s={"ns/high": 29.5})
    assert verdicts["ns/late"].binds == ()


def test_nodes_that_the_group_may_not_use_are_open() -> None:
    """V27: a node of another pool is nothing to it."""
    cluster = RunningCluster(
        [node("a", labels={"pool": "x"}), node("b", labels={"pool": "x"}), node("c")]
    )
    cluster.run("peer", "a", gpus=8, priority=1000)
    cluster.run("low", "b", gpus=8, priority=1)
    verdicts = cluster.verdicts(high(number=2, of=shape(8, node_selector=(("pool", "x"),))), late())
    found = verdicts["ns/high"].preemption
    assert isinstance(found, NotHelpful)
    assert found.wanted == ("a", "b")
    assert [each.node for each in verdicts["ns/late"].binds] == ["c"]
