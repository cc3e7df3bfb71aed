"""Healing goes first only for what was lost, and a stamp counts only where it is proven (Q2, H8,
B4, B5).
"""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.model.objects import JointStart, PermitStamp, Pod
from gangsched.model.protocol import Applied, StampsGuarded
from tests.builders import gang_metadata, members, node, pod, pod_group, shape
from tests.world import EPOCH_S, World

GUARDED_S = EPOCH_S
LATER_S = EPOCH_S + 100
RACK = "topology.kubernetes.io/rack"


def member(name: str, *, gpus: int = 1, job: str = "", min_member: int = 3, **fields: Any) -> Pod:
    """A member of the gang g, younger than every rival."""
    stated = gang_metadata("g", min_member=min_member)
    given: dict[str, Any] = {"creation_s": LATER_S, "gang_metadata": stated, "uid": name}
    return pod(name, gpus=gpus, controller_uid=job, **{**given, **fields})


def started(gpus: int = 8, **fields: Any) -> World:
    """Three members of one GPU run on one node."""
    world = World(node("n0", gpus=gpus))
    world.create([member(f"g-{index}", **fields) for index in range(3)])
    assert len(world.settle().bound()) == 3
    return world


def lose(world: World, *names: str) -> None:
    """These pods are gone."""
    world.delete(*(each for each in list(world.pods.values()) if each.name in names))


def goes_first(world: World) -> bool:
    """Whether the gang goes before its equals."""
    return world.state.registry.group("ns/g", world.now_s).broken


def race(world: World, *pods: Pod) -> set[str]:
    """Who is bound of these and of an older rival of four GPUs, when there is room for one
    of both.
    """
    filler = world.create([pod("filler", gpus=4, scheduler_name="x", node_name="n0")])
    room = (
        8
        - 4
        - sum(1 for each in world.pods.values() if each.node_name and each.name.startswith("g-"))
    )
    rival = pod("rival", gpus=room, creation_s=1)
    world.create([rival, *pods])
    bound = set(world.settle().bound())
    world.delete(*filler)
    return bound


def test_what_was_lost_goes_first() -> None:
    """Two of three are lost; two pods of their shape go before an older equal."""
    world = started()
    lose(world, "g-1", "g-2")
    assert {"g-3", "g-4"} <= race(world, member("g-3"), member("g-4"))


OTHERS: dict[str, tuple[Pod, ...]] = {
    "more than were lost": tuple(member(f"g-{index}") for index in (3, 4, 5)),
    "a larger one": (member("g-3", gpus=3),),
    "a larger one of the same controller": (member("g-3", gpus=3, job="j"),),
    "one that asks for something else": (member("g-3", of=shape(1, 1_000)),),
    "one of them is larger": (member("g-3"), member("g-4", gpus=2)),
}


@pytest.mark.parametrize("case", OTHERS)
def test_others_wait_in_their_turn(case: str) -> None:
    """An attack: three tiny pods start, two are deleted, and what comes then is not what
    was lost.
    """
    world = started(job="j")
    lose(world, "g-1", "g-2")
    world.add_nodes(node("n0", gpus=8, unschedulable=True))
    world.create(OTHERS[case])
    assert not goes_first(world.told())
    assert any("wait in queue order" in message for _, _, message in world.events("Degraded"))
    world.add_nodes(node("n0", gpus=8))
    assert "rival" in race(world)


def test_a_controller_may_replace_by_less() -> None:
    """A Job whose template was edited down replaces what it lost; a pod of nobody with that shape
    does not.
    """
    smaller = shape(1, 100)
    for job, first in (("j", True), ("", False)):
        world = World(node("n0", gpus=8))
        world.create([member(f"g-{index}", of=shape(1, 200), job=job) for index in range(3)])
        world.settle()
        lose(world, "g-1")
        world.add_nodes(node("n0", gpus=8, unschedulable=True))
        world.create([member("g-3", of=smaller, job=job)])
        assert goes_first(world.settle()) is first


def test_places_do_not_add_up() -> None:
    """A gang that replaces its members by others, again and again, has had three places and has
    three still.
    """
    world = started()
    for number in range(3, 12):
        lose(world, f"g-{number - 1}")
        world.create([member(f"g-{number}", of=shape(1, number))])
        world.settle()
    lose(world, "g-1", "g-11")
    world.add_nodes(node("n0", gpus=8, unschedulable=True))
    (last,) = world.create([member("g-20", of=shape(1, 11))])
    assert goes_first(world.settle())
    world.create([member("g-21")])
    assert goes_first(world.settle())
    world.delete(last)
    world.create([member("g-22", of=shape(1, 5))])
    assert not goes_first(world.settle())


def test_a_member_whose_bind_failed_is_no_stranger() -> None:
    """It was permitted with the others: it goes first whatever it looks like (B3)."""
    world = World(node("n0", gpus=8))
    world.fate = lambda order: "failed" if order.uid == "big" else "bound"
    world.create([member("g-0"), member("g-1"), member("big", gpus=4)])
    world.settle()
    assert goes_first(world)


# --- stamps -------------------------------------------------------------------------------------


def forged(**fields: Any) -> Pod:
    """A pod that names its node, and has a stamp that its owner wrote."""
    return member("g-0", node_name="n0", permitted=PermitStamp(8, 7), **fields)


def test_a_forged_stamp_moves_nobody_but_its_own_gang() -> None:
    """An attack: a pod with a node and a stamp of its owner's, then pods that pass all equals as if
    they healed it.
    """
    world = World(node("n0", gpus=8))
    world.create([forged(min_member=8)])
    world.settle()
    world.add_nodes(node("n0", gpus=8, unschedulable=True))
    world.create([member("g-1", min_member=8), member("g-2", min_member=8)])
    assert not goes_first(world.settle())


def test_a_stamp_that_is_written_later_proves_nothing() -> None:
    """An owner annotates a pod of his that somebody else bound, or one that waits and is bound
    then.
    """
    world = World(node("n0", gpus=8))
    (first,) = world.create([member("g-0", node_name="n0", min_member=8)])
    world.update(first, permitted=PermitStamp(8, 7))
    (second,) = world.create([member("g-1", scheduler_name="x", min_member=8)])
    world.update(second, permitted=PermitStamp(8, 7))
    world.update(second, node_name="n0")
    world.create([member("g-2", min_member=8)])
    world.add_nodes(node("n0", gpus=8, unschedulable=True))
    assert not goes_first(world.settle())


def test_a_pod_that_waits_with_a_stamp_has_none() -> None:
    """A stamp on a pod that has claims to wait for must not satisfy its gang."""
    world = World(node("n0", gpus=8))
    world.fate = lambda _: "later"
    world.create([member("g-0", permitted=PermitStamp(3, 7)), member("g-1"), member("g-2")])
    world.settle()
    stamps = {each.permit for each in world.state.members.all()}
    assert stamps == {PermitStamp(3, 1, together=JointStart(3, LATER_S))}


def test_a_stamp_that_a_binding_carried_counts() -> None:
    """Another instance of gangsched, which leads, binds pods that we see wait: it is ours when we
    lead.
    """
    world = World(node("n0", gpus=8))
    pods = [member(f"g-{index}") for index in range(3)]
    for each in pods:
        world.say(Applied(each))
        world.pods[each.uid] = each
        world.update(each, node_name="n0", permitted=PermitStamp(3, 1))
    lose(world, "g-2")
    world.add_nodes(node("n0", gpus=8, unschedulable=True))
    world.create([member("g-3")])
    assert goes_first(world.settle())


@pytest.mark.parametrize(
    ("guarded_s", "created_s", "first"),
    [
        (None, LATER_S, False),
        (GUARDED_S, LATER_S, True),
        (LATER_S, LATER_S, False),
        (LATER_S + 50, LATER_S, False),
    ],
)
def test_a_restart_knows_by_the_policy(
    guarded_s: int | None, created_s: int, *, first: bool
) -> None:
    """Stamps of pods that were created under the admission policy are proven; the gang is satisfied
    in any case.
    """
    world = started()
    world.restart(guarded_since_s=guarded_s)
    world.settle()
    assert world.state.registry.view("ns/g").satisfied
    lose(world, "g-2")
    world.add_nodes(node("n0", gpus=8, unschedulable=True))
    world.create([member("g-3", creation_s=created_s)])
    assert goes_first(world.settle()) is first


def test_what_is_left_stands_for_what_was_lost_before_a_restart() -> None:
    """One of three is left: of pods that came later, two of its shape go first, three or others do
    not.
    """
    later: dict[str, Any] = {"creation_s": LATER_S + 10}
    for pods, first in (
        ([member("g-3", **later), member("g-4", **later)], True),
        ([member("g-3", **later), member("g-4", **later), member("g-5", **later)], False),
        ([member("g-3", gpus=2, **later)], False),
    ):
        world = started()
        lose(world, "g-1", "g-2")
        world.restart(guarded_since_s=GUARDED_S)
        world.add_nodes(node("n0", gpus=8, unschedulable=True))
        world.create(pods)
        assert goes_first(world.settle()) is first


def test_the_policy_may_come_and_go() -> None:
    """It proves what came after it, once it is known; a stamp that was read under it
    stays proven.
    """
    world = World(node("n0", gpus=8))
    world.create([forged()])
    (waiting,) = members("g", 1, first=1, min_member=3)
    world.add_nodes(node("n0", gpus=8, unschedulable=True))
    world.create([waiting])
    seen = []
    for since_s in (None, LATER_S, GUARDED_S, None):
        world.say(StampsGuarded(since_s))
        seen.append(goes_first(world.settle()))
    assert seen == [False, False, True, True]


def in_two_racks(**stated: Any) -> tuple[World, list[Pod]]:
    """The binds of a gang of two are answered, and it runs in rack a; the free node of rack b takes
    exactly one member, so that it scores better than that of rack a.
    """
    world = World(
        node("a0", 4, labels={RACK: "a"}),
        node("a1", 4, labels={RACK: "a"}),
        node("b0", 2, labels={RACK: "b"}, unschedulable=True),
    )
    pods = world.create(members("g", 2, gpus=2, min_member=2, creation_s=LATER_S, **stated))
    world.turn()
    world.answer()
    assert set(world.bound().values()) == {"a0"}
    world.add_nodes(
        node("a0", 4, labels={RACK: "a"}, unschedulable=True),
        node("b0", 2, labels={RACK: "b"}),
    )
    return world, pods


def replacement(**stated: Any) -> Pod:
    """A member of the second in which the gang was created."""
    (pod,) = members("g", 1, first=9, gpus=2, min_member=2, creation_s=LATER_S, **stated)
    return pod


@pytest.mark.parametrize("is_terminating", [False, True])
def test_a_member_lost_before_its_gang_was_read_again_was_bound(*, is_terminating: bool) -> None:
    """B3, L3: it was bound and is lost in one turn, and another pod was created in the same second;
    that is a replacement, which goes home, and not what the start was sent without.
    """
    world, pods = in_two_racks()
    if is_terminating:
        world.update(world.pods[pods[1].uid], deleting=True)
    else:
        world.delete(pods[1])

    world.create([replacement()])
    world.settle()
    assert world.bound()["g-9"] == "a1"
    assert not world.state.registry.group("ns/g", world.now_s).rest


def test_members_that_come_and_go_unseen_are_one_place() -> None:
    """Q2: two of three lost one after the other in the place of one are one lost member."""
    world, pods = in_two_racks()
    world.delete(pods[1])
    (again,) = world.create([replacement()])
    world.turn()
    world.answer()
    world.delete(again)
    world.state.refresh(world.now_s)
    roster = world.state.registry.gangs["ns/g"].roster
    assert roster.places == 2


def test_the_status_tells_the_next_process_what_was_lost() -> None:
    """B3, I6: a member is lost and recorded in the PodGroup's status before gangsched restarts; a
    pod of the second in which the gang was created replaces it at home.
    """
    world = World(
        node("a0", 4, labels={RACK: "a"}),
        node("a1", 4, labels={RACK: "a"}),
    )
    world.declare(pod_group("g", 2))
    stated: dict[str, Any] = {"pod_group": True, "gpus": 4, "creation_s": LATER_S}
    pods = world.create(members("g", 2, **stated))
    assert world.settle().bound() == {"g-0": "a0", "g-1": "a1"}
    world.delete(pods[1])
    world.advance(10)
    world.store_statuses()
    world.restart(guarded_since_s=0)
    world.add_nodes(node("b0", 4, labels={RACK: "b"}))
    world.settle()
    assert world.state.registry.view("ns/g").unsent == 0
    world.create(members("g", 1, first=9, **stated))
    world.state.refresh(world.now_s)
    assert not world.state.registry.group("ns/g", world.now_s).rest
    assert world.settle().bound()["g-9"] == "a1"
