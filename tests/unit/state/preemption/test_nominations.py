"""Nominations: how each begins, is carried out, and ends (semantics V10-V14, V16, V17)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.model.objects import Phase, Pod
from gangsched.model.preemption import Harm, UnitKind
from gangsched.model.protocol import (
    Evict,
    Evicted,
    EvictionResult,
    EvictionsForbidden,
    PreparePreemption,
)
from gangsched.model.reasons import Reason
from gangsched.sentences import say
from gangsched.sentences.fields import fields
from gangsched.state.preemption import back_off
from gangsched.state.rule_set import Rules
from tests.builders import GPU, members, node, pod, pod_group
from tests.unit.state.preemption.decided import DecidedWorld
from tests.world import World

HIGH = "ns/high"


def full(**of_low: Any) -> tuple[DecidedWorld, list[Pod], list[Pod]]:
    """Two nodes full of the gang low (2 x 8), and the gang high (2 x 8) that has just
    been refused.
    """
    world = DecidedWorld(node("a", 8), node("b", 8))
    low = world.create(members("low", 2, gpus=8, grace_s=20, **of_low))
    world.settle()
    high = world.create(members("high", 2, gpus=8, priority=1000))
    world.settle()
    assert world.bound() == {"low-0": "a", "low-1": "b"}
    return world, low, high


def decide(world: DecidedWorld, high: list[Pod], low: list[Pod]) -> None:
    """Room is made for the gang high on both nodes."""
    world.decide(HIGH, [(high[0], "a"), (high[1], "b")], low)


def test_everything_is_written_before_anybody_is_evicted() -> None:
    """V13: members are nominated and victims marked; only the answer to that and a last look send
    evictions.
    """
    world, low, high = full()
    decide(world, high, low)
    world.fate = lambda order: "later"
    world.settle()
    # the group is looked at once more meanwhile
    high[0] = world.update(high[0], labels={"seen": "again"})
    world.settle()
    assert world.prepared() == [["high-0", "high-1"]]
    assert world.evicted() == []
    world.fate = lambda order: "later" if isinstance(order, Evict) else "bound"
    world.settle()
    assert [world.pods[each.uid].nominated_node for each in high] == ["a", "b"]
    assert all(world.pods[each.uid].disruption_target for each in low)
    assert sorted(world.evicted()) == ["low-0", "low-1"]


@pytest.mark.parametrize("broken", [0, 1])
def test_only_victims_of_a_set_that_breaks_a_budget_are_deleted(broken: int) -> None:
    """V7: an eviction would be answered 429 for as long as the budget stands; `last_resort` has
    chosen to break it.
    """
    world, low, high = full()
    world.decide(HIGH, [(high[0], "a"), (high[1], "b")], low, harm=Harm(broken, 1, 1, 0, 2, 0, 0))
    world.settle()
    assert {order.delete for order in world.ordered if isinstance(order, Evict)} == {broken > 0}


def test_the_group_starts_as_one_when_the_last_victim_is_gone() -> None:
    """V11: all members at once, and the nomination is over."""
    world, low, high = full()
    decide(world, high, low)
    world.advance(19)
    assert world.nominated()
    assert world.bound().keys() == {"low-0", "low-1"}
    world.advance(1)
    assert world.bound() == {"high-0": "a", "high-1": "b"}
    assert not world.nominated()
    assert world.promised() == {}


def test_nobody_of_equal_or_lower_priority_gets_the_room_as_it_comes_free() -> None:
    """V10: a gang that would fit the first freed node waits; so do the pods that replace the
    victims.
    """
    world, low, high = full()
    decide(world, high, low)
    world.advance(1)
    world.create(members("thief", 1, gpus=8, priority=1000), pod("plain", gpus=1))
    world.delete(low[0])  # it ends sooner than the other
    world.advance(10)
    assert "thief-0" in world.pending()
    assert "plain" in world.pending()
    world.advance(10)
    assert world.bound().keys() == {"high-0", "high-1"}


def test_room_for_a_member_of_low_priority_is_kept_as_that_for_its_gang() -> None:
    """V10: the gang comes first (Q1), so who comes between its members takes none of its room."""
    world = DecidedWorld(node("a", 8), node("b", 8))
    low = world.create(members("low", 2, gpus=8, grace_s=20))
    world.settle()
    high = world.create(
        replace(each, priority=priority)
        for each, priority in zip(members("high", 2, gpus=8), (1000, 10), strict=True)
    )
    world.settle()
    decide(world, high, low)
    world.advance(1)
    world.create(members("between", 1, gpus=8, priority=500))
    world.delete(low[1])  # where the member of low priority is to run
    world.advance(10)
    assert "between-0" in world.pending()
    world.advance(10)
    assert world.bound() == {"high-0": "a", "high-1": "b"}


def test_promised_room_is_kept_at_the_priority_that_the_group_has_now() -> None:
    """V10: its member of the highest priority is gone, and was not nominated."""
    world = DecidedWorld(node("a", 8))
    (low,) = world.create(pod("low", gpus=8, grace_s=20))
    world.settle()
    surplus, needed = world.create(
        replace(each, priority=priority)
        for each, priority in zip(members("high", 2, min_member=1, gpus=8), (1000, 10), strict=True)
    )
    world.settle()
    world.decide(HIGH, [(needed, "a")], [low], UnitKind.POD)
    world.advance(1)
    world.create(pod("between", gpus=8, priority=500))
    world.advance(1)
    assert {each.pod.priority for each in world.state.snapshot().nominations} == {1000}
    world.update(needed, labels={"seen": "again"})  # nothing else is new when the other one goes
    world.advance(1)
    world.delete(surplus)
    world.advance(1)
    assert world.nominated()
    assert {each.pod.priority for each in world.state.snapshot().nominations} == {10}
    world.advance(16)
    assert world.bound() == {"between": "a"}


def test_a_victim_of_another_stands_in_for_nobody_before_it_goes() -> None:
    """V10: a lower priority that makes room for itself starts beside a higher one that was
    promised what is free, and only once its victim goes.
    """
    world = World(node("a", 10), rules=Rules(unattended=True), preempts=True)
    goes, victim = world.create(pod("goes", gpus=2), pod("victim", gpus=2))
    world.create(pod("stays", gpus=4, priority=1000))
    world.settle()
    world.leaving[goes.uid] = world.now_s + 200
    world.update(world.pods[goes.uid], deleting=True, deletion_s=world.wall_s() + 200)
    world.create(pod("high", gpus=4, priority=100))
    world.settle()
    world.create(pod("low", gpus=1, priority=5))
    world.settle()
    assert world.bound().keys() == {"goes", "stays", "victim", "low"}

    assert world.pods[victim.uid].deleting
    (promise,) = world.state.snapshot().nominations
    assert (promise.group, dict(promise.freed)[GPU]) == ("pod:ns/high", 4)


def test_the_group_starts_elsewhere_if_that_is_earlier() -> None:
    """V11: nothing more is evicted, and what is on its way counts as over."""
    world, low, high = full()
    decide(world, high, low)
    world.fate = lambda order: "later" if isinstance(order, Evict | PreparePreemption) else "bound"
    world.add_nodes(node("c", 8), node("d", 8))
    world.settle()
    assert world.bound() == {"low-0": "a", "low-1": "b", "high-0": "c", "high-1": "d"}
    assert not world.nominated()
    world.fate = lambda order: "bound"
    world.advance(100)
    assert world.evicted() == []


def test_nobody_is_evicted_if_the_pods_could_not_be_nominated() -> None:
    """V13: a failure of the first writes ends the nomination before anybody is harmed, and it is
    told.
    """
    world, low, high = full()
    decide(world, high, low)
    world.fate = lambda order: "failed" if isinstance(order, PreparePreemption) else "bound"
    world.advance(120)
    assert world.evicted() == []
    assert not world.nominated()
    assert world.cancelled() == [["high-0", "high-1"]]
    assert "no pods were evicted" in world.events("NominationLost")[0][2]


def test_nobody_is_evicted_whom_the_last_look_finds_needless() -> None:
    """V13: a victim whose room is no longer needed stays."""
    world = DecidedWorld(node("a", 8), node("b", 8))
    one, two = world.create(pod("one", gpus=4), pod("two", gpus=4))
    world.settle()
    (other,) = world.create(pod("other", gpus=8))
    world.settle()
    high = world.create(members("high", 1, gpus=4, priority=1000))
    world.settle()
    world.decide(HIGH, [(high[0], "a")], [one, two], UnitKind.POD)
    world.advance(40)
    assert len(world.evicted()) == 1
    assert "high-0" in world.bound()
    assert other.name in world.bound()


def test_nothing_is_evicted_of_a_gang_that_has_freed_meanwhile() -> None:
    """V13: a core with a member that is not to be evicted would be halved; it ends instead."""
    world, low, high = full(min_member=2)
    decide(world, high, low)
    freed = members("low", 3, gpus=0, grace_s=20, min_member=2)[2]
    world.create(freed)
    world.update(freed, node_name="a", phase=Phase.RUNNING)
    world.settle()
    assert world.evicted() == []
    assert "the members of a gang" in world.events("NominationLost")[0][2]


def test_nothing_is_evicted_of_a_gang_whose_surplus_is_gone() -> None:
    """V13: a member above the minimum is one no more when another one has ended."""
    world = DecidedWorld(node("a", 8))
    low = world.create(members("low", 8, gpus=1, min_member=7))
    world.settle()
    high = world.create(members("high", 1, gpus=1, priority=1000))
    world.settle()
    world.decide(HIGH, [(high[0], "a")], [low[7]], UnitKind.SURPLUS)
    world.create(pod("thief", gpus=1, node_name="a", scheduler_name="other"))
    world.delete(low[0])
    world.settle()
    assert world.evicted() == []
    assert "below its minimum" in world.events("NominationLost")[0][2]


@pytest.mark.parametrize("what", ["cordoned", "gone", "taken"])
def test_a_nomination_is_lost_with_its_node(what: str) -> None:
    """V12: the node is closed, gone, or a foreign pod took its room: all is given back and told."""
    world, low, high = full()
    decide(world, high, low)
    world.advance(1)
    if what == "cordoned":
        world.add_nodes(node("b", 8, unschedulable=True))
    elif what == "gone":
        world.remove_node("b")
    else:
        world.create(
            pod("foreign", gpus=1, node_name="b", scheduler_name="other", phase=Phase.RUNNING)
        )
    world.settle()
    assert not world.nominated()
    assert world.promised() == {}
    assert [world.pods[each.uid].nominated_node for each in high] == ["", ""]
    (told,) = world.events("NominationLost")
    assert "node b" in told[2]
    assert "2 pods were evicted without effect" in told[2]


def test_who_is_seen_to_go_was_evicted_also_before_the_eviction_is_answered() -> None:
    """V12: the watch may be ahead of the answer; of two evictions under way one has been carried
    out.
    """
    world, low, high = full()
    world.decide(HIGH, [(high[0], "a"), (high[1], "b")], low, UnitKind.POD)
    world.fate = lambda order: "later" if isinstance(order, Evict) else "bound"
    world.settle()
    world.update(low[0], deleting=True)
    world.add_nodes(node("b", 8, unschedulable=True))
    world.advance(6)
    assert "1 pod was evicted without effect" in world.events("NominationLost")[0][2]
    told = [about for about, _, _ in world.events("Preempted")]
    assert told == [f"Pod {low[0].key}"]


def test_every_eviction_is_told_and_counted_though_its_nomination_is_lost_meanwhile() -> None:
    """V12, V22: the API server carries out what was sent, also after the nomination has ended."""
    world, low, high = full()
    world.decide(HIGH, [(high[0], "a"), (high[1], "b")], low, UnitKind.POD)
    world.fate = lambda order: "later" if isinstance(order, Evict) else "bound"
    world.settle()
    sent = [order for order in world.unwritten if isinstance(order, Evict)]
    assert len(sent) == 2

    world.add_nodes(node("b", 8, unschedulable=True))
    world.settle()
    assert world.events("NominationLost") == [], "two answers are still to come"
    for order in sent:
        world.say(Evicted(order.id, order.uid, EvictionResult.DONE, ""))
        world.update(world.pods[order.uid], deleting=True)

    world.advance(10)
    told = sorted(about for about, _, _ in world.events("Preempted"))
    assert told == sorted(f"Pod {pod.key}" for pod in low)
    (lost,) = world.events("NominationLost")
    assert "2 pods were evicted without effect" in lost[2]


def test_the_next_nomination_comes_after_30_s_and_then_after_twice_that() -> None:
    """V12: 30 s, doubling; a start resets it."""
    world, low, high = full()
    decide(world, high, low)
    world.advance(1)
    world.add_nodes(node("b", 8, unschedulable=True))
    world.settle()
    group = world.state.registry.groups[HIGH]
    assert group.nominates_at_s == world.now_s + 30
    assert back_off.failed(group, world.now_s, harmed=True) == world.now_s + 60
    assert back_off.failed(group, world.now_s, harmed=False) == world.now_s + 120
    world.add_nodes(node("b", 8))
    world.advance(30)
    assert world.bound().keys() == {"high-0", "high-1"}
    assert group.nominates_at_s is None


def test_a_victim_that_never_goes_expires_the_nomination() -> None:
    """V12: 60 s past its grace period; the stuck node is avoided like one that rejected a
    pod (B6).
    """
    world, low, high = full()
    decide(world, high, low)
    world.advance(1)
    world.leaving.clear()  # finalizers keep both
    world.advance(20 + 60 + 29)
    assert not world.nominated()
    assert "2 pods were evicted without effect" in world.events("NominationLost")[0][2]
    assert world.state.registry.groups[HIGH].avoid.keys() == {"a", "b"}


def test_the_time_of_victims_begins_when_they_are_evicted() -> None:
    """V12: before that nobody is harmed, and to write to thousands of pods takes longer than a
    grace period.
    """
    world, low, high = full()
    decide(world, high, low)
    world.fate = lambda order: "later"
    world.advance(200)
    assert world.nominated()
    assert not world.evicted()
    world.fate = lambda order: "bound"
    world.advance(25)
    assert {"high-0", "high-1"} <= world.bound().keys()


def test_each_eviction_gives_the_other_victims_their_time_again() -> None:
    """V12: thousands of evictions take longer than a victim has, and who is gone leaves no end
    behind.
    """
    world, low, high = full()
    decide(world, high, low)
    world.fate = lambda order: "later" if isinstance(order, Evict) else "bound"
    world.advance(60)
    world.fate = lambda order: (
        "later" if isinstance(order, Evict) and order.name == "low-1" else "bound"
    )
    world.advance(60)
    assert world.bound().keys() == {"low-1"}
    assert world.nominated()
    world.fate = lambda order: "bound"
    world.advance(25)
    assert world.bound().keys() == {"high-0", "high-1"}


def test_a_replaced_member_takes_over_its_node() -> None:
    """V12: the new pod is nominated instead, and the group starts with it."""
    world, low, high = full()
    decide(world, high, low)
    world.advance(1)
    world.delete(high[1])
    world.advance(1)
    assert world.nominated()
    again = world.create(members("high", 1, gpus=8, priority=1000, first=1, min_member=2))
    world.advance(1)
    assert world.pods[again[0].uid].nominated_node == "b"
    world.advance(20)
    assert world.bound().keys() == {"high-0", "high-1"}


def test_a_member_that_nobody_replaces_ends_the_nomination() -> None:
    """V12: the group has changed since it was nominated."""
    world, low, high = full()
    decide(world, high, low)
    world.advance(1)
    world.delete(high[1])
    world.advance(6)
    assert not world.nominated()


def test_a_deleted_group_ends_its_nomination_at_once() -> None:
    """V12: evictions that are not sent are not sent any more, and the room is for others."""
    world, low, high = full()
    decide(world, high, low)
    world.fate = lambda order: "later" if isinstance(order, Evict) else "bound"
    world.settle()
    world.delete(*high)
    world.settle()
    world.fate = lambda order: "bound"
    world.advance(100)
    assert world.promised() == {}
    assert world.bound() == {"low-0": "a", "low-1": "b"}


def test_a_smaller_minimum_gives_nominees_up() -> None:
    """V12: with one member less needed, one node is given back and its victim stays."""
    world = DecidedWorld(node("a", 8), node("b", 8))
    lows = world.create(pod("one", gpus=8), pod("two", gpus=8))
    world.settle()
    high = world.create(members("high", 2, gpus=8, priority=1000))
    world.settle()
    world.decide(HIGH, [(high[0], "a"), (high[1], "b")], lows, UnitKind.POD)
    for each in high:
        world.update(each, gang_metadata=members("high", 1, min_member=1)[0].gang_metadata)
    world.advance(40)
    assert len(world.evicted()) == 1
    assert len([name for name in world.bound() if name.startswith("high")]) == 1


def test_a_group_that_needs_no_room_any_more_ends_its_nomination() -> None:
    """V12: its minimum is lowered to what it has; nobody is evicted, and that is told."""
    world = DecidedWorld(node("a", 8), node("b", 8))
    (low,) = world.create(pod("low", gpus=8))
    world.declare(pod_group("high", 2))
    world.settle()
    high = world.create(members("high", 2, gpus=8, priority=1000, pod_group=True))
    world.update(high[0], node_name="b", phase=Phase.RUNNING, scheduler_name="other")
    world.settle()
    world.decide(HIGH, [(high[1], "a")], [low], UnitKind.POD)
    world.declare(pod_group("high", 1, generation=2))
    world.settle()
    assert not world.nominated()
    assert world.evicted() == []


def test_a_missing_right_is_told_and_nobody_is_evicted() -> None:
    """V26: the refusal says which right is missing, though PodDisruptionBudgets cannot be read
    either.
    """
    world, _, high = full()
    world.say(EvictionsForbidden("gangsched may not create pods/eviction"))
    world.update(high[0], labels={"again": "yes"})
    world.told()
    assert (
        "Preemption: off, since gangsched may not create pods/eviction."
        in say(world.verdict(HIGH).told).text
    )


def test_a_gang_taken_whole_is_not_healed_by_halves_and_starts_anew_as_a_gang() -> None:
    """V17: pods that replace evicted members wait for each other, while and after the gang is
    evicted.
    """
    world, low, high = full()
    decide(world, high, low)
    world.fate = lambda order: (
        "later" if isinstance(order, Evict) and order.name == "low-1" else "bound"
    )
    world.settle()
    world.add_nodes(node("c", 8))
    world.create(members("low", 1, gpus=8, first=2, min_member=2))
    world.told()
    assert "low-2" in world.pending()
    assert world.condition(world.pods[next(uid for uid in world.pods if uid.startswith("low-2"))])[
        0
    ] == (Reason.WAITING_FOR_MEMBERS)
    world.fate = lambda order: "bound"
    world.advance(30)
    assert "low-2" in world.pending()
    world.create(members("low", 1, gpus=8, first=3, min_member=2))
    world.settle()
    assert {"low-2", "low-3"} <= world.pending()
    world.add_nodes(node("d", 8))
    world.settle()
    assert {"low-2", "low-3"} <= world.bound().keys()


def test_a_clock_that_runs_out_waits_for_the_nominations_end() -> None:
    """V16: a NonStrict group with holds is not timed out while room is made for the rest."""
    world = DecidedWorld(node("a", 8), node("b", 8))
    (low,) = world.create(pod("low", gpus=8, grace_s=20))
    world.settle()
    high = world.create(members("high", 2, gpus=8, priority=1000, mode="NonStrict", wait="10s"))
    world.settle()
    assert world.held().keys() == {"high-0"}
    world.decide(HIGH, [(high[1], "a")], [low], UnitKind.POD)
    world.advance(15)
    assert world.held().keys() == {"high-0"}
    world.advance(6)
    assert world.bound().keys() == {"high-0", "high-1"}


def test_a_member_that_holds_anothers_node_leaves_it_its_own() -> None:
    """V10, V16: members alike exchange their nodes, and what lower priority gets of the same plan
    is no room of the one that still waits.
    """
    world = DecidedWorld(node("a", 8), node("b", 8))
    low = world.create(pod("large", gpus=8, grace_s=20), pod("small", gpus=2, grace_s=20))
    world.settle()
    assert world.bound() == {"large": "a", "small": "b"}
    high = world.create(members("high", 2, gpus=8, priority=1000, mode="NonStrict", wait="60s"))
    world.settle()
    world.decide(HIGH, [(high[0], "b"), (high[1], "a")], low, UnitKind.POD)
    world.advance(1)

    world.delete(low[0])  # it ends sooner than the other
    world.settle()
    world.create(pod("late", gpus=6))
    world.delete(high[1])  # its replacement lets the gang be planned
    world.create(replace(high[1], uid="again", name="high-2"))
    world.settle()
    assert world.held() == {"high-0": "a"}
    assert "late" in world.pending()

    world.advance(20)
    assert world.bound() == {"high-0": "a", "high-2": "b"}


def test_forbidden_evictions_end_the_nomination() -> None:
    """V14: without the right nobody is evicted, and the nomination is lost."""
    world, low, high = full()
    decide(world, high, low)
    world.fate = lambda order: "forbidden" if isinstance(order, Evict) else "bound"
    world.settle()
    assert not world.nominated()
    assert world.bound().keys() == {"low-0", "low-1"}


def test_what_is_told_while_room_is_made_counts_down() -> None:
    """V20: nodes, the gangs whose pods must stop, and when it gives up."""
    world, low, high = full()
    decide(world, high, low)
    world.settle()
    group, nominations = world.state.registry.groups[HIGH], world.state.preemptions.nominations
    told = nominations.told([group])[HIGH]
    assert told.reason is Reason.PREEMPTING
    assert say(told).text == (
        "will start on a and b when ns/low (2 pods) has stopped; gives up at 2030-01-01T00:02Z"
    )
    world.delete(low[0])
    world.settle()
    told = nominations.told([world.state.registry.groups[HIGH]])[HIGH]
    assert say(told).now.startswith("when ns/low (1 pod) has stopped")


def test_victims_and_their_gang_are_told_by_whom_they_were_preempted() -> None:
    """V22: one Event for each pod, and one for the gang when the last eviction is answered."""
    world, low, high = full()
    decide(world, high, low)
    world.settle()
    told = world.events("Preempted")
    assert [about for about, _, _ in told] == ["Pod ns/low-0", "Pod ns/low-1", "Pod ns/low-0"]
    assert told[0][2] == "Preempted by pod high-0 on node a"
    assert told[2][2] == "Preempted by pod high-0: all 2 members"


@pytest.mark.parametrize(
    ("namespace", "text"), [("other", "pod {uid} was not evicted"), ("ns", "pod low-0 was not")]
)
def test_who_preempts_learns_no_name_of_a_victim_elsewhere(namespace: str, text: str) -> None:
    """V22: the API server's words on an eviction or a mark that failed name the pod."""
    world, low, high = full(namespace=namespace)
    world.fate = lambda order: "failed" if isinstance(order, Evict) else "bound"
    decide(world, high, low)
    world.settle()
    (lost,) = [told for _, _, told in world.events("NominationLost")]
    assert text.format(uid=low[0].uid) in lost
    assert ("the server does not want it" in lost) is (namespace == "ns")


@pytest.mark.parametrize("namespace", ["other", "ns"])
def test_who_preempts_is_told_names_of_its_own_namespace_only(namespace: str) -> None:
    """V20, V22: pods that must stop are named, elsewhere they are counted; in the gangs API too."""
    world = DecidedWorld(node("a", 8))
    low = world.create(members("low", 1, gpus=8, grace_s=20))
    world.settle()
    (high,) = world.create(members("high", 1, gpus=8, priority=1000, namespace=namespace))
    world.settle()
    world.decide(f"{namespace}/high", [(high, "a")], low)
    world.settle()

    group = world.state.registry.groups[f"{namespace}/high"]
    (told,) = world.state.preemptions.nominations.told([group]).values()
    message = say(told).text
    assert ("low" in message) is (namespace == "ns")
    assert ("low" in str(fields(told))) is (namespace == "ns")
    who = {"ns": "ns/low (1 pod)", "other": "1 pod"}[namespace]
    assert f"when {who} has stopped" in message


def test_who_preempts_learns_no_name_of_a_victim_that_could_not_be_marked() -> None:
    """V22: as above, before anybody is evicted."""
    world, low, high = full(namespace="other")
    world.fate = lambda order: "failed" if isinstance(order, PreparePreemption) else "bound"
    decide(world, high, low)
    world.settle()
    (lost,) = [told for _, _, told in world.events("NominationLost")]
    assert lost == "the pods could not be nominated; no pods were evicted"


def test_another_namespace_is_named_by_uid_only() -> None:
    """V22: who is preempted learns no name of another tenant."""
    world, low, high = full(namespace="other")
    decide(world, high, low)
    world.settle()
    assert world.events("Preempted")
    assert not any(
        "high" in text.replace(high[0].uid, "") for _, _, text in world.events("Preempted")
    )


def test_a_nominated_pod_is_told_why_it_waits_in_the_same_turn() -> None:
    """V13 (1): one write nominates it and says why; other verdicts are told once they no longer
    change.
    """
    world = World(node("a", 8), preempts=True)
    world.create([pod("low", gpus=8)])
    world.settle()
    assert world.bound() == {"low": "a"}
    world.create([pod("high", gpus=8, priority=1000), pod("too-large", gpus=16, priority=1000)])
    world.turn()
    (order,) = world.ordered
    assert isinstance(order, PreparePreemption)
    told = {
        each.name: each.condition.reason
        for each in world.pods.values()
        if each.condition is not None
    }
    assert told == {"high": Reason.PREEMPTING}
