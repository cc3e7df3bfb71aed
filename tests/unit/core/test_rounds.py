"""Rounds and Permit: semantics R1 to R4, B1, B6."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gangsched.core import permit, rounds
from gangsched.core.cycle import plan
from gangsched.core.decision import decide
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Gang, Group, MatchPolicy, Mode
from gangsched.model.gpu_policy import PlacementConstraints
from gangsched.model.objects import Node, Pod
from gangsched.model.plan import RoundOutcome, Verdict
from gangsched.model.reasons import Reason
from gangsched.model.tree import Composite
from gangsched.sentences import say
from tests.builders import gang, group, holds, node, pod, shape, snapshot, verdict_on, where

FRAGMENTED = [node("a", 6), node("b", 2), node("c", 2), node("d", 2)]


def mixed(name: str) -> list[Pod]:
    """One member of 4 GPUs and three of 2: more pods than a node, of two shapes."""
    return [pod(f"{name}0", gpus=4), *(pod(f"{name}{n}", gpus=2) for n in (1, 2, 3))]


def decided(ours: Group, nodes: list[Node], *, now_s: float = 0.0) -> Verdict:
    """The verdict on one group; its holds occupy their nodes."""
    held = [(placement.pod, placement.node) for each in ours.gangs for placement in each.held]
    return verdict_on(plan(snapshot(nodes, held), [ours], now_s=now_s), ours.id)


def test_strict_gang_is_bound_whole() -> None:
    """R1, B1: a gang that fits is permitted in one round, all its members together."""
    verdict = decided(group(gang("ns/g", mixed("g")), rounds=4), FRAGMENTED)
    assert len(verdict.binds) == 4
    assert verdict.round is not None
    assert verdict.round.number == 5
    assert (verdict.round.present, verdict.round.attempted, verdict.round.placed) == (4, 4, 4)
    assert verdict.round.outcome is RoundOutcome.PERMITTED


def test_strict_gang_stops_at_the_first_member_it_cannot_spare() -> None:
    """R2: the round ends as soon as the rest cannot reach the minimum, and names the root cause and
    how far it came.
    """
    first, rest = [pod("g0", gpus=3)], [pod(f"g{n}", gpus=2) for n in range(1, 5)]
    verdict = decided(group(gang("ns/g", [*first, *rest])), [node("a", 6), node("b", 3)])
    assert verdict.reason is Reason.UNSCHEDULABLE
    assert (
        say(verdict.told).stable == "gang ns/g needs 5 pods; pod ns/g1 asks for 2 nvidia.com/gpu;"
        " not all found a node"
    ), "the same pod whoever's turn it was"
    assert (
        say(verdict.told).now == "4 of 5 could be placed, then no eligible node has 2 free. 9 of 9"
        " nvidia.com/gpu are free on the 2 nodes, at most 6 on one. After those, pod ns/g4: 0/2"
        " nodes are available: 2 Insufficient nvidia.com/gpu."
    )
    assert verdict.round is not None
    assert verdict.round.outcome is RoundOutcome.REFUSED
    assert not verdict.binds
    assert not verdict.holds


def test_strict_round_tries_nothing_after_the_first_member_it_cannot_spare() -> None:
    """R2: members behind the one that failed are not tried any more."""
    pods = [pod("g0", gpus=4), pod("g1", gpus=3), pod("g2", gpus=1)]
    verdict = decided(group(gang("ns/g", pods)), [node("a", 4), node("b", 1)])
    assert verdict.round is not None
    assert (verdict.round.present, verdict.round.attempted, verdict.round.placed) == (3, 2, 1)


def test_members_above_the_minimum_never_cause_a_refusal() -> None:
    """R2, B1: what fits above the minimum goes along, what does not is told alone."""
    verdict = decided(
        group(gang("ns/g", [pod(f"g{n}", gpus=2) for n in range(6)], 2)), [node("a", 8)]
    )
    assert verdict.reason is Reason.SCHEDULED
    assert set(where(verdict)) == {"g0", "g1", "g2", "g3"}
    assert [refusal.reason for _, refusal in verdict.notes] == [Reason.UNSCHEDULABLE] * 2


def test_refused_round_leaves_the_ledger_exactly_as_found() -> None:
    """R2: rollback gives back every resource of every gang of the group, on every node."""
    ledger = Ledger(snapshot([node("a", 6, cpu_milli=8000), node("b", 3, cpu_milli=8000)]))
    before = ledger.free.copy()
    a = gang("ns/a", [pod(f"a{n}", of=shape(2, 500, 2**20)) for n in range(2)])
    b = gang(
        "ns/b",
        [pod("b0", of=shape(3, 100)), pod("b1", of=shape(2, 100)), pod("b2", of=shape(2, 100))],
    )
    trial, round_ = rounds.run_round(group(a, b), [a, b], ledger)
    assert round_.outcome is RoundOutcome.REFUSED
    assert trial.placements, "the round must have placed something for this to prove anything"
    assert np.array_equal(ledger.free, before)


def test_refused_group_leaves_its_room_to_the_next_in_the_same_cycle() -> None:
    """R2, Q4: what a refused round had placed is free for the group behind it."""
    big = group(gang("ns/big", [*mixed("b"), pod("b9", gpus=6)]), priority=9)
    small = group(gang("ns/small", [pod(f"s{n}", gpus=2) for n in range(6)]))
    verdicts = plan(snapshot(FRAGMENTED), [big, small], now_s=0.0)
    assert not verdict_on(verdicts, "ns/big").binds
    assert len(verdict_on(verdicts, "ns/small").binds) == 6


def test_strict_group_rolls_back_the_sibling_too() -> None:
    """R2: a gang that fits is not bound when its sibling does not."""
    fits, does_not = (
        gang("ns/a", [pod("a", gpus=2)]),
        gang("ns/b", [pod("b0", gpus=3), pod("b1", gpus=4)]),
    )
    verdict = decided(group(fits, does_not), [node("a", 6), node("b", 2)])
    assert not verdict.binds
    assert not verdict.holds


def test_group_is_permitted_only_as_a_whole() -> None:
    """B1: all gangs of a group are bound together when each has its minimum."""
    verdict = decided(
        group(gang("ns/a", [pod("a", gpus=6)]), gang("ns/b", [pod("b", gpus=2)])), FRAGMENTED
    )
    assert where(verdict) == {"a": "a", "b": "b"}


def test_non_strict_members_that_fit_are_held() -> None:
    """R3: a member that does not fit has no effect on those that do; they hold their room."""
    pods = [pod(f"g{n}", gpus=4) for n in range(3)]
    occupied = pod("other", gpus=4)
    ours = group(gang("ns/g", pods, mode=Mode.NON_STRICT))
    verdict = verdict_on(
        plan(snapshot([node("a", 8), node("b", 4)], [(occupied, "b")]), [ours], now_s=0.0), "ns/g"
    )
    assert verdict.reason is Reason.HOLDING
    assert [placement.pod.name for placement in verdict.holds] == ["g0", "g1"]
    assert not verdict.binds
    assert {uid: refusal.reason for uid, refusal in verdict.notes} == {
        pods[0].uid: Reason.HOLDING,
        pods[1].uid: Reason.HOLDING,
        pods[2].uid: Reason.UNSCHEDULABLE,
    }
    assert "waiting for 1 more pod of ns/g" in say(verdict.told).text


def test_later_round_tries_the_rest_only_and_binds_the_holds_along() -> None:
    """R3, B1: held members are not placed again; when the rest fits, all are bound together."""
    pods = [pod(f"g{n}", gpus=4) for n in range(3)]
    ours = gang("ns/g", pods[2:], 3, mode=Mode.NON_STRICT, held=holds(pods[:2], "a", "a"))
    verdict = decided(group(ours, clock_started_s=0.0), [node("a", 8), node("b", 4)])
    assert where(verdict) == {"g0": "a", "g1": "a", "g2": "b"}
    assert verdict.round is not None
    assert (verdict.round.present, verdict.round.attempted) == (1, 1)


def test_one_strict_gang_makes_the_group_strict() -> None:
    """R3: in a mixed group nothing is held."""
    a = gang("ns/a", [pod(f"a{n}", gpus=2) for n in range(2)], mode=Mode.NON_STRICT)
    b = gang("ns/b", [pod("b0", gpus=3), pod("b1", gpus=4)])
    verdict = decided(group(a, b), [node("a", 6), node("b", 2)])
    assert not verdict.holds
    assert verdict.reason is Reason.UNSCHEDULABLE


def test_group_that_became_strict_gives_its_holds_back() -> None:
    """I5, T1: a group edited to Strict while it holds gives everything back; Strict groups hold
    nothing.
    """
    pods = [pod(f"g{n}", gpus=4) for n in range(3)]
    ours = gang("ns/g", pods[2:], 3, held=holds(pods[:2], "a", "a"))
    verdict = decided(group(ours, clock_started_s=0.0), [node("a", 8)])
    assert set(verdict.releases) == {pods[0].uid, pods[1].uid}
    assert not verdict.expired


def test_holds_of_a_gang_that_needs_no_permit_any_more_are_bound() -> None:
    """P3: a gang that was satisfied meanwhile binds what it holds, with or without the rest."""
    pods = [pod(f"g{n}", gpus=4) for n in range(3)]
    ours = gang(
        "ns/g",
        pods[2:],
        4,
        mode=Mode.NON_STRICT,
        held=holds(pods[:2], "a", "a"),
        bound=1,
        satisfied=True,
    )
    verdict = decided(group(ours, clock_started_s=0.0), [node("a", 8)])
    assert where(verdict) == {"g0": "a", "g1": "a"}


def test_hold_on_a_vanished_or_forbidden_node_is_given_back() -> None:
    """R3: a held node that is gone, cordoned, or shrank below its use gives the hold back."""
    pods = [pod(f"g{n}", gpus=4) for n in range(4)]
    ours = gang("ns/g", pods[3:], 4, mode=Mode.NON_STRICT, held=holds(pods[:3], "a", "b", "c"))
    nodes = [node("a", 8), node("b", 8, unschedulable=True), node("d", 8), node("e", 8)]
    verdict = decided(group(ours, clock_started_s=0.0), nodes)
    assert set(verdict.releases) == {pods[1].uid, pods[2].uid}
    shrunk = decided(group(ours, clock_started_s=0.0), [node("a", 3), node("b", 4), node("c", 4)])
    assert shrunk.releases == (pods[0].uid,)


@pytest.mark.parametrize(
    ("racks", "fields", "lost"),
    [
        ({"a": "r1", "b": "r1"}, {}, ["c"]),
        ({"a": "r1", "b": "r1", "c": "r2"}, {}, ["c"]),
        ({"a": "r1", "b": "r1", "c": "r2", "d": "r2"}, {"bound": 1, "nodes": ("d",)}, ["a", "b"]),
        ({"a": "r1", "b": "r1", "c": "r1"}, {}, []),
        ({}, {}, ["a", "b", "c"]),
    ],
)
def test_holds_that_labels_have_moved_out_of_the_required_rack_are_given_back(
    racks: dict[str, str], fields: dict[str, Any], lost: list[str]
) -> None:
    """R3: the rest starts in one rack, that of the members that run or, if none does, the one with
    most of what is held. Held room in another one went into a start that was never bound (fuzz
    seed 922658 of rests).
    """
    pods = [pod(f"g{n}", gpus=4) for n in range(4)]
    ours = gang(
        "ns/g",
        pods[3:],
        4,
        mode=Mode.NON_STRICT,
        held=holds(pods[:3], "a", "b", "c"),
        constraints=PlacementConstraints(topology=("rack",)),
        **fields,
    )
    nodes = []
    for name in "abcd":
        labels = {"rack": racks[name]} if name in racks else {}
        nodes.append(node(name, 8, labels=labels))

    verdict = decided(group(ours, clock_started_s=0.0), nodes)
    on = dict(zip("abc", pods, strict=False))
    assert set(verdict.releases) == {on[name].uid for name in lost}


@pytest.mark.parametrize(
    ("policy", "fields", "placed", "lacks"),
    [
        (MatchPolicy.ONCE_SATISFIED, {"bound": 2}, 1, 0),
        (MatchPolicy.ONCE_SATISFIED, {"bound": 1}, 1, 1),
        (MatchPolicy.ONCE_SATISFIED, {"satisfied": True}, 0, 0),
        (MatchPolicy.ONLY_WAITING, {"bound": 2, "satisfied": True}, 1, 2),
        (MatchPolicy.ONLY_WAITING, {}, 3, 0),
        (MatchPolicy.WAITING_AND_RUNNING, {"bound": 2, "satisfied": True}, 1, 0),
        (MatchPolicy.WAITING_AND_RUNNING, {"bound": 1, "satisfied": True}, 1, 1),
    ],
)
def test_permit_counts_by_match_policy(
    policy: MatchPolicy, fields: dict[str, Any], placed: int, lacks: int
) -> None:
    """B1: placed and held always count, bound ones but for only-waiting, a satisfied flag only for
    once-satisfied.
    """
    ours = gang("ns/g", min_member=3, match_policy=policy, **fields)
    assert permit.missing(ours, placed) == lacks
    assert permit.permitted([ours], {"ns/g": placed}) is (lacks == 0)


def test_held_members_count_at_permit() -> None:
    """B1: a hold is as good as a new placement."""
    pods = [pod("g0"), pod("g1")]
    ours = gang("ns/g", min_member=3, held=holds(pods, "a", "a"))
    assert permit.missing(ours, 1) == 0
    assert permit.missing(ours, 0) == 1


def test_terminating_members_do_not_count_at_permit() -> None:
    """P1, B1: a member on its way out neither makes the quorum nor stands in for one that finds no
    node.
    """
    short = decided(
        group(gang("ns/g", [pod(f"g{n}") for n in range(3)], terminating=1)), [node("a", 2)]
    )
    assert (short.reason, short.binds) == (Reason.UNSCHEDULABLE, ())
    few = decided(
        group(gang("ns/g", [pod(f"g{n}") for n in range(2)], 3, terminating=1)), [node("a", 8)]
    )
    assert few.reason is Reason.WAITING_FOR_MEMBERS


def test_succeeded_members_do_not_count_at_permit() -> None:
    """B1: finished members of a gang that is not satisfied do not count."""
    assert permit.missing(gang("ns/g", min_member=2, succeeded=2), 0) == 2


def test_nodes_that_rejected_a_member_are_avoided() -> None:
    """B6: a group keeps off a node whose kubelet rejected a member, and says so when that leaves
    none.
    """
    alone = gang("ns/g", [pod("g", gpus=1)])
    assert where(decided(group(alone, avoid=frozenset({"a"})), [node("a"), node("b")])) == {
        "g": "b"
    }
    verdict = decided(group(alone, avoid=frozenset({"a"})), [node("a")])
    assert "1 node(s) recently rejected a member of this gang" in say(verdict.told).text


def test_member_whose_bind_failed_goes_alone_whatever_the_policy() -> None:
    """B3: Permit let it through already, so a retry needs no gang."""
    policy = MatchPolicy.WAITING_AND_RUNNING
    ours = gang("ns/g", [], 4, bound=3, retry=(pod("r"),), satisfied=True, match_policy=policy)
    verdict = decided(group(ours), [node("a")])
    assert where(verdict) == {"r": "a"}
    assert verdict.reason is Reason.SCHEDULED


def test_retry_goes_although_new_members_must_wait() -> None:
    """B3: a retried member does not wait for a gang that cannot be permitted."""
    policy = MatchPolicy.ONLY_WAITING
    ours = gang(
        "ns/g", [pod("new")], 4, bound=3, retry=(pod("r"),), satisfied=True, match_policy=policy
    )
    verdict = decided(group(ours), [node("a")])
    assert where(verdict) == {"r": "a"}
    assert verdict.reason is Reason.WAITING_FOR_MEMBERS


@pytest.mark.parametrize("is_tree", [False, True])
def test_a_failed_member_leaves_the_only_node_of_another_gang(is_tree: bool) -> None:
    """B3: of two gangs whose binds failed, the one that may go anywhere does not take the room that
    the other one is bound to.
    """
    anywhere, only_there = pod("free"), pod("tied", of=shape(node_name="a"))
    begun: dict[str, Any] = {"bound": 1, "satisfied": True, "permitted_min": 2}
    gangs = [
        gang("ns/1", [], 2, retry=(anywhere,), **begun),
        gang("ns/2", [], 2, retry=(only_there,), **begun),
    ]
    tree = Composite("ns/t", ("ns/1", "ns/2"), 2) if is_tree else None
    verdict = decided(group(*gangs, tree=tree, broken=True), [node("a", 1), node("b", 1)])
    assert where(verdict) == {"free": "b", "tied": "a"}


def test_members_alone_are_woken_by_less_room_than_their_siblings_need() -> None:
    """Q3: of a group in which a whole gang and single members wait, room for one member is worth a
    look.
    """
    policy = MatchPolicy.ONLY_WAITING
    whole = gang(
        "ns/a", [pod(f"a{n}") for n in range(3)], 3, bound=3, satisfied=True, match_policy=policy
    )
    single = gang("ns/b", [pod("b0")], 1, satisfied=True)
    verdict = decided(group(whole, single), [node("n", 0)])
    assert [need.count for need in verdict.needs] == [0]


def test_gang_with_minimum_zero_is_members_alone() -> None:
    """I3: minimum 0 lets every member go by itself; when none fits, that is what is said."""
    pods = [pod("g0", gpus=8), pod("g1", gpus=8)]
    assert len(decided(group(gang("ns/g", pods, 0)), [node("a")]).binds) == 1
    verdict = decided(group(gang("ns/g", pods, 0)), [node("a", 4)])
    assert verdict.reason is Reason.UNSCHEDULABLE
    assert not verdict.binds


def test_round_always_closes_with_the_members_there_are() -> None:
    """R1: a total above the real members blocks nothing and ends nothing."""
    ours = Gang(id="ns/g", min_member=2, total=50, pending=(pod("g0"), pod("g1"), pod("g2")))
    verdict = decided(group(ours), [node("a")])
    assert len(verdict.binds) == 3


def test_decide_on_a_refusal_changes_nothing() -> None:
    """R2: a group refused by arithmetic or by its members leaves the ledger as found."""
    ledger, totals = (Ledger(snapshot([node("a")]), empty=empty) for empty in (False, True))
    before = ledger.free.copy()
    for ours in (gang("ns/g", [pod("g", gpus=9)]), gang("ns/h", [pod("h")], 2)):
        decide(group(ours), ledger, totals, now_s=0.0)
        assert np.array_equal(ledger.free, before)
