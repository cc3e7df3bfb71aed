"""Holds, clocks and yields over time: semantics R3, T1 to T3, D1."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gangsched.core.cycle import Limits, plan
from gangsched.loop import READ_BESIDE_A_PLAN
from gangsched.model.objects import Phase, Pod
from gangsched.model.reasons import Reason
from gangsched.state import groups
from gangsched.state.changed_gangs import UNITS_A_GANG
from gangsched.state.queueing import batches
from tests.builders import NAMESPACE, gang_metadata, members, node, pod, pod_group, shape
from tests.world import World


def holder(name: str, number: int, *, wait: str = "30s", **fields: Any) -> list[Pod]:
    """A NonStrict gang."""
    return members(name, number, mode="NonStrict", wait=wait, **fields)


def crowded(name: str = "g", **fields: Any) -> tuple[World, Pod]:
    """Four GPUs, two of them taken by another pod; a NonStrict gang of four holds the other two."""
    world = World(node("a", 4))
    (other,) = world.create(pod("other", gpus=2, node_name="a"))
    world.create(holder(name, 4, **fields))
    world.settle()
    return world, other


def test_holds_survive_rounds_and_are_bound_with_the_rest() -> None:
    """R3, B1: held members keep their room until the gang is permitted, then all go together."""
    world, other = crowded()
    assert world.held() == {"g-0": "a", "g-1": "a"}
    world.create(members("h", 1))
    assert not any(name.startswith("h") for name in world.settle().bound())
    world.delete(other)
    world.settle()
    assert set(world.bound()) == {"g-0", "g-1", "g-2", "g-3"}
    assert not world.held()


def test_hold_of_a_deleted_or_gated_pod_is_given_back() -> None:
    """R3: deleting a held pod, or its being deleted, frees its room at once."""
    for change in ("gone", "deleting", "gated"):
        world, _ = crowded()
        held = next(each for each in world.pods.values() if each.name == "g-0")
        if change == "gone":
            world.delete(held)
        else:
            world.update(held, **{change: True})
        assert world.state.members.node_of(held.uid) == "", change
        world.create(pod("tiny", gpus=1, priority=9))
        assert "tiny" in world.settle().bound(), change


def test_hold_is_lost_with_its_node_and_placed_anew() -> None:
    """R3: a node that goes takes its holds along; the members are placed elsewhere at once."""
    world = World(node("a", 2), node("b", 4))
    (other,) = world.create(pod("other", gpus=4, node_name="b"))
    world.create(holder("g", 4))
    assert set(world.settle().held().values()) == {"a"}
    world.delete(other)
    world.create(pod("again", gpus=3, node_name="b"))
    world.remove_node("a")
    world.settle()
    assert set(world.held().values()) == {"b"}


def test_hold_on_a_cordoned_node_is_moved_at_once() -> None:
    """R3, Q3: a node that is closed gives its holds back without waiting for anything else."""
    world = World(node("a", 1), node("b", 3))
    world.create(pod("other", gpus=3, node_name="b"), holder("g", 3))
    assert world.settle().held() == {"g-0": "a"}
    world.add_nodes(node("a", 1, unschedulable=True))
    assert world.settle().held() == {}


def test_wait_time_releases_holds_and_marks_every_unbound_member() -> None:
    """T1, T2: at the wait time, counted from the first hold, the room is free and every member
    carries the mark.
    """
    world, _ = crowded()
    world.advance(20)
    assert len(world.held()) == 2
    world.advance(10.5)
    assert not world.held()
    assert {each.name for each in world.pods.values() if each.timed_out} == {
        "g-0",
        "g-1",
        "g-2",
        "g-3",
    }
    assert any("30 s" in message for _, _, message in world.events("TimedOut"))


def test_timeout_marks_the_siblings_too() -> None:
    """T2: every gang of the group is marked and released, whichever one had held."""
    both = [f"{NAMESPACE}/g", f"{NAMESPACE}/h"]
    world = World(node("a", 4))
    world.create(
        pod("other", gpus=2, node_name="a"),
        holder("g", 2, groups=both),
        holder("h", 2, groups=both),
    )
    world.advance(31)
    assert not world.held()
    assert {each.name for each in world.pods.values() if each.timed_out} == {
        "g-0",
        "g-1",
        "h-0",
        "h-1",
    }


def test_new_holds_do_not_restart_the_clock() -> None:
    """T1: the clock runs from the first hold on, however many rounds follow."""
    world, _ = crowded()
    world.advance(20)
    world.add_nodes(node("b", 1))
    world.settle()
    assert len(world.held()) == 3
    world.advance(10.5)
    assert not world.held()


def test_clock_stops_when_nothing_is_held_any_more() -> None:
    """T1: releasing every hold stops the clock; the next hold starts it anew."""
    world, _ = crowded()
    world.advance(20)
    world.remove_node("a")
    world.settle()
    assert not world.held()
    world.advance(20)
    world.add_nodes(node("b", 4))
    world.create(pod("second", gpus=1, node_name="b"))
    world.settle()
    assert len(world.held()) == 3
    world.advance(20)
    assert len(world.held()) == 3
    world.advance(11)
    assert not world.held()


def test_strict_gang_never_times_out() -> None:
    """T1: Strict groups hold nothing, so they queue."""
    world = World(node("a", 1))
    world.create(members("g", 2, wait="5s"))
    world.advance(500)
    assert not any(each.timed_out for each in world.pods.values())


def test_wait_time_above_a_quarter_of_an_hour_is_kept() -> None:
    """T1, T2: up to the cap a wait time is what the gang says."""
    world = World(node("a", 4))
    world.create(pod("other", gpus=2, node_name="a"), holder("g", 4, wait="1h"))
    world.advance(3500)
    assert world.held()
    world.advance(150)
    assert not world.held()


def test_timed_out_gang_waits_for_the_user_and_starts_at_once() -> None:
    """T3: while one member is marked nothing is tried; when the last mark is cleared the gang
    starts.
    """
    world, other = crowded()
    world.advance(31)
    world.delete(other)
    world.advance(200)
    assert not world.bound()
    assert world.verdict("ns/g").reason is Reason.TIMED_OUT
    pods = [each for each in world.pods.values() if each.name.startswith("g")]
    for each in pods[:3]:
        world.update(each, timed_out=False)
    assert not world.settle().bound()
    world.update(pods[3], timed_out=False)
    assert len(world.settle().bound()) == 4


def test_timed_out_gang_takes_no_room_while_its_marks_are_on_their_way() -> None:
    """T2, T3: a new member or a look by the safety net starts nothing before the marks are seen."""
    world, _ = crowded()
    world.mark_pods = False
    world.advance(31)
    world.create(holder("g", 1, first=9, min_member=4))
    world.advance(100)
    assert not world.held()


def test_deleting_the_marked_pods_starts_anew() -> None:
    """T3: fresh pods of the gang's name are not held back by the old ones."""
    world, other = crowded()
    world.advance(31)
    world.delete(other, *[each for each in world.pods.values() if each.timed_out])
    world.create(holder("g", 4))
    assert len(world.settle().bound()) == 4


def test_restart_forgets_holds_and_clocks() -> None:
    """T1: a restarted scheduler starts afresh."""
    world, _ = crowded()
    world.advance(25)
    world.restart()
    world.settle()
    assert len(world.held()) == 2
    world.advance(25)
    assert len(world.held()) == 2
    world.advance(6)
    assert not world.held()


def deadlocked() -> World:
    """Four GPUs: `h` holds two of the four it needs, then `g`, which goes before it, gets the other
    two of its four.
    """
    world, other = crowded("h", creation_s=2)
    world.delete(other)
    world.create(holder("g", 4, creation_s=1))
    return world


def test_deadlock_ends_by_yielding() -> None:
    """D1: the last-ranked gang gives its room up, the first starts at once; the other waits without
    holding.
    """
    world = deadlocked()
    assert set(world.settle().bound()) == {"g-0", "g-1", "g-2", "g-3"}
    assert not world.held()
    world.add_nodes(node("b", 4))
    assert len(world.settle().bound()) == 8


def test_yield_is_told_in_an_event_that_names_the_beneficiary() -> None:
    """D1: `Yielded` is told even though the gang gets its next verdict a moment later."""
    world = deadlocked()
    world.told()
    ((about, _, message),) = world.events("Yielded")
    assert about == "Pod ns/h-0"
    assert "ns/g" in message


def test_nobody_waits_for_a_beneficiary_that_is_gone() -> None:
    """D1: a group that yielded may go on when its beneficiary is deleted, or holds nothing any
    more.
    """
    for end in ("deleted", "deleted but for its PodGroup", "node gone"):
        world = deadlocked()
        if "PodGroup" in end:
            world.declare(pod_group("g", 4, creation_s=1))
        while not any(
            verdict.yields_to for proposal in world.plans for verdict in proposal.verdicts
        ):
            world.state.refresh(world.now_s)
            picture = world.state.snapshot()
            proposal = plan(picture, world.state.ready(world.now_s), now_s=world.now_s)
            world.plans.append(proposal)
            if any(verdict.yields_to for verdict in proposal.verdicts):
                yields = dataclasses.replace(
                    proposal,
                    verdicts=tuple(verdict for verdict in proposal.verdicts if verdict.yields_to),
                )
                world.state.commit(yields, picture, now_s=world.now_s)
            else:
                world.state.commit(proposal, picture, now_s=world.now_s)
        if end.startswith("deleted"):
            world.delete(*[each for each in world.pods.values() if each.name.startswith("g-")])
        else:
            world.remove_node("a")
            world.settle()
            world.add_nodes(node("b", 0))
            world.delete(*[each for each in world.pods.values() if each.name == "g-0"])
            world.add_nodes(node("b", 4))
        assert {"h-0", "h-1", "h-2", "h-3"} <= set(world.settle().bound()), end


def test_hold_of_a_member_that_was_bound_by_somebody_else_becomes_its_place() -> None:
    """R3, B4: a held member seen bound elsewhere takes room there, and its hold is gone."""
    world, _ = crowded()
    world.add_nodes(node("z", 1, labels={"zone": "z"}))
    world.create(pod("filler", gpus=1, node_name="z"))
    held = next(each for each in world.pods.values() if each.name == "g-0")
    world.update(held, node_name="z", phase=Phase.RUNNING)
    assert world.state.members.node_of(held.uid) == "z"
    assert "g-0" not in world.held()
    world.settle()
    assert "g-1" not in world.bound(), "who was bound by somebody else makes nobody satisfied"


def test_group_holds_across_a_regrouping_with_its_clock() -> None:
    """T1, I5: joining a group does not give a gang a new clock."""
    world, _ = crowded()
    world.advance(20)
    lists = [f"{NAMESPACE}/g", f"{NAMESPACE}/h"]
    changed = holder("g", 4, groups=lists)
    for each in [each for each in world.pods.values() if each.name.startswith("g-")]:
        world.update(each, gang_metadata=changed[0].gang_metadata)
    world.create(holder("h", 1, groups=lists))
    world.settle()
    assert world.held()
    world.advance(10.5)
    assert not world.held()


def crowd(gangs: int) -> World:
    """So many NonStrict gangs of 108 that hold 8 GPUs each, and a node without GPUs that
    is idle.
    """
    labels = [{f"example.com/g{n}": "1"} for n in range(gangs)]
    everywhere = {key: value for label in labels for key, value in label.items()}
    world = World(node("idle", 0), *(node(f"full-{n}", 8, labels=everywhere) for n in range(13)))
    world.create([pod(f"other-{n}", gpus=8, node_name=f"full-{n}") for n in range(13)])
    for n, label in enumerate(labels):
        world.add_nodes(node(f"gpu-{n}", 8, labels=label))
        of = shape(gpus=1, node_selector=tuple(label.items()))
        world.create(holder(f"g{n}", 108, wait="1h", of=of))
    return world.settle()


def test_holders_that_wait_do_not_keep_a_young_pod_from_an_idle_node() -> None:
    """Decision 8: holders are not looked at again for nothing; 55 of them wait for more pods than a
    plan looks at.
    """
    world = crowd(55)
    assert len(world.held()) == 55 * 8
    world.plans.clear()
    world.create(pod("young", gpus=0, cpu_milli=100))
    world.settle()
    assert world.bound()["young"] == "idle"
    assert sum(each.pods_tried for each in world.plans) == 1


def test_every_ready_group_is_looked_at_in_turn() -> None:
    """Decision 8: groups that come back all the time keep nobody waiting longer than ready / limit
    plans.
    """
    world = World(node("a", 0), node("idle", 0))
    world.limits = Limits(groups=2)
    world.create(
        [
            *members("old", 9, min_member=1, mode="NonStrict"),
            *members("older", 9, min_member=1, mode="NonStrict"),
        ]
    )
    world.settle()
    world.create([pod("young", gpus=0, cpu_milli=100)])
    for plans in range(1, 4):
        for name in ("old", "older"):
            world.create(members(name, 1, min_member=1, mode="NonStrict", first=10 * plans))
        world.turn()
    world.answer()
    assert "young" in world.bound()


def test_a_plan_is_given_a_part_of_thousands_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Q1, Q4: a plan is not given ten thousand groups, but those that it comes to; all are decided,
    none twice.
    """
    monkeypatch.setattr(batches, "MOST", 4)
    world = World(node("a", 0))
    world.limits = Limits(groups=2)
    often = [pod(f"p{n}", gpus=0, cpu_milli=10**9 + n, creation_s=n) for n in range(9)]
    rare = pod("rare", gpus=0, cpu_milli=100, namespace="other", creation_s=10_000)
    urgent = pod("urgent", gpus=0, cpu_milli=100, priority=5, creation_s=20_000)
    world.create([*often, rare, urgent])
    world.state.refresh(world.now_s)
    given = world.state.plan_input(world.now_s, world.wall_s())
    assert given is not None
    assert len(given.queue) == 4
    world.settle()
    decided = [verdict.group for each in world.plans for verdict in each.verdicts]
    assert decided[0] == f"pod:{NAMESPACE}/urgent"
    assert "pod:other/rare" in decided[:4]
    assert len(decided) == len(set(decided)) == 11


def test_yields_are_looked_for_whatever_a_plan_is_limited_to() -> None:
    """D1: plans that look at one group each make a holder yield that they do not look at."""
    world = World(node("a", 4), node("m", 2))
    other, _ = world.create(pod("other", gpus=2, node_name="a"), pod("more", gpus=2, node_name="m"))
    world.create(holder("g", 6))
    world.settle()
    assert len(world.held()) == 2
    world.limits = Limits(groups=1)
    world.create(members("big", 4, priority=9))
    world.settle()
    assert len(world.held()) == 2
    world.delete(other)
    world.settle()
    assert {"big-0", "big-1", "big-2", "big-3"} <= set(world.bound())


# --- a tenant with many gangs -------------------------------------------------------------------

NAMING = 30


def naming(name: str) -> list[Pod]:
    """Gangs of one pod that all list a group with the gang `name`, which lists another one."""
    return [
        pod
        for index in range(NAMING)
        for pod in members(
            f"g{index:02}", 1, groups=[f"{NAMESPACE}/g{index:02}", f"{NAMESPACE}/{name}"]
        )
    ]


def plans_until_bound(world: World, pod: Pod) -> int:
    """How many plans are made until it is bound."""
    before = len(world.plans)
    for _ in range(NAMING):
        world.turn()
        world.answer()
        if world.pods[pod.uid].node_name:
            return len(world.plans) - before
    raise AssertionError("it is never bound")


def test_a_gang_of_another_namespace_is_in_the_second_plan() -> None:
    """Q4: of 30 older gangs that are ready with it, it waits for no more than one plan of three
    groups.
    """
    world = World(node("a", 8))
    world.limits = Limits(groups=3)
    world.create(naming("nobody"), members("quiet", 1, namespace="quiet", creation_s=10_000))
    (quiet,) = (pod for pod in world.pods.values() if pod.namespace == "quiet")
    assert plans_until_bound(world, quiet) <= 2


def test_a_gang_that_many_name_changes_at_little_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """I4: who only names a gang is told of its changes in turns, and in the end all are told what
    is true.
    """
    monkeypatch.setattr(groups, "AT_A_TIME", 5)
    world = World(node("a", 8))
    pods = world.create(naming("x"))
    world.told()
    assert {world.condition(pod)[0] for pod in pods} == {"WaitingForGang"}
    named = world.create(members("x", 1, groups=[f"{NAMESPACE}/x", f"{NAMESPACE}/y"]))
    plan = world.turn()
    assert plan is not None
    assert len(plan.verdicts) == 6
    assert world.state.next_deadline_s(world.now_s) == world.now_s
    world.told()
    assert {world.condition(pod)[0] for pod in pods} == {"InvalidGang"}
    world.delete(*named)
    world.told()
    assert {world.condition(pod)[0] for pod in pods} == {"WaitingForGang"}


def test_gangs_that_miss_their_pod_groups_at_one_moment_are_read_in_turns() -> None:
    """I2: whoever created them in one second, a turn reads as many as it does of new gangs, and
    one of each other namespace among the first.
    """
    world = World(node("a", 8))
    stated = (gang_metadata(f"g{number}", pod_group=True) for number in range(300))
    crowd = [pod(f"p{number}", gang_metadata=each) for number, each in enumerate(stated)]
    quiet = members("quiet", 1, namespace="quiet", pod_group=True)
    world.create(crowd, quiet)
    world.settle()
    world.now_s += groups.POD_GROUP_WAIT_S
    read: list[set[str]] = []
    while world.state.next_deadline_s(world.now_s) == world.now_s and len(read) < 50:
        before = {each.id: each.generation for each in world.state.registry.groups.values()}
        world.state.refresh(world.now_s, most_new=READ_BESIDE_A_PLAN)
        now = world.state.registry.groups.values()
        read.append({each.id for each in now if before.get(each.id) != each.generation})

    most = READ_BESIDE_A_PLAN // UNITS_A_GANG
    assert max(map(len, read)) <= most
    assert "quiet/quiet" in read[0]
    assert sum(map(len, read)) == len(crowd) + 1
    world.told()
    assert {world.condition(each)[0] for each in crowd} == {"PodGroupMissing"}


def test_a_gang_that_takes_its_consent_back_is_left_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """I4: however many name a gang, those that were decided with it are not from the next
    plan on.
    """
    monkeypatch.setattr(groups, "AT_A_TIME", 1)
    both = [f"{NAMESPACE}/g", f"{NAMESPACE}/x"]
    world = World(node("a", 0))
    world.create(naming("x"), members("g", 1, groups=both))
    (named,) = world.create(members("x", 1, groups=both))
    world.settle()
    assert world.state.registry.groups[both[0]].gangs == tuple(both)
    (alone,) = members("x", 1)
    world.update(named, gang_metadata=alone.gang_metadata)
    world.state.registry.refresh(world.now_s)
    assert world.state.registry.groups[both[0]].gangs == (both[0],)
