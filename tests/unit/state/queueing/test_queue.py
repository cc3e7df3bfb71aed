"""Who is looked at again, and when: semantics Q3, decision 8."""

from __future__ import annotations

from collections import Counter

import pytest

from gangsched.api import keys
from gangsched.core.cycle import Limits
from gangsched.model.plan import Need
from gangsched.state.group_record import QueueCause
from gangsched.state.queueing.parked import VisibleRoom
from gangsched.state.queueing.queue import SAFETY_NET_S, SPREAD, SWEPT_AT_ONCE, Queue
from gangsched.state.timers import DUE_AT_ONCE
from tests.builders import Records, gang_metadata, members, node, pod, shape, snapshot
from tests.world import World


def test_refused_group_is_not_looked_at_again_for_nothing() -> None:
    """Q3: as long as nothing changed there is no plan."""
    world = World(node("a", 1))
    world.create(members("g", 2))
    world.told()
    plans = len(world.plans)
    world.advance(30)
    assert len(world.plans) == plans


def test_freed_room_starts_a_waiting_gang_at_once() -> None:
    """Q3: in the very turn after a pod is gone, not after a poll."""
    world = World(node("a", 8))
    (old,) = world.create(pod("old", gpus=8, node_name="a"))
    world.create(members("g", 8))
    world.told()
    now_s = world.now_s
    world.delete(old)
    assert len(world.settle().bound()) == 8
    assert world.now_s == now_s


def test_node_that_opens_or_grows_wakes() -> None:
    """Q3: a node that is uncordoned, relabelled or grows is worth a look."""
    selective = shape(1, node_selector=(("zone", "z"),))
    for before, after in (
        (node("a", 8, unschedulable=True), node("a", 8)),
        (node("a", 1), node("a", 8)),
        (node("a", 8), node("a", 8, labels={"zone": "z"})),
    ):
        world = World(before)
        kind = selective if after.labels.get("zone") else shape(1)
        world.create(
            [pod(each.name, of=kind, gang_metadata=each.gang_metadata) for each in members("g", 2)]
        )
        assert not world.told().bound()
        world.add_nodes(after)
        assert len(world.settle().bound()) == 2


def test_only_groups_that_may_profit_are_woken() -> None:
    """Q3: of a thousand gangs that need more than there is, freed room wakes none."""
    world = World(node("a", 8))
    (old,) = world.create(pod("old", gpus=2, node_name="a"))
    for number in range(200):
        world.create(members(f"big{number}", 9))
    world.create(members("fits", 8, creation_s=999))
    world.told()
    tried = sum(proposal.pods_tried for proposal in world.plans)
    world.delete(old)
    world.settle()
    assert len(world.bound()) == 8
    assert sum(proposal.pods_tried for proposal in world.plans) - tried < 20


def test_gangs_of_one_rack_are_woken_by_room_in_a_rack_that_has_enough() -> None:
    """Q3: room in other racks and single nodes of a rack wake nobody; a rack that is large enough
    starts one gang.
    """
    world = World(
        *(node(f"{rack}{n}", 2, labels={"rack": rack}) for rack in "pq" for n in range(2))
    )
    olds = {
        each: world.create(pod(f"old-{each}", gpus=2, node_name=each))[0]
        for each in ("p0", "p1", "q0", "q1")
    }
    for number in range(20):
        marks = (*gang_metadata(f"g{number}", min_member=4), (keys.TOPOLOGY[0], "rack"))
        world.create(pod(f"g{number}-{n}", gang_metadata=marks) for n in range(4))
    world.told()
    plans = len(world.plans)
    for each in ("p0", "q0"):
        world.delete(olds[each])
        world.settle()
    assert len(world.plans) == plans, "there is room for 4, but in two racks"
    world.delete(olds["q1"])
    world.settle()
    assert sorted(node for name, node in world.bound().items() if "old" not in name) == [
        "q0",
        "q0",
        "q1",
        "q1",
    ]
    assert len(world.plans) <= plans + 2, "nobody else was woken"


def test_safety_net_looks_at_everything_every_minute() -> None:
    """Q3: whatever was missed is looked at after 60 s."""
    queue = Queue(Records())
    assert queue.ready(0.0) == set()
    queue.activate("g", QueueCause.CHANGED)
    queue.park("g", ())
    assert queue.ready(SAFETY_NET_S - 1) == set()
    assert queue.next_deadline_s() == SAFETY_NET_S
    assert queue.ready(SAFETY_NET_S) == {"g"}


def test_the_safety_net_is_due_at_its_deadline() -> None:
    """Also where a difference of times is rounded down: else the loop would turn without end until
    the clock moves.
    """
    queue, parked_s = Queue(Records()), 1000.1
    assert parked_s + SAFETY_NET_S - parked_s < SAFETY_NET_S
    queue.ready(parked_s)
    queue.park("g", ())
    due_s = queue.next_deadline_s()
    assert due_s is not None
    assert queue.ready(due_s) == {"g"}


def test_the_safety_net_looks_at_thousands_in_pieces() -> None:
    """Q3: not all in one turn; those parked first come first, and each has its next try 60 s after
    its last one.
    """
    queue = Queue(Records())
    queue.ready(0.0)
    names = [f"g{number:04}" for number in range(250)]
    for name in names:
        queue.park(name, ())
    seen: list[str] = []
    for _ in range(3):
        assert queue.next_deadline_s() == SAFETY_NET_S
        found = queue.ready(SAFETY_NET_S + 1)
        assert len(found) == min(SWEPT_AT_ONCE, 250 - len(seen))
        seen += sorted(found)
        for name in sorted(found):
            queue.park(name, ())
    assert seen == names
    assert queue.ready(SAFETY_NET_S + 1) == set()
    assert queue.next_deadline_s() == 2 * SAFETY_NET_S + 1


def test_wake_needs_room_for_the_whole_need() -> None:
    """Q3: a group that needs five pods' room is not woken by room for four."""
    for free, woken in ((4, set()), (5, {"g"})):
        queue = Queue(Records())
        queue.ready(0.0)
        queue.park("g", (Need(shape(1), 5),))
        queue.wake(VisibleRoom.alike(snapshot([node("a", free)])), {"a"})
        assert queue.ready(1.0) == woken


def test_groups_do_not_back_off_in_step() -> None:
    """B3: groups that failed at the same time are tried again at different times, however often
    they fail.
    """
    queue, failed_s = Queue(Records()), {f"ns/g{number}": 0.0 for number in range(50)}
    for longest_s in (1.0, 2.0, 4.0, 8.0, 10.0, 10.0):
        waits_s = []
        for group, at_s in failed_s.items():
            queue.back_off(group, at_s)
            waits_s.append(
                next(n / 100 for n in range(1_001) if not queue.backs_off(group, at_s + n / 100))
            )
            failed_s[group] += waits_s[-1]
        assert longest_s * (1 - SPREAD) <= min(waits_s) < longest_s * 0.7
        assert longest_s * 0.9 < max(waits_s) <= longest_s


@pytest.mark.parametrize("why", ["wakes", "has backed off"])
def test_of_groups_whose_time_comes_at_one_moment_a_turn_takes_some(why: str) -> None:
    """Q3: thousands may wait for the same moment; the turns at once after it take the others."""
    groups = Records()
    queue = Queue(groups)
    number = 2 * DUE_AT_ONCE + 1
    assert queue.ready(0.0) == set()
    for each in range(number):
        if why == "wakes":
            queue.park(f"g{each}", ())
            queue.wake_at(f"g{each}", 5.0)
        else:
            queue.set_aside(f"g{each}", 5.0)

    sizes = []
    while queue.next_deadline_s() <= 5.0:
        sizes.append(len(queue.ready(5.0)))

    assert sizes == [DUE_AT_ONCE, 2 * DUE_AT_ONCE, number]


def test_dropped_group_leaves_nothing_behind() -> None:
    """I6: a group that is gone is in no part of the queue."""
    groups = Records()
    queue = Queue(groups)
    queue.back_off("g", 0.0)
    queue.wake_at("g", 5.0)
    queue.drop(groups["g"])
    assert queue.ready(100.0) == set()
    assert queue.sizes() == {"active": 0, "backoff": 0, "parked": 0}


def test_groups_beyond_the_limits_follow_in_the_next_plans() -> None:
    """Decision 8: what a plan left over is planned next, nobody is lost."""
    world = World(node("a", 100), limits=Limits(groups=2))
    for number in range(7):
        world.create(members(f"g{number}", 3))
    assert len(world.settle().bound()) == 21
    assert len(world.plans) >= 4


def test_holders_elsewhere_make_nobody_look_again() -> None:
    """Q3, D1: what others take on nodes that a gang may not use is nothing to it, whether it holds
    or not.
    """
    world = World(node("a", 5), node("x", 9), preempts=True)
    ours, theirs = (shape(1, node_selector=(("kubernetes.io/hostname", name),)) for name in "ax")
    world.create(pod("there", node_name="a"))
    blockers = world.create(pod(f"b{n}", node_name="x") for n in range(9))
    world.create(
        members("holds", 5, of=ours, mode="NonStrict"), members("strict", 6, of=ours, priority=9)
    )
    world.settle()
    assert len(world.held()) == 4
    world.create(members("other", 9, of=theirs, mode="NonStrict"))
    world.settle()
    world.plans.clear()
    for blocker in blockers[:6]:
        world.delete(blocker)
        world.settle()
    looked_at = Counter(verdict.group for plan in world.plans for verdict in plan.verdicts)
    assert looked_at["ns/other"] >= 6
    assert looked_at["ns/holds"] == looked_at["ns/strict"] == 0
