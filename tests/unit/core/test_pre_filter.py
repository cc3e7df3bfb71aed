"""Refusals before any node is looked at: semantics P1 to P4, I2, I4, T3."""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.core.cycle import plan
from gangsched.model.gang import Gang, MatchPolicy, Mode, Refusal
from gangsched.model.gpu_policy import SHARING_LABEL
from gangsched.model.objects import Node, Pod
from gangsched.model.plan import Need, Verdict
from gangsched.model.reasons import Reason
from gangsched.model.verdict_facts import Worded
from gangsched.sentences import say
from tests.builders import (
    amounts,
    gang,
    group,
    holds,
    node,
    pod,
    shape,
    snapshot,
    verdict_on,
    where,
)

NODES = [node("a", 8), node("b", 8)]


def decide(*gangs: Gang, nodes: list[Node] = NODES, **fields: Any) -> Verdict:
    """The verdict on one group of these gangs."""
    ours = group(*gangs, **fields)
    return verdict_on(plan(snapshot(nodes), [ours], now_s=0.0), ours.id)


def pods(name: str, number: int, gpus: int = 1) -> list[Pod]:
    """`number` pending pods."""
    return [pod(f"{name}{n}", gpus=gpus) for n in range(number)]


def test_gang_waits_for_its_members_with_counts() -> None:
    """P1: fewer live ungated members than the minimum is refused with the counts, and no round is
    used up.
    """
    verdict = decide(gang("ns/g", pods("g", 3), 5, gated=1, terminating=2, foreign=("ns/x",)))
    assert verdict.reason is Reason.WAITING_FOR_MEMBERS
    assert (
        say(verdict.told).text
        == "waiting for members of gang ns/g: 3 of 5 are ready; 1 is gated; 1 has another"
        " schedulerName; 2 are being deleted and do not count"
    )
    assert verdict.round is None
    assert verdict.needs == ()


def test_bound_members_count_towards_the_quorum() -> None:
    """P1: bound and pending members together make the quorum."""
    assert len(decide(gang("ns/g", pods("g", 2), 5, bound=3)).binds) == 2


@pytest.mark.parametrize(
    ("policy", "satisfied", "reason"),
    [
        (MatchPolicy.ONCE_SATISFIED, True, Reason.SCHEDULED),
        (MatchPolicy.ONCE_SATISFIED, False, Reason.WAITING_FOR_MEMBERS),
        (MatchPolicy.WAITING_AND_RUNNING, True, Reason.WAITING_FOR_MEMBERS),
    ],
)
def test_succeeded_members_count_only_once_satisfied(
    policy: MatchPolicy, satisfied: bool, reason: Reason
) -> None:
    """P1: finished members are a quorum only for a satisfied gang whose match policy is
    once-satisfied.
    """
    verdict = decide(
        gang("ns/g", pods("g", 1), 3, succeeded=2, satisfied=satisfied, match_policy=policy)
    )
    assert verdict.reason is reason


def test_uninitialised_gang_is_refused_with_its_own_reason() -> None:
    """I2, P1: a gang whose PodGroup does not exist says so."""
    verdict = decide(
        gang(
            "ns/g",
            pods("g", 1),
            uninitialised=Refusal(Reason.POD_GROUP_MISSING, Worded("no PodGroup")),
        )
    )
    assert (verdict.reason, say(verdict.told).text) == (Reason.POD_GROUP_MISSING, "no PodGroup")


def test_siblings_wait_for_the_gang_that_is_not_ready() -> None:
    """P1: one gang that is not ready refuses the group; the others are told whom they wait for."""
    verdict = decide(gang("ns/a", pods("a", 2)), gang("ns/b", pods("b", 1), 3))
    told = dict(verdict.gangs)
    assert told["ns/b"].reason is Reason.WAITING_FOR_MEMBERS
    assert told["ns/a"].reason is Reason.WAITING_FOR_GANG
    assert "ns/b" in say(told["ns/a"]).stable
    assert "1 of 3" in say(told["ns/a"]).now
    assert verdict.reason is Reason.WAITING_FOR_MEMBERS, "the group's own reason is the cause"
    assert not verdict.binds


def test_faulty_declaration_refuses_every_gang_of_the_group() -> None:
    """I4: a group that is not declared symmetrically is refused with what is wrong."""
    verdict = decide(
        gang("ns/a", pods("a", 1)), refusal=Refusal(Reason.INVALID_GANG, Worded("lists ns/b"))
    )
    assert (verdict.reason, say(verdict.told).text) == (Reason.INVALID_GANG, "lists ns/b")


def test_timed_out_members_refuse_the_group() -> None:
    """P2, T3: one member with the timeout annotation stops its gang and its siblings."""
    verdict = decide(gang("ns/a", pods("a", 1)), gang("ns/b", pods("b", 1), timed_out=("ns/b0",)))
    told = dict(verdict.gangs)
    assert told["ns/b"].reason is Reason.TIMED_OUT
    assert told["ns/a"].reason is Reason.WAITING_FOR_GANG
    assert not verdict.binds


def test_satisfied_gang_places_members_alone() -> None:
    """P3: once satisfied, each member goes as a plain pod, those that do not fit are told alone."""
    verdict = decide(gang("ns/g", pods("g", 3, gpus=8), 9, satisfied=True))
    assert where(verdict) == {"g0": "a", "g1": "b"}
    ((_, note),) = verdict.notes
    assert note.reason is Reason.UNSCHEDULABLE
    assert say(note).stable == "pod ns/g2 asks for 8 nvidia.com/gpu; no node takes it"
    assert (
        say(note).now
        == "no eligible node has 8 free. 0/2 nodes are available: 2 Insufficient nvidia.com/gpu. 0"
        " of 16 nvidia.com/gpu"
        " are free on the 2 nodes."
    )


def test_satisfied_gang_does_not_wait_for_a_sibling() -> None:
    """P3: members of a satisfied gang go alone while its sibling waits; each gang is told what is
    true of it.
    """
    verdict = decide(
        gang("ns/a", pods("a", 3, gpus=8), 2, satisfied=True), gang("ns/b", pods("b", 1), 3)
    )
    assert where(verdict) == {"a0": "a", "a1": "b"}
    assert verdict.reason is Reason.WAITING_FOR_MEMBERS
    told = dict(verdict.gangs)
    assert told["ns/a"].reason is Reason.UNSCHEDULABLE
    assert told["ns/b"].reason is Reason.WAITING_FOR_MEMBERS
    assert [need.count for need in verdict.needs] == [1], "room for one helps"
    all_placed = decide(
        gang("ns/a", pods("a", 1), 2, satisfied=True), gang("ns/b", pods("b", 1), 3)
    )
    assert dict(all_placed.gangs)["ns/a"].reason is Reason.SCHEDULED


@pytest.mark.parametrize(
    ("reason", "bound"), [(Reason.WAITING_FOR_GANG, 1), (Reason.INVALID_GANG, 0)]
)
def test_satisfied_gang_goes_on_when_its_sibling_is_gone(reason: Reason, bound: int) -> None:
    """P3, I4: a sibling that does not exist (any more) stops no satisfied gang; a list without
    consent does.
    """
    verdict = decide(
        gang("ns/a", pods("a", 1), 2, satisfied=True), refusal=Refusal(reason, Worded("about ns/b"))
    )
    assert (verdict.reason, len(verdict.binds)) == (reason, bound)


def test_satisfied_gang_waits_when_its_group_timed_out_or_it_has_no_settings() -> None:
    """P2, P3, I5: the timeout stops every gang of the group, a missing PodGroup the gang itself."""
    timed_out = decide(
        gang("ns/a", pods("a", 1), satisfied=True), gang("ns/b", timed_out=("ns/b0",))
    )
    assert (timed_out.reason, timed_out.binds) == (Reason.TIMED_OUT, ())
    no_settings = Refusal(Reason.POD_GROUP_MISSING, Worded("no PodGroup"))
    without = gang("ns/a", pods("a", 1), satisfied=True, uninitialised=no_settings)
    missing = decide(without, gang("ns/b", pods("b", 1), satisfied=True))
    assert set(where(missing)) == {"b0"}
    assert say(missing.of_gang("ns/a")).text == say(no_settings).text


def test_retried_member_does_not_wait_for_a_quorum() -> None:
    """B3, P1: what Permit let through goes on, though a member was deleted meanwhile and the gang
    waits for another.
    """
    policy = MatchPolicy.WAITING_AND_RUNNING
    ours = gang(
        "ns/g", pods("g", 1), 4, bound=1, retry=(pod("r"),), satisfied=True, match_policy=policy
    )
    verdict = decide(ours)
    assert (verdict.reason, set(where(verdict))) == (Reason.WAITING_FOR_MEMBERS, {"r"})


def test_hold_on_a_node_that_closed_to_its_gang_counts_as_room() -> None:
    """P4, I5: after an edit of what a gang asks of GPUs its holds stay where they are, and the rest
    is looked for.
    """
    shared = node("s", 2, labels={SHARING_LABEL: "time-slicing"})
    held = holds([pod("h0"), pod("h1")], "s", "s")
    ours = gang("ns/g", pods("g", 1, gpus=2), 3, held=held, mode=Mode.NON_STRICT)
    assert len(decide(ours, nodes=[shared, node("a", 2)]).binds) == 3
    verdict = decide(ours, nodes=[shared, node("a", 0)])
    assert (verdict.reason, verdict.releases) == (Reason.UNSCHEDULABLE, ())
    assert "gang ns/g can never start: each pod asks for 1 nvidia" in say(verdict.told).stable


def test_satisfied_gang_of_another_policy_is_still_a_gang() -> None:
    """P3: only match policy once-satisfied sets members free."""
    policy = MatchPolicy.ONLY_WAITING
    verdict = decide(gang("ns/g", pods("g", 3, gpus=8), satisfied=True, match_policy=policy))
    assert verdict.reason is Reason.UNSCHEDULABLE
    assert not verdict.binds


def test_room_is_counted_in_whole_pods() -> None:
    """P4: two nodes with 6 and 2 free GPUs take no pod of 8; the sum of GPUs is not what counts."""
    verdict = decide(gang("ns/g", pods("g", 1, gpus=8)), nodes=[node("a", 6), node("b", 2)])
    assert verdict.reason is Reason.UNSCHEDULABLE
    assert "each pod asks for 8 nvidia.com/gpu, and no" in say(verdict.told).stable
    assert verdict.round is None


def test_arithmetic_names_the_need_that_wakes_the_group() -> None:
    """P4, Q3: a refused gang of one shape says how many pods must have room before it is worth a
    look.
    """
    verdict = decide(gang("ns/g", pods("g", 5, gpus=4)))
    assert verdict.needs == (Need(shape(4), 5),)


@pytest.mark.parametrize("minimum", [4, 3, 2])
def test_a_gang_of_two_shapes_needs_of_each_what_the_others_cannot_replace(minimum: int) -> None:
    """Q3: with a minimum of 4 there must be room for the large pod; if it may be absent, for fewer
    of the small.

    First of those that it was refused for: of many needs only that one is watched.
    """
    members = [pod("large", gpus=16), *pods("small", 3, gpus=8)]
    needs = {4: (1, 3), 3: (0, 2), 2: (0, 1)}[minimum]
    verdict = decide(gang("ns/g", members, minimum), nodes=[node("a", 7), node("b", 7)])
    assert verdict.needs == (Need(shape(8), needs[1]), Need(shape(16), needs[0]))


def test_the_same_holds_when_a_round_was_refused() -> None:
    """Q3: each shape fits by itself, but not all of them together."""
    members = [pod("large", gpus=8), *pods("small", 3, gpus=3)]
    verdict = decide(gang("ns/g", members, 4), nodes=[node("a", 8), node("b", 8)])
    assert verdict.round is not None
    assert verdict.needs == (Need(shape(3), 3), Need(shape(8), 1))


def test_min_resources_are_needed_beside_the_minimum() -> None:
    """P4: minResources not free in sum refuse a gang whose minimum alone would fit, with what is
    missing.
    """
    verdict = decide(
        gang("ns/g", pods("g", 4, gpus=4), 1, min_resources=amounts(gpus=20, cpu_milli=1000))
    )
    assert verdict.reason is Reason.UNSCHEDULABLE
    assert (
        say(verdict.told).text
        == "gang ns/g can never start: its minResources are 1 cpu and 20 nvidia.com/gpu, and the"
        " eligible nodes have 16 nvidia.com/gpu even when empty. 4 nvidia.com/gpu missing now."
    )
    assert not verdict.binds


def test_min_resources_count_only_nodes_the_members_may_use() -> None:
    """P4: free room on nodes that Filter refuses does not help."""
    cordoned = [node("a", 8), node("b", 8, unschedulable=True)]
    assert not decide(
        gang("ns/g", pods("g", 1), min_resources=amounts(gpus=9)), nodes=cordoned
    ).binds
    assert decide(gang("ns/g", pods("g", 1), min_resources=amounts(gpus=8)), nodes=cordoned).binds


def test_non_strict_gang_is_held_against_the_empty_cluster() -> None:
    """P4 (decision 11): a NonStrict gang may begin to hold in a full cluster that is big enough
    when empty.
    """
    held_by_others = [(pod("other", gpus=8), "a")]
    ours = group(gang("ns/g", pods("g", 2, gpus=8), mode=Mode.NON_STRICT))
    verdict = verdict_on(plan(snapshot(NODES, held_by_others), [ours], now_s=0.0), "ns/g")
    assert verdict.reason is Reason.HOLDING
    assert len(verdict.holds) == 1


def test_non_strict_gang_too_big_for_the_empty_cluster_holds_nothing() -> None:
    """P4 (decision 11): what can never fit takes no room from others."""
    verdict = decide(gang("ns/g", pods("g", 3, gpus=8), mode=Mode.NON_STRICT))
    assert verdict.reason is Reason.UNSCHEDULABLE
    assert not verdict.holds


def test_own_holds_are_not_counted_twice_against_the_empty_cluster() -> None:
    """P4 (decision 11): room that a gang holds already is part of the empty cluster, not
    beside it.
    """
    mine = pods("g", 4, gpus=8)
    held = holds(mine[:2], "a", "b")
    ours = group(gang("ns/g", mine[2:], 4, mode=Mode.NON_STRICT, held=held), clock_started_s=0.0)
    verdict = verdict_on(
        plan(snapshot(NODES, [(mine[0], "a"), (mine[1], "b")]), [ours], now_s=1.0), "ns/g"
    )
    assert verdict.reason is Reason.UNSCHEDULABLE
    assert "hold 2 even when empty" in say(verdict.told).text


def test_non_strict_refusal_wakes_on_any_node_that_changes() -> None:
    """Q3: a NonStrict gang is too big for the empty cluster; a node that comes may be full, and
    help all the same.
    """
    verdict = decide(gang("ns/g", pods("g", 3, gpus=8), mode=Mode.NON_STRICT))
    assert verdict.needs == (Need(shape(8), 0),)


def test_a_non_strict_group_too_big_for_the_empty_cluster_watches_room_for_all_of_its_gangs() -> (
    None
):
    """Q3: once a full node makes the empty cluster large enough, what can be held first is a member
    of another gang.
    """
    large = gang("ns/g", pods("g", 3, gpus=8), mode=Mode.NON_STRICT)
    small = gang("ns/h", pods("h", 1), mode=Mode.NON_STRICT)
    assert decide(large, small).needs == (Need(shape(8), 0), Need(shape(1), 0))


def test_too_few_waiting_members_is_not_unschedulable() -> None:
    """P1, B1, E1: where bound members do not count, too few waiting ones are missing members, not
    missing room.
    """
    verdict = decide(gang("ns/g", pods("g", 1), 3, bound=2, match_policy=MatchPolicy.ONLY_WAITING))
    assert verdict.reason is Reason.WAITING_FOR_MEMBERS
    assert not verdict.binds


def test_unsupported_feature_is_said_and_needs_no_room() -> None:
    """E1: a pod that needs what is not built is refused as Unsupported, which room cannot help."""
    strange = shape(1, unsupported=("host ports",))
    verdict = decide(gang("ns/g", [pod("g", of=strange)]))
    assert verdict.reason is Reason.UNSUPPORTED
    assert "host ports" in say(verdict.told).text
    assert verdict.needs == ()
