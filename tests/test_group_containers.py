"""What is known of a group is in its record: other containers of the state have groups only as
declared indexes.

The state of several worlds is walked after every turn. Their groups are trees, whose ids are those
of no gang.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from gangsched.api import keys
from gangsched.model.gang import TREE
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.objects import Pod
from gangsched.model.plan import Plan
from gangsched.model.protocol import Message
from gangsched.model.reservation import ReservationLimits
from gangsched.state.group_record import GroupRecord
from gangsched.state.groups import Registry
from gangsched.state.queueing import batches
from gangsched.state.rule_set import Rules
from gangsched.state.scheduling import SchedulingState
from tests.builders import members, node, pod, running
from tests.world import World

INDEXES: Mapping[str, str] = {
    "Registry.groups": "the records",
    # Recounted by `validate`.
    "Queue._active": "planned next",
    "Parked.groups": "in the order in which they were parked",
    "Holds._holding": "whose clock runs",
    "Holds._rooms": "whose members have room that they may yield",
    "Holds._unlooked": "that may have lost held room, until they are looked at",
    "Holds._yielded": "that wait for another group",
    "Preemptors._searching": "for which the next plan goes on looking for victims",
    "Preemptions._lowest": "woken when a group of lower priority waits",
    "HoldingBack._waiting": "of which the first holds others back",
    "Nominations._of_group": "whose nomination outlives them until the next look",
    "TakenGroups._uids": "whose victims outlive them until they are deleted",
    "Ineligible._ineligible": "compared with nodes that change",
    "StandingReservations.heads": "those of the standing reservations, which may outlive them",
    "StandingReservations._examined": "whose results end at times",
    "StandingReservations._found": "the candidates, in order",
    "ReservationReports._told": "told of a reservation, which may end",
    "Patience._paused": "looked at when there are other nodes",
    "Provisioning._group_of": "the group of each ProvisioningRequest",
    "Provisioning._provisioned": "looked at when there are other nodes",
    "Provisioning._fenced": "whose nodes are kept from others",
    # In the order of a time.
    "Timers._at_s": "when back-offs and ineligibility end, and groups are woken or reported",
    # In the order of a plan, or as its input.
    "Batches._rest": "the order that plans follow",
    "Batches._known": "those in that order",
    "SchedulingState._looked_at": "decided in the current pass over the queue",
    "StandingReservations._later": (
        "reservations to be made anew, which outlive their groups until the next plan"
    ),
    "StandingReservations._now": "reservations that are being made anew",
    "Fences._fences": "idle times of fences, which outlive their groups until the next plan",
    "Overdue.heads": "what may be evicted for heads, as input of a plan",
    # What is left to do.
    "PendingCount._changed": "to be counted anew, also groups that are gone",
    "_Waiting.told": "by room, in the order in which they were told of it, so that they take turns",
}
"""Containers that have ids or records of groups, and in which order or for what."""

SELDOM = {
    "Preemptors._searching",
    "Holds._unlooked",
    "Holds._yielded",
    "Overdue.heads",
    "Patience._paused",
    "Provisioning._fenced",
    "Provisioning._group_of",
    "Provisioning._provisioned",
    "SchedulingState._looked_at",
    "StandingReservations._examined",
    "StandingReservations._found",
    "StandingReservations._later",
    "StandingReservations._now",
}
"""Those of which the worlds below have nothing after a turn."""


def of_groups(state: SchedulingState, ids: Iterable[str]) -> set[str]:
    """Containers of the state, as Class.attribute, that have ids of these groups or their records
    as keys or items.

    The records themselves, which many parts refer to, are the registry's.
    """
    ids, found, seen, left = (
        set(ids),
        set[str](),
        {id(state.registry.groups)},
        list[object]([state]),
    )
    while left:
        owner = left.pop()
        if id(owner) in seen:
            continue
        seen.add(id(owner))
        for name, value in _attributes(owner):
            if value is state.registry.groups and not isinstance(owner, Registry):
                continue
            inner = [value, *(value.values() if isinstance(value, Mapping) else ())]
            for each in inner:
                if isinstance(each, Mapping | set | frozenset | list | deque):
                    if any(
                        isinstance(key, GroupRecord) or (isinstance(key, str) and key in ids)
                        for key in each
                    ):
                        found.add(f"{type(owner).__name__}.{name}")
                    left += [item for item in each if _is_of_state(item)]
                elif _is_of_state(each):
                    left.append(each)
    return found


def _is_of_state(value: object) -> bool:
    """Whether the object is a part of the state that may have containers; a record is what they are
    indexes of.
    """
    return type(value).__module__.startswith("gangsched.state") and not isinstance(
        value, GroupRecord
    )


def _attributes(owner: object) -> Iterator[tuple[str, Any]]:
    yield from vars(owner).items() if hasattr(owner, "__dict__") else ()
    for kind in type(owner).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(owner, name):
                yield name, getattr(owner, name)


class Walked(World):
    """A world whose state is walked after every turn."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        self.found: set[str] = set()
        super().__init__(*args, **fields)

    def turn(self) -> Plan | None:
        made = super().turn()
        self._walk()
        return made

    def say(self, *given: Message) -> None:
        super().say(*given)
        self._walk()

    def _walk(self) -> None:
        ids = {group_id for group_id in self.state.registry.groups if group_id.startswith(TREE)}
        self.found |= of_groups(self.state, ids)


def tree(parent: str, children: int, number: int, *, least: int = 1, **fields: Any) -> list[Pod]:
    """The pods of a tree: so many children, of so many pods each."""
    names = [f"{parent}-{n}" for n in range(children)]
    return [
        each
        for name in names
        for each in members(name, number, parent=parent, min_children=least, **fields)
    ]


def preempting() -> Walked:
    """A tree evicts another one; one waits behind those, one is the lowest, and another one is held
    back.
    """
    world = Walked(node("a", 8), node("b", 8), preempts=True)
    world.create(
        running(each, "ab"[n % 2]) for n, each in enumerate(tree("low", 2, 2, gpus=4, priority=0))
    )
    world.create(tree("high", 2, 2, gpus=4, priority=9), tree("lowest", 1, 1, gpus=8, priority=-5))
    world.settle()
    world.create(tree("more", 3, 8, gpus=8, priority=5))
    world.settle()
    world.advance(120)
    return world


def holding_back() -> Walked:
    """Nothing lower runs that a tree could evict, so it holds back another one of lower priority
    that waits.
    """
    world = Walked(node("a", 8), node("b", 8), preempts=True)
    runs = world.create(running(pod(f"runs{n}", gpus=8, priority=9), "ab"[n]) for n in range(2))
    world.create(tree("high", 1, 1, gpus=8, priority=5), tree("low", 1, 1, gpus=8, priority=0))
    world.settle()
    world.delete(runs[0])
    world.turn()
    return world


def holding() -> Walked:
    """NonStrict gangs hold, and one yields to the other."""
    world = Walked(node("a", 4))
    blockers = world.create(pod(f"b{n}", node_name="a") for n in range(4))
    for name in ("one", "two"):
        world.create(members(name, 4, mode="NonStrict", wait="900s"))
        world.settle()
        world.delete(*blockers[:2])
        del blockers[:2]
        world.settle()
    world.advance(200)
    return world


def reserving() -> Walked:
    """A tree has a timed reservation, one a fence, one waits for both, and one is larger than the
    cluster.
    """
    rules = Rules(reservations=ReservationLimits(share=1.0, reservations=2), policy=GpuPolicy())
    world = Walked(*(node(f"n{n}", 8) for n in range(4)), rules=rules)
    ends = ((keys.EXPECTED_RUNTIME, "300s"),)
    world.create(running(pod("ends", gpus=8, run_time_metadata=ends, start_s=world.wall_s()), "n0"))
    world.create(running(pod(f"stays{n}", gpus=8), f"n{n}") for n in (1, 2, 3))
    for name, number in (("huge", 9), ("timed", 1), ("fenced", 2), ("waits", 1), ("more", 1)):
        world.create(tree(name, 1, number, gpus=8))
        world.settle()
    world.advance(30)
    world.remove_node("n3")
    world.advance(30)
    return world


def crowded(patch: pytest.MonkeyPatch) -> Walked:
    """More trees are ready than one plan takes, binds fail, and room is missing."""
    patch.setattr(batches, "MOST", 2)
    world = Walked(node("a", 4))
    world.fate = lambda _: "failed"
    for number in range(7):
        world.create(tree(f"t{number}", 1, 2))
    for _ in range(5):
        world.turn()
        world.answer()
        world.update(next(iter(world.pods.values())), labels={"changed": "yes"})
    return world


def test_groups_are_known_by_their_records_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other container of groups is a declared index, and the worlds have nearly all
    of them.
    """
    worlds = (preempting(), holding_back(), holding(), reserving(), crowded(monkeypatch))
    found = set[str]().union(*(world.found for world in worlds))
    assert found <= INDEXES.keys()
    assert INDEXES.keys() - found <= SELDOM


def test_a_container_by_group_is_found_wherever_it_is() -> None:
    """A dictionary, one inside of another, a set of ids or of records, in any part of the state."""
    world = Walked(node("a", 1))
    world.create(tree("t", 1, 2))
    world.settle()
    (group,) = world.state.registry.groups.values()
    plants: dict[str, Any] = {
        "by_id": {group.id: 1.0},
        "by_node": {"a": {group.id: 1}},
        "ids": {group.id},
        "records": {group},
        "gangs": dict.fromkeys(group.gangs),
    }
    for name, planted in plants.items():
        state: Any = world.state
        state.queue.planted = planted
        is_found = "Queue.planted" in of_groups(state, world.state.registry.groups)
        assert is_found is (name != "gangs"), name
    assert isinstance(world.state, SchedulingState)
