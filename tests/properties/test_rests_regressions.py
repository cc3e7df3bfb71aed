"""What the histories of `rests` found: wake-ups that were lost (Q3, V11, V25), and plans without
end; one test each.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gangsched.api import keys
from gangsched.core.cycle import Limits
from gangsched.core.reservations.heads import empty_ledger, find_heads, head_of
from gangsched.core.work import OutOfWork, Work
from gangsched.model.gang import Placement
from gangsched.model.inter_pod import InterPodConstraints, PodTerm, Requirement
from gangsched.model.objects import ClaimUse, NodeSelectorTerm, Pod, PreferredTerm
from gangsched.model.preemption import HeldBack, PreemptionSettings, VictimScope
from gangsched.model.protocol import Applied
from gangsched.model.reservation import ReservationLimits, Reserved
from gangsched.model.storage import Claim, StorageClass
from gangsched.state.cluster import Cluster
from gangsched.state.group_record import QueueCause
from gangsched.state.preemption.hold_back_times import HoldingBack
from gangsched.state.reserving.compared import freed
from gangsched.state.rule_set import Rules
from tests.builders import (
    Records,
    gang,
    group,
    members,
    node,
    pod,
    pod_group,
    running,
    shape,
    snapshot,
)
from tests.world import EPOCH_S, World

RULES = replace(
    Rules(unattended=True),
    preemption=PreemptionSettings(scope=VictimScope.ALL, hold_back_s=0),
    reservations=ReservationLimits(reservations=0),
)


def test_a_nominated_pod_starts_beside_those_who_leave_for_it() -> None:
    """V11: its victim is gone, and another pod of the node has five minutes left; there is room for
    both.
    """
    world = World(node("a", 8, cpu_milli=16_000), rules=RULES, preempts=True)
    stays = pod("stays", gpus=0, cpu_milli=6_000, priority=1000, scheduler_name="other")
    world.create(running(stays, "a"), running(pod("low", gpus=8, priority=-1), "a"))
    world.leaving[stays.uid] = world.now_s + 300
    world.update(world.pods[stays.uid], deleting=True, deletion_s=world.wall_s() + 300)
    world.create(pod("high", gpus=8, cpu_milli=1_000, priority=10))
    world.advance(31)
    assert world.bound() == {"stays": "a", "high": "a"}


def test_a_nominated_gang_starts_where_a_node_comes_free_instead_of_the_one_it_waits_for() -> None:
    """V11: it has places on two nodes and has to wait for the third; a fourth one is enough."""
    world = World(*(node(name, 8) for name in "abcd"), rules=RULES, preempts=True)
    leaves, taken = (
        pod("leaves", gpus=8, scheduler_name="other"),
        pod("taken", gpus=8, priority=1000),
    )
    world.create(running(leaves, "c"), running(taken, "d"))
    world.leaving[leaves.uid] = world.now_s + 300
    world.update(world.pods[leaves.uid], deleting=True, deletion_s=world.wall_s() + 300)
    world.create(members("high", 3, gpus=8, priority=10))
    world.advance(1)
    assert world.pending() == {"high-0", "high-1", "high-2"}
    world.delete(taken)
    world.advance(1)
    assert set(world.bound().values()) == {"a", "b", "c", "d"}


@pytest.mark.parametrize("gpus", [4, 5])
def test_a_hold_is_lost_when_somebody_else_takes_its_room(gpus: int) -> None:
    """R3, F1: the group is planned for it, and not before something else happens to it."""
    world = World(node("a", 8), rules=RULES)
    world.create(members("holds", 2, gpus=4, mode="NonStrict"), running(pod("first", gpus=2), "a"))
    world.settle()
    assert len(world.held()) == 1
    world.create(running(pod("second", gpus=gpus - 2, scheduler_name="other"), "a"))
    world.settle()
    assert len(world.held()) == (1 if gpus == 4 else 0)


@pytest.mark.parametrize("whose", ["its own", "the other one's"])
def test_a_hold_is_lost_by_a_pod_on_another_node_of_the_domain(whose: str) -> None:
    """R3, F1: neither may run in the rack of the other, and only the other one's node changes."""
    rack = "example.com/rack"
    world = World(*(node(name, 8, labels={rack: "r"}) for name in "ab"), rules=RULES)
    others = {"its own": "other", "the other one's": "holds"}
    term = PodTerm(rack, (Requirement("app", "In", (others[whose],)),))
    apart = shape(6, inter_pod=InterPodConstraints(anti_affinity=(term,)))
    held, second = members("holds", 2, mode="NonStrict", labels={"app": "holds"})
    of = apart if whose == "its own" else shape(6)
    world.create(
        msgspec.structs.replace(held, shape=of),
        msgspec.structs.replace(second, shape=shape(8)),
        *(running(pod(f"on-{name}", scheduler_name="other"), name) for name in "ab"),
    )
    world.settle()
    (name,) = world.held().values()

    other = pod("other", scheduler_name="other", labels={"app": "other"})
    if whose != "its own":
        other = msgspec.structs.replace(other, shape=apart)

    world.create(running(other, "b" if name == "a" else "a"))
    world.settle()
    assert not world.held()


def test_a_node_that_is_avoided_is_looked_at_again_when_that_is_over() -> None:
    """V12: the nomination expired, for its victim is stuck; its back-off ends sooner, and that is
    in vain.
    """
    rules = replace(RULES, preemption=replace(RULES.preemption, max_wait_s=60), avoid_s=600.0)
    world = World(node("a", 8), rules=rules, preempts=True)
    (low,) = world.create(running(pod("low", gpus=8, priority=-1, grace_s=10_000), "a"))
    world.create(pod("high", gpus=8, priority=10))
    world.settle()
    world.leaving.clear()
    world.advance(400)
    group_id = "pod:ns/high"
    assert world.state.registry.groups[group_id].avoid
    world.delete(low)
    world.advance(900)
    assert world.bound() == {"high": "a"}


def reserved(at_s: float, *nodes: str) -> Reserved:
    """A reservation of one pod a node, or a fence."""
    places = tuple(Placement(pod("head", of=shape(4)), name) for name in nodes)
    return Reserved(
        group="ns/head",
        namespaces=frozenset({"ns"}),
        priority=0,
        since_s=0,
        run_time_s=60.0,
        at_s=at_s,
        nodes=tuple(dict.fromkeys(nodes)),
        placements=places if at_s < float("inf") else (),
    )


def test_who_was_kept_out_is_woken_where_a_reservation_keeps_less_of_the_same_nodes() -> None:
    """Q3: an earlier reservation may want fewer pods of a node, and one with a time less than a
    fence.
    """
    old, new = reserved(200.0, "a", "a", "b"), reserved(100.0, "a", "b", "b")
    assert freed([old], [new]) == {"a"}
    assert freed([new], [new]) == set()
    assert freed([reserved(float("inf"), "a", "b")], [old]) == {"a", "b"}
    lower = msgspec.structs.replace(new, priority=-1)
    assert freed([new], [lower]) == {"a", "b"}
    assert freed([lower], [new]) == set()


def test_a_hold_back_is_over_when_a_reservation_starts() -> None:
    """H5, V27: what is made in the turn of its head is what a plan without the head makes, or one
    drops the other's.
    """
    limits = ReservationLimits(share=1.0)
    world = World(node("a", 8), rules=Rules(reservations=limits), preempts=True)
    states = {each: ((keys.EXPECTED_RUNTIME, f"{each}s"),) for each in (50, 100)}
    given: dict[str, Any] = {"gpus": 8, "creation_s": world.wall_s()}
    world.create(pod("first", run_time_metadata=states[100], priority=1000, **given))
    world.settle()
    world.create(pod("low", run_time_metadata=states[50], **given))
    world.create(pod("high", run_time_metadata=states[50], priority=100, **given))
    world.settle()
    held_back, now_s = world.state.preemptions.holding_back.now(), EPOCH_S + world.now_s
    assert held_back is not None
    assert held_back.group == "pod:ns/high"
    told = [(each.group, each.at_s - now_s) for each in world.state.reservations.standing]
    assert told == [("pod:ns/high", 100.0), ("pod:ns/low", 150.0)]


def test_what_is_known_of_heads_is_kept_where_a_plan_has_no_work_left_for_the_next() -> None:
    """H3: else each plan finds out the same of the first ones, and the next plan comes at once."""
    empty = empty_ledger(snapshot([node("a", 8), node("b", 8)]), work=Work(10_000))
    groups = [
        group(gang(f"ns/{n}", [pod(f"{n}-{m}", gpus=8) for m in range(3)])) for n in range(40)
    ]
    heads = [head for each in groups if (head := head_of(each)) is not None]
    limits = ReservationLimits(per_namespace=99, reservations=99)
    _, others = find_heads(heads, empty, limits, wall_s=10_000.0, looks=99)
    assert 0 < len(others) < len(heads)
    with pytest.raises(OutOfWork):
        find_heads(heads, empty, limits, wall_s=10_000.0, looks=99)


def test_who_was_kept_off_what_one_plan_reserved_and_gave_up_is_looked_at_again() -> None:
    """H7, Q3: a younger gang has its time first, then the older one; all that the plan leaves is
    room for that one.
    """
    limits = ReservationLimits(share=0.5, reservations=1, fence_after_s=1e9)
    world = World(*(node(name, 8) for name in "abc"), rules=replace(RULES, reservations=limits))
    leaves, _ = world.create(
        running(pod("leaves", gpus=8), "a"), running(pod("stays", gpus=8), "c")
    )
    world.create(members("young", 2, gpus=8, creation_s=world.wall_s()))
    world.settle()
    world.leaving[leaves.uid] = world.now_s + 30
    world.update(leaves, deleting=True, deletion_s=world.wall_s() + 30)
    world.create(pod("old", gpus=8, namespace="other"))
    world.settle()
    assert world.bound()["old"] == "b"


def test_room_beside_what_is_promised_goes_to_those_behind_whom_it_is_promised_to() -> None:
    """Q3, V11: the nominated gang is woken for what comes free, and starts in its own part
    of that.
    """
    world = World(node("a", 8), rules=RULES, preempts=True)
    low = pod("low", gpus=8, priority=-1, grace_s=30)
    world.create(running(low, "a"))
    world.create(
        members("waits", 2, gpus=2, mode="NonStrict"), members("high", 3, gpus=2, priority=10)
    )
    world.advance(31)
    assert world.bound() == {"high-0": "a", "high-1": "a", "high-2": "a"}
    assert set(world.held().values()) == {"a"}


@pytest.mark.parametrize("how", ["closed", "smaller", "gone"])
def test_others_are_chosen_where_a_node_is_taken_away(how: str) -> None:
    """V25: three pods of the lowest priority are too many; two of a higher one on another node are
    not.
    """
    rules = replace(RULES, preemption=replace(RULES.preemption, max_pods=2))
    world = World(node("a", 8), node("b", 8), rules=rules, preempts=True)
    world.create(running(each, "a") for each in members("three", 3, gpus=2, min_member=3))
    world.create(running(pod("beside", gpus=2, priority=1000), "a"))
    world.create(running(pod(name, gpus=4, priority=5, grace_s=0), "b") for name in ("one", "two"))
    (high,) = world.create(pod("high", gpus=6, priority=10))
    world.advance(2)
    assert not world.ordered, (
        "the first choice is the one with the lowest priority, and that is not allowed"
    )
    if how == "gone":
        world.remove_node("a")
    elif how == "closed":
        world.add_nodes(msgspec.structs.replace(world.nodes["a"], unschedulable=True))
    else:
        world.add_nodes(node("a", 4))
    world.advance(2)
    assert world.bound().get(high.name) == "b"


def test_others_are_chosen_once_they_have_run_for_long_enough() -> None:
    """V5, V25: three pods are too many, and two of a lower priority are too young for half a minute
    more.
    """
    rules = replace(RULES, preemption=replace(RULES.preemption, max_pods=2, min_run_s=60))
    world = World(node("a", 8), node("b", 8), rules=rules, preempts=True)
    old_s, young_s = world.wall_s() - 1000, world.wall_s() - 30
    world.create(running(each, "a") for each in members("three", 3, gpus=2, start_s=old_s))
    world.create(running(pod("beside", gpus=2, priority=1000), "a"))
    world.create(
        running(pod(name, gpus=4, priority=-5, start_s=young_s, grace_s=0), "b")
        for name in ("one", "two")
    )
    world.create(pod("high", gpus=6, priority=10))
    world.advance(28)
    assert not world.ordered
    world.advance(4)
    assert world.bound().get("high") == "b"
    assert len(world.plans) < 6


def test_a_gang_is_looked_at_again_when_a_node_of_its_members_is_in_another_domain() -> None:
    """L5, Q3: its rack is required to be one, and the node that it runs on has moved to one with
    room.
    """
    rack = "example.com/rack"
    world = World(*(node(name, 8, labels={rack: f"r-{name}"}) for name in "ab"), rules=RULES)
    marked = [
        msgspec.structs.replace(
            each, gang_metadata=tuple(sorted((*each.gang_metadata, (keys.TOPOLOGY[0], rack))))
        )
        for each in members("g", 2, gpus=8, min_member=1)
    ]
    world.create(marked)
    world.settle()
    (taken,) = world.bound().values()
    (other,) = {"a", "b"} - {taken}
    world.add_nodes(node(taken, 8, labels={rack: f"r-{other}"}))
    world.settle()
    assert set(world.bound().values()) == {"a", "b"}


def test_a_lower_right_holds_fewer_back_from_the_same_nodes() -> None:
    """V27: those between the two are looked at when the first one's time is over."""
    cluster = Cluster()
    cluster.apply_node(node("a", 8))
    cluster.take_freed()
    holding_back, groups = HoldingBack(cluster, hold_back_s=60), Records()
    for at_s, group_id, right in ((0.0, "first", 100), (30.0, "second", 5)):
        group = groups[group_id]
        holding_back.wait(
            group, {"ns"}, HeldBack(group_id, right, ("a",), (0, 0, 1, int(at_s), group_id)), at_s
        )
        holding_back.look(at_s)
    assert cluster.take_freed() == set()
    holding_back.look(60.0)
    assert cluster.take_freed() == {"a"}


def test_a_reservation_stands_where_another_group_finds_no_time_for_one() -> None:
    """H12, H17: that group had none, so nothing comes free; else each look at it would make all
    others anew.
    """
    limits = ReservationLimits(share=1.0, fence_after_s=1e9)
    world = World(node("a", 8), node("b", 8), rules=replace(RULES, reservations=limits))
    states = ((keys.EXPECTED_RUNTIME, "1000s"),)
    world.create(
        running(pod("ends", gpus=8, run_time_metadata=states, start_s=world.wall_s()), "a")
    )
    world.create(running(pod("stays", gpus=8), "b"))
    world.create(pod("head", gpus=8))
    world.settle()
    world.plans.clear()
    world.create(
        each
        for name in ("two", "more")
        for each in members(name, 2, gpus=8, creation_s=world.wall_s())
    )
    world.settle()
    (planned,) = world.plans
    assert planned.reservations is not None
    assert planned.reservations.stale == frozenset()
    assert [each.group for each in world.state.reservations.standing] == ["pod:ns/head"]


def test_nothing_is_reserved_while_room_is_being_made() -> None:
    """H3: a NonStrict gang that is nominated was given a reservation in its turn, and each plan
    took it back.
    """
    rules = replace(RULES, reservations=ReservationLimits(share=1.0))
    world = World(node("a", 8), rules=rules, preempts=True)
    world.create(running(pod("low", gpus=8, priority=-1, grace_s=30), "a"))
    world.create(
        members("high", 1, gpus=8, mode="NonStrict", priority=10), members("waits", 1, gpus=8)
    )
    world.settle()
    assert [each.group for each in world.state.preemptions.nominations.all()] == ["ns/high"]
    world.plans.clear()
    for group_id in ("ns/high", "ns/waits"):
        world.state.queue.activate(group_id, QueueCause.CHANGED)
    world.settle()
    (planned,) = world.plans
    assert planned.reservations is not None
    assert planned.reservations.replaced == ()


def test_a_nominated_gang_starts_once_one_of_its_places_is_free_and_the_other_is_elsewhere() -> (
    None
):
    """V11: room on another node was there all the time and is not enough; one of its two victims
    goes earlier.
    """
    world = World(node("a", 4), node("b", 4), rules=RULES, preempts=True)
    low = members("low", 2, gpus=2, priority=-1, min_member=2)
    world.create(
        running(msgspec.structs.replace(each, grace_s=grace_s), "a")
        for each, grace_s in zip(low, (5, 30), strict=True)
    )
    world.create(running(pod("stays", gpus=2, priority=1000), "b"))
    world.create(members("high", 2, gpus=2, priority=10))
    world.advance(6)
    assert {name: at for name, at in world.bound().items() if name.startswith("high")} == {
        "high-0": "a",
        "high-1": "b",
    }


def test_a_nominated_pair_starts_with_other_members_than_those_who_were_promised_room() -> None:
    """V11: what is free first is too small for both places; a member that came later needs none of
    the GPUs.
    """
    world = World(node("a", 12), rules=RULES, preempts=True)
    world.create(
        running(pod(name, gpus=gpus, priority=-1, grace_s=grace_s), "a")
        for name, gpus, grace_s in (("small", 4, 5), ("large", 8, 30))
    )
    pair: dict[str, Any] = {"groups": ["ns/x", "ns/y"], "priority": 10, "min_member": 1}
    world.create(members("x", 1, gpus=4, **pair), members("y", 1, gpus=8, **pair))
    world.advance(2)
    (record,) = world.state.preemptions.nominations.all()
    assert {nominee.pod.name for nominee in record.nominees.values()} == {"x-0", "y-0"}
    (first,) = members("y", 1, gpus=0, **pair)
    world.create(msgspec.structs.replace(first, uid="ns/y-1", name="y-1"))
    world.advance(5)
    assert {name for name in world.bound() if name[0] in "xy"} == {"x-0", "y-1"}


def test_a_nominated_gang_that_had_its_minimum_is_made_whole_member_by_member() -> None:
    """V11, P3: no member waits for another; one of the two victims goes earlier."""
    world = World(node("b", 12), rules=RULES, preempts=True)
    first = world.create(members("high", 3, gpus=4, priority=10))
    world.settle()
    assert set(world.bound()) == {"high-0", "high-1", "high-2"}
    world.add_nodes(node("a", 8), node("b", 4))
    world.create(
        running(pod(name, gpus=4, priority=-1, grace_s=grace_s), "a")
        for name, grace_s in (("soon", 5), ("late", 60))
    )
    world.delete(*first[:2])
    world.create(members("high", 2, gpus=4, priority=10, first=3, min_member=3))
    world.advance(6)
    assert set(world.bound()) == {"high-2", "high-3", "late"}


def test_a_nonstrict_gang_preempts_after_others_have_done_the_work_of_a_plan() -> None:
    """V15, Q4: it has its turn at the end of a plan; there was no work left, and nothing woke it
    for the next one.
    """
    nodes = "abc"
    world = World(
        *(node(each, 8, cpu_milli=64_000) for each in nodes),
        rules=RULES,
        limits=Limits(work=6_000),
        preempts=True,
    )
    for each in nodes:
        world.create(
            running(pod(f"low-{each}", gpus=7), each),
            running(pod(f"stays-{each}", gpus=1, priority=5), each),
        )
    world.settle()
    in_vain = [pod(f"in-vain-{n}", gpus=8, cpu_milli=1_000 * n, priority=1) for n in range(1, 4)]
    world.create(
        *(members(f"high-{each}", 1, gpus=7, mode="NonStrict", priority=10) for each in nodes),
        in_vain,
    )
    world.advance(60)
    assert {"high-a-0", "high-b-0", "high-c-0"} <= world.bound().keys()


def test_a_hold_is_lost_when_what_is_left_beside_another_nomination_is_taken() -> None:
    """F1, R3: the hold fits beside all that runs there, and not beside the pod that another
    scheduler nominated.
    """
    world = World(node("a", 8), rules=RULES)
    nominee = pod("nominee", gpus=4, priority=5, scheduler_name="other")
    world.create(
        msgspec.structs.replace(nominee, nominated_node="a"),
        members("holds", 2, gpus=4, mode="NonStrict"),
    )
    world.settle()
    assert len(world.held()) == 1
    world.create(running(pod("foreign", gpus=4, scheduler_name="other"), "a"))
    world.settle()
    assert world.held() == {}


def test_a_hold_stays_beside_members_who_hold_what_they_were_promised() -> None:
    """V10, V16: others saw their room as taken twice, as what they hold and as what they were
    promised.
    """
    sizes = {"a": (4, 16_000), "b": (2, 4_000), "c": (0, 16_000)}
    nodes = (node(name, gpus, cpu_milli=cpus) for name, (gpus, cpus) in sizes.items())
    world = World(*nodes, rules=RULES, preempts=True)
    world.create(running(pod("stays", gpus=0, cpu_milli=16_000, priority=1000), "c"))
    for where, gpus, grace_s in (("a", 4, 0), ("b", 2, 60)):
        world.create(
            running(
                pod(f"low-{where}", gpus=gpus, cpu_milli=1_000, priority=-1, grace_s=grace_s), where
            )
        )
    world.create(members("waits", 2, gpus=0, cpu_milli=13_000, mode="NonStrict"))
    world.settle()
    assert world.held() == {"waits-0": "a"}
    world.create(members("high", 3, gpus=2, cpu_milli=1_000, mode="NonStrict", priority=10))
    world.advance(1)
    assert [each.group for each in world.state.preemptions.nominations.all()] == ["ns/high"]
    world.plans.clear()
    for group_id in ("ns/high", "ns/waits"):
        world.state.queue.activate(group_id, QueueCause.CHANGED)
    world.settle()
    assert [each.releases for made in world.plans for each in made.verdicts if each.releases] == []
    assert world.held() == {"waits-0": "a", "high-0": "a", "high-1": "a"}


def test_a_gang_whose_reservation_comes_before_the_one_that_kept_it_out_is_looked_at_again() -> (
    None
):
    """H4, H8, Q3: the first gang in the queue reserves three nodes in its turn; the pods of the
    next one are older.
    """
    limits = ReservationLimits(share=1.0, fence_after_s=1e9)
    world = World(*(node(name, 8) for name in "abc"), rules=replace(RULES, reservations=limits))
    stated = ((keys.EXPECTED_RUNTIME, "1000s"),)
    world.create(
        running(pod("ends", gpus=1, run_time_metadata=stated, start_s=world.wall_s()), "a")
    )
    world.declare(pod_group("wide", 3))
    wide = members("wide", 3, gpus=8, pod_group=True, creation_s=world.wall_s())
    world.create(wide, members("old", 2, gpus=8, min_member=1, creation_s=world.wall_s() - 90))
    world.settle()
    assert set(world.bound()) == {"ends", "old-0", "old-1"}
    assert len(world.plans) <= 4


def test_a_pod_preempts_where_the_cheapest_victim_is_the_one_it_must_run_beside() -> None:
    """V3, V9: no number of the cheapest victims helps, since the first of them is the one beside
    whom it may run.
    """
    rack = "example.com/rack"
    world = World(*(node(name, 8, labels={rack: "r"}) for name in "ab"), rules=RULES, preempts=True)
    young, old_s = world.wall_s(), world.wall_s() - 3_000
    beside = pod("beside", gpus=8, priority=-1, labels={"app": "y"}, start_s=young)
    world.create(
        running(beside, "a"),
        running(pod("low", gpus=8, priority=-1, grace_s=0, start_s=old_s), "b"),
    )
    near = InterPodConstraints(
        affinity=(PodTerm(topology_key=rack, selector=(Requirement("app", "In", ("y",)),)),)
    )
    world.create(pod("high", of=shape(8, inter_pod=near), priority=10))
    world.advance(2)
    assert world.bound() == {"beside": "a", "high": "b"}


def test_who_holds_the_place_of_another_member_leaves_it_its_own() -> None:
    """V10, V16: two members hold on the node of the third, which is nominated to theirs; nobody
    else gets that room.
    """
    world = World(
        node("a", 4, cpu_milli=16_000), node("b", 4, cpu_milli=4_000), rules=RULES, preempts=True
    )
    for where, grace_s in (("a", 0), ("b", 60)):
        world.create(
            running(
                pod(f"low-{where}", gpus=4, cpu_milli=1_000, priority=-1, grace_s=grace_s), where
            )
        )
    world.create(members("high", 3, gpus=2, cpu_milli=1_000, mode="NonStrict", priority=10))
    world.advance(1)
    assert world.held() == {"high-0": "a", "high-1": "a"}
    assert [
        each.nominated_node for each in world.pods.values() if each.name.startswith("high")
    ] == ["", "", "b"]
    world.create(pod("late", gpus=4, cpu_milli=1_000, priority=10))
    world.advance(60)
    assert world.bound() == {"high-0": "a", "high-1": "a", "high-2": "b"}


@pytest.mark.parametrize("work", range(100, 1_500, 100))
def test_who_may_have_a_reservation_is_found_out_once(
    work: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H3: where that takes most of a plan's work, the next plan makes reservations instead of
    finding it out again.
    """
    monkeypatch.setattr("gangsched.core.reservations.standing.WORK", work)
    monkeypatch.setattr("gangsched.core.reservations.heads.WORK", work * 3 // 4)
    limits = ReservationLimits(small_head_after_s=0.0, small_head_latest_s=0.0, fence_after_s=0.0)
    rules = replace(
        RULES, preemption=PreemptionSettings(scope=VictimScope.OFF), reservations=limits
    )
    world = World(node("a", 8), node("b", 8), rules=rules)
    world.create(*(running(pod(f"r{name}", gpus=8, scheduler_name="other"), name) for name in "ab"))
    for number in range(5):
        world.create(members(f"g{number}", 2 + number % 2, gpus=2 + number))
    world.advance(120)  # fails where plans go on without an end


def test_a_nominated_node_that_grows_has_room_at_once() -> None:
    """V11, Q3: the nominee no longer needs the room of its victim, which takes its time to end."""
    world = World(node("a", 8), rules=RULES, preempts=True)
    world.create(running(pod("low", gpus=2, priority=-1, grace_s=600), "a"))
    (high,) = world.create(pod("high", gpus=8, priority=10))
    world.advance(5)
    assert world.pods[high.uid].nominated_node == "a"
    assert world.pods[high.uid].node_name == ""
    world.add_nodes(node("a", 12))
    assert world.advance(1).bound()["high"] == "a"


def test_a_nominated_pod_starts_when_a_reservation_leaves_its_node() -> None:
    """V11, H8, Q3: an older gang that grows has a reservation there, until one of its own members
    is to end elsewhere; for others nothing is free there, since the room is promised to the pod.
    """
    limits = ReservationLimits(reservations=1, fence_after_s=0.0, small_head_after_s=0.0)
    rules = replace(RULES, reservations=limits)
    world = World(*(node(name, 8) for name in "ab"), rules=rules, preempts=True)
    world.create(running(pod("low", gpus=4, priority=-1, grace_s=1), "b"))
    world.create(pod("high", gpus=8, priority=100, namespace="other"))
    world.declare(pod_group("grown", 1))
    grown = world.create(members("grown", 2, gpus=8, pod_group=True, priority=100))
    world.advance(4)
    assert world.bound() == {"grown-0": "a"}

    world.leaving[grown[0].uid] = world.now_s + 300
    leaving = world.pods[grown[0].uid]
    world.update(leaving, deleting=True, deletion_s=world.wall_s() + 300)
    world.advance(1)
    assert world.bound()["high"] == "b"


@pytest.mark.parametrize("takes", ["holds", "waits for its claim"])
def test_the_next_in_line_gets_room_that_a_lower_priority_took_before_its_turn(takes: str) -> None:
    """Q3, D1: the first in line cannot use the freed room, and in the same plan those of lower
    priority take it, who need something else.
    """
    world = World(node("a", 8), node("b", 6), rules=RULES)
    world.controller = False
    for name, provisioner in (("nowhere", "kubernetes.io/no-provisioner"), ("late", "csi.test")):
        claim = Claim(namespace="ns", name=name, uid=name, storage_class=name, resource_version="5")
        world.say(Applied(StorageClass(name=name, provisioner=provisioner, waits=True)))
        world.say(Applied(claim))

    leaves = pod("leaves", gpus=8, scheduler_name="other")
    stays = pod("stays", gpus=6, scheduler_name="other")
    world.create(running(leaves, "a"), running(stays, "b"))
    world.create(members("first", 1, gpus=8, priority=5, claims=(ClaimUse("nowhere"),)))
    world.advance(1)
    world.create(members("next", 1, gpus=8, priority=5, creation_s=200))
    if takes == "holds":
        world.create(members("low", 2, gpus=6, mode="NonStrict"))
    else:
        world.create(members("low", 1, gpus=6, claims=(ClaimUse("late"),)))
    world.settle()

    world.delete(leaves)
    world.settle()
    assert world.bound() == {"next-0": "a", "stays": "b"}


def late_claim(world: World) -> None:
    """Nobody provisions the claim `late`."""
    world.controller = False
    claim = Claim(namespace="ns", name="late", uid="late", storage_class="late")
    world.say(Applied(StorageClass(name="late", provisioner="csi.test", waits=True)))
    world.say(Applied(claim))


def waits_for_claims(world: World) -> None:
    """A pod of low priority has 4 GPUs of node `a`, and waits for its claim."""
    late_claim(world)
    world.create(members("low", 1, gpus=4, claims=(ClaimUse("late"),)))


def test_room_beside_a_lower_priority_that_waits_for_claims_wakes_the_first_in_line() -> None:
    """Q3, D1: what comes free is enough together with what the other yields."""
    world = World(node("a", 8), rules=RULES)
    leaves = pod("leaves", gpus=4, scheduler_name="other")
    world.create(running(leaves, "a"))
    waits_for_claims(world)
    world.settle()
    world.create(members("high", 1, gpus=8, priority=5))
    world.settle()
    assert world.bound() == {"leaves": "a"}

    world.delete(leaves)
    world.settle()
    assert world.bound() == {"high-0": "a"}


def test_room_wakes_nobody_of_the_priority_of_those_that_wait_for_claims() -> None:
    """D1: they yield to higher priorities only, and others would be planned in vain each time."""
    world = World(node("a", 8), rules=RULES)
    leaves, stays = (pod(name, gpus=2, scheduler_name="other") for name in ("leaves", "stays"))
    world.create(running(leaves, "a"), running(stays, "a"))
    waits_for_claims(world)
    world.settle()
    world.create(members("equal", 1, gpus=8))
    world.settle()
    planned = len(world.plans)

    world.delete(leaves)
    world.settle()
    assert len(world.plans) == planned


def test_a_claim_that_is_written_wakes_those_to_whom_its_pod_yields_now() -> None:
    """Q3, D1: while it is written nobody knows what would have to be taken back, and other room
    came free meanwhile.
    """
    world = World(node("a", 8), rules=RULES)
    world.fate = lambda _: "later"
    leaves = pod("leaves", gpus=4, scheduler_name="other")
    world.create(running(leaves, "a"))
    waits_for_claims(world)
    world.settle()
    world.create(members("high", 1, gpus=8, priority=5))
    world.settle()
    world.delete(leaves)
    world.settle()
    assert world.bound() == {}

    world.fate = lambda _: "bound"
    world.settle()
    assert world.bound() == {"high-0": "a"}


def test_room_of_a_pod_that_leaves_is_promised_once_whoever_is_nominated_there_first() -> None:
    """V10: a pod leaves for a gang, a higher priority is nominated there as well, and in the same
    plan a third one was bound beside both as if the pod left twice; that bind was refused.
    """
    world = World(node("a", 8, cpu_milli=16_000), rules=RULES, preempts=True)
    leaves = pod("leaves", gpus=4, cpu_milli=2_000, priority=0)
    world.create(running(leaves, "a"))
    world.leaving[leaves.uid] = world.now_s + 300
    world.create(members("first", 2, gpus=4, cpu_milli=2_000, priority=5))
    world.settle()
    assert world.state.preemptions.nominations.all()

    world.create(
        pod("higher", gpus=8, cpu_milli=1_000, priority=10),
        pod("beside", gpus=0, cpu_milli=12_000, priority=0),
    )
    world.advance(600)
    assert world.bound() == {"higher": "a", "beside": "a"}


def test_a_place_whose_pod_has_room_elsewhere_is_free_to_those_decided_after_it() -> None:
    """V11: in the plan it was; until the next turn the last check kept it, and refused the bind."""
    rules = replace(RULES, preemption=replace(RULES.preemption, max_wait_s=600))
    world = World(node("a", 8), node("b", 3), rules=rules, preempts=True)
    stays, leaves = pod("stays", gpus=8), pod("leaves", gpus=3)
    world.create(running(stays, "a"), running(leaves, "b"))
    for victim in (stays, leaves):
        world.leaving[victim.uid] = world.now_s + 300

    large, small = members("first", 2, priority=5, mode="NonStrict")
    likes = PreferredTerm(100, NodeSelectorTerm((Requirement("tier", "In", ("new",)),)))
    world.create(
        msgspec.structs.replace(large, shape=shape(8)),
        msgspec.structs.replace(small, shape=shape(3, preferred=(likes,))),
    )
    world.settle()
    nominated = {pod.name: pod.nominated_node for pod in world.pods.values()}
    assert nominated == {"stays": "", "leaves": "", "first-0": "a", "first-1": "b"}

    world.delete(leaves)
    world.add_nodes(node("c", 3, labels={"tier": "new"}))
    world.create(pod("beside", gpus=3))
    world.settle()
    assert world.held() == {"first-1": "c"}
    assert world.bound() == {"stays": "a", "beside": "b"}


def terminates(world: World, *pods: Pod) -> None:
    """They run for some minutes yet."""
    for each in pods:
        world.leaving[each.uid] = world.now_s + 200
        deletion_s = world.wall_s() + 200
        world.update(world.pods[each.uid], deleting=True, deletion_s=deletion_s)

    world.settle()


def test_who_leaves_for_a_place_that_is_used_up_leaves_for_the_next_one() -> None:
    """V10, V11: of three places one was to be that of a pod which leaves, and is taken first, in
    room that came free; the room of the last is not kept from who started beside them.
    """
    world = World(node("a", 12), rules=RULES, preempts=True)
    leaves = pod("leaves", gpus=2, priority=-1, grace_s=300)
    first, second, stays = (
        pod(name, gpus=gpus, priority=1000)
        for name, gpus in (("first", 4), ("second", 2), ("stays", 4))
    )
    world.create(running(each, "a") for each in (leaves, first, second, stays))
    world.settle()
    terminates(world, first)
    world.create(members("nominated", 3, gpus=2, priority=100, mode="NonStrict"))
    world.settle()

    world.delete(first)
    world.delete(second)
    world.create(pod("beside", gpus=2, priority=100, creation_s=1))
    world.settle()
    assert "beside" in world.bound()
    assert world.held().keys() == {"nominated-0", "nominated-1"}


def test_who_leaves_does_so_for_the_highest_priority_first() -> None:
    """V10: a lower one was nominated before, and its place counts for nobody above it."""
    world = World(node("a", 10), rules=RULES, preempts=True)
    leaving = [pod(name, gpus=2, priority=-1) for name in ("one", "two")]
    stays = pod("stays", gpus=4, priority=1000)
    world.create(running(each, "a") for each in (*leaving, stays))
    world.settle()
    terminates(world, *leaving)
    world.create(pod("low", gpus=4, priority=5))
    world.settle()
    assert [each.group for each in world.state.snapshot().nominations] == ["pod:ns/low"]

    world.create(pod("starts", gpus=2, priority=100, creation_s=1))
    world.create(pod("high", gpus=4, priority=100))
    world.settle()
    assert world.bound()["starts"] == "a"
    assert [each.group for each in world.state.snapshot().nominations] == ["pod:ns/high"]


@pytest.mark.parametrize("how", ["held", "waits for claims"])
def test_room_of_a_group_whose_priority_falls_wakes_those_who_are_above_it_now(how: str) -> None:
    """Q3, D1: its member of the highest priority goes, which had no room; the other one's room is
    the same as before.
    """
    world = World(node("a", 8), node("full", 16), rules=RULES)
    world.create(running(pod("stays", gpus=16, scheduler_name="other"), "full"))
    stated: dict[str, Any] = {"mode": "NonStrict", "min_member": 2} if how == "held" else {}
    (high,) = members("mixed", 1, gpus=16, priority=100, **stated)
    (low,) = members("mixed", 1, first=1, gpus=4, **stated)
    if how == "waits for claims":
        late_claim(world)
        low = msgspec.structs.replace(low, claims=(ClaimUse("late"),))

    world.create(high, low)
    world.settle()
    world.create(pod("between", gpus=8, priority=50))
    world.settle()
    assert world.bound() == {"stays": "full"}

    world.delete(high)
    world.settle()
    assert world.bound() == {"stays": "full", "between": "a"}


@pytest.mark.parametrize("ends", [(1_000,), (1_000, 2_000)])
def test_a_head_whose_start_time_takes_too_much_work_to_find_gets_its_fence(
    ends: tuple[int, ...],
) -> None:
    """H5, H6: each plan ran out of work in the same place, a minute after the last one, for as long
    as nothing happened: with one end while looking for the nodes of a fence, with two for the time.
    """
    rack = "example.com/rack"
    limits = ReservationLimits(share=1.0, fence_after_s=0.0)
    world = World(
        node("a", 8, cpu_milli=16_000, labels={rack: "r"}),
        node("b", 12, cpu_milli=16_000, labels={rack: "r"}),
        node("c", 8, cpu_milli=16_000, labels={rack: "r"}),
        rules=replace(RULES, reservations=limits),
    )
    world.create(
        running(pod("stays-a", gpus=4, cpu_milli=2_000), "a"),
        running(pod("stays-b", gpus=8, cpu_milli=7_000), "b"),
    )
    for run_time_s in ends:
        ends_then = pod(
            f"ends-{run_time_s}",
            gpus=2,
            cpu_milli=6_000,
            run_time_metadata=((keys.EXPECTED_RUNTIME, f"{run_time_s}s"),),
            start_s=world.wall_s(),
        )
        world.create(running(ends_then, "a"))

    alone = InterPodConstraints(
        anti_affinity=(
            PodTerm(
                topology_key="kubernetes.io/hostname",
                selector=(Requirement("app", "In", ("y",)),),
            ),
        )
    )
    shapes = (
        shape(8, 1_000),
        shape(1, 4_000),
        shape(0, 6_000, inter_pod=alone),
        shape(0, 12_000),
        shape(4, 2_000),
    )
    waits = members("waits", 5, topology=rack, labels={"app": "y"})
    world.create(
        msgspec.structs.replace(each, shape=of) for each, of in zip(waits, shapes, strict=True)
    )
    world.advance(70)
    (reserved,) = world.state.reservations.standing
    assert (reserved.group, reserved.at_s) == ("ns/waits", math.inf)

    world.plans.clear()
    world.advance(300)
    assert len(world.plans) <= 5
