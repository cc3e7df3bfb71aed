"""What is told of reservations, to whom and how often, on a virtual clock."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gangsched.api.timestamps import parse_timestamp
from gangsched.model.protocol import SetPodCondition, SetPodGroupStatus
from gangsched.model.reservation import Blocker, NotEntitled, NotReserved, Reservations, Reserved
from tests.builders import members, node, pod, pod_group
from tests.world import WALL, World

NOW_S = parse_timestamp(WALL) or 0
T_S = NOW_S + 3_600.0
"""2030-01-01T01:00Z."""


def waiting(**fields: Any) -> World:
    """A gang of two whole nodes in a cluster that is full; `fields` are those of its PodGroup."""
    world = World(node("n1", 8), node("n2", 8))
    world.declare(pod_group("big", 2, **fields))
    world.create(members("old", 2, gpus=8))
    world.told()
    world.create(members("big", 2, gpus=8, pod_group=True))
    world.told()
    return world


def reserved(**fields: Any) -> Reserved:
    """Both nodes for the gang."""
    given: dict[str, Any] = {
        "group": "ns/big",
        "namespaces": frozenset({"ns"}),
        "priority": 0,
        "since_s": 0,
        "run_time_s": math.inf,
        "at_s": T_S,
        "promised_s": T_S,
        "nodes": ("n1", "n2"),
        "first": True,
        "waits_for": (Blocker("ns/old", "ns"),),
    }
    return Reserved(**{**given, **fields})


def reserve(world: World, *standing: Reserved, **why: NotReserved) -> None:
    """A plan leaves these standing."""
    reasons = {f"ns/{group}": each for group, each in why.items()}
    left = Reservations(standing=standing, not_reserved=reasons)
    world.state.reports.reserved(left, now_s=world.now_s, wall_s=NOW_S)
    world.told()


def condition(world: World, name: str = "big") -> tuple[str, str, str]:
    """Status, reason and message of the condition Reserved; empty where there is none."""
    found: dict[str, str] = next(
        (each for each in world.status(name)["conditions"] if each["type"] == "Reserved"), {}
    )
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


def writes(world: World, kind: type) -> int:
    """How often conditions of pods, or statuses of PodGroups, were written."""
    return sum(isinstance(each, kind) for each in world.reports)


def test_a_reservation_is_told_on_the_pod_group() -> None:
    """H13, E1: its condition says so, the refusal on it ends so, and no pod is written for it."""
    world = waiting()
    before = writes(world, SetPodCondition)
    reserve(world, reserved())
    text = (
        "room on 2 nodes (n1, n2) is reserved; starts at 2030-01-01T01:00Z at the latest, when"
        " ns/old has ended"
    )
    assert condition(world) == ("True", "Timed", text)
    (scheduled,) = (
        each for each in world.status("big")["conditions"] if each["type"] == "Scheduled"
    )
    assert scheduled["reason"] == "Unschedulable"
    assert text[0].upper() + text[1:] in scheduled["message"]
    assert writes(world, SetPodCondition) == before


def test_without_a_pod_group_the_oldest_pod_is_told() -> None:
    """H13, E1: the one place that has what moves."""
    world = World(node("n1", 8))
    world.create(members("old", 1, gpus=8))
    world.told()
    pods = world.create(members("g", 2, gpus=8))
    world.told()
    reserve(world, reserved(group="ns/g"))
    world.advance(5.0)
    reasons, texts = zip(*(world.condition(each) for each in pods), strict=True)
    assert set(reasons) == {"Unschedulable"}
    assert ["Room on 2 nodes" in text for text in texts] == [True, False]


def test_a_plain_pod_is_told_after_the_words_of_kube_scheduler() -> None:
    """H13, E1: what the default scheduler says comes first; what is reserved after it."""
    world = World(node("n1", 8))
    world.create(members("old", 1, gpus=8))
    world.told()
    (alone,) = world.create(pod("p", gpus=8))
    world.told()
    reserve(world, reserved(group="pod:ns/p", nodes=("n1",)))
    world.advance(30.0)
    reason, text = world.condition(alone)
    assert reason == "Unschedulable"
    assert text.startswith("0/1 nodes are available: 1 Insufficient nvidia.com/gpu. ")
    assert (
        "Room on 1 node (n1) is reserved; starts at 2030-01-01T01:00Z at the latest, when ns/old"
        " has ended." in text
    )


def test_small_moves_are_not_written() -> None:
    """H13: a time that moves by less than five minutes costs no write, however often it does."""
    world = waiting()
    reserve(world, reserved())
    before = len(world.reports)
    for seconds in range(0, 300, 10):
        reserve(world, reserved(at_s=T_S - seconds, waits_for=()))
    world.advance(60.0)
    assert len(world.reports) == before


def test_many_moves_are_written_at_most_every_five_seconds() -> None:
    """H13, E1: a reservation that jumps about ten times a second is told, and does not flood."""
    world = waiting()
    reserve(world, reserved())
    before = writes(world, SetPodGroupStatus)
    for turn in range(100):
        left = Reservations(standing=(reserved(at_s=T_S + 1_000 * (turn % 2)),))
        world.state.reports.reserved(left, now_s=world.now_s, wall_s=NOW_S)
        world.advance(0.1)
    assert 1 <= writes(world, SetPodGroupStatus) - before <= 3


def test_the_kind_is_told_at_once() -> None:
    """H13: a fence that becomes a time is news for its condition."""
    world = waiting()
    reserve(world, reserved(at_s=math.inf, empty=1))
    assert condition(world)[1:] == (
        "Fenced",
        (
            "1 of 2 nodes is free and reserved; one more must become empty, but its pods declare no"
            " run time"
        ),
    )
    reserve(world, reserved())
    assert condition(world)[:2] == ("True", "Timed")


def test_a_start_ends_it_once() -> None:
    """H13: False with the reason Started, which stays while the gang runs and when it has ended."""
    world = waiting()
    reserve(world, reserved())
    world.delete(*[pod for pod in world.pods.values() if pod.name.startswith("old")])
    world.settle()
    reserve(world)
    assert condition(world)[:2] == ("False", "Started")
    world.delete(*[pod for pod in world.pods.values() if pod.name.startswith("big")])
    world.told()
    assert condition(world)[:2] == ("False", "Started")


def test_a_loss_says_its_cause() -> None:
    """H13: False with the reason Lost and why no other is made; a new one is told as new."""
    world = waiting()
    reserve(world, reserved())
    reserve(world, big=NotReserved(why=NotEntitled.NAMESPACE, namespace="ns", offers=2))
    assert condition(world) == (
        "False",
        "Lost",
        (
            "not reserved: namespace ns already has 2 reservations, the maximum"
            " (reservations_per_namespace)"
        ),
    )
    reserve(world, reserved())
    assert condition(world)[:2] == ("True", "Timed")


def test_what_nobody_needs_any_more_ends() -> None:
    """H13: False with the reason NotNeeded when the gang's pods are gone."""
    world = waiting()
    reserve(world, reserved())
    world.delete(*[pod for pod in world.pods.values() if pod.name.startswith("big")])
    world.settle()
    reserve(world)
    assert condition(world)[:2] == ("False", "NotNeeded")


def stored(status: str, reason: str) -> dict[str, Any]:
    """The status that an earlier process left."""
    entry = {
        "type": "Reserved",
        "status": status,
        "reason": reason,
        "message": "as it was",
        "lastTransitionTime": WALL,
    }
    return {"conditions": [entry]}


def test_after_a_restart_the_stored_condition_stays_until_better_is_known() -> None:
    """H13, H16: a gang that still waits keeps what it was told; it ends when a reason is known, or
    it has started.
    """
    world = waiting(status=stored("True", "Timed"))
    assert condition(world) == ("True", "Timed", "as it was")
    reserve(world, big=NotReserved(why=NotEntitled.LATER))
    assert condition(world)[:2] == ("False", "Lost")


@pytest.mark.parametrize("reason", ["Started", "NotNeeded", "Lost"])
def test_after_a_restart_what_has_ended_stays_ended(reason: str) -> None:
    """H16: the end of a reservation is not told again."""
    world = waiting(status=stored("False", reason))
    assert condition(world) == ("False", reason, "as it was")


def test_without_reservations_there_is_no_condition() -> None:
    """H13: a gang that never had one is told nothing of the kind; one that may have none, why."""
    world = waiting()
    assert condition(world) == ("", "", "")
    reserve(world, big=NotReserved(why=NotEntitled.IMPOSSIBLE, needs=12, offers=8))
    world.advance(5.0)
    (scheduled,) = (
        each for each in world.status("big")["conditions"] if each["type"] == "Scheduled"
    )
    assert scheduled["message"].endswith("Not reserved: it needs 12 nodes, but the cluster has 8.")
    assert condition(world) == ("", "", "")


def test_who_is_far_behind_is_told_why() -> None:
    """H14: plans say nothing of those who come after what may be reserved; the number of
    reservations does.
    """
    world = waiting()
    others = [reserved(group=f"ns/other-{number}") for number in range(2)]
    reserve(world, *others)
    world.state.reports.note("ns/big", world.now_s)
    world.advance(5.0)
    (scheduled,) = (
        each for each in world.status("big")["conditions"] if each["type"] == "Scheduled"
    )
    assert (
        "Not reserved: namespace ns already has 2 reservations, the maximum"
        " (reservations_per_namespace)." in scheduled["message"]
    )
    assert condition(world) == ("", "", "")
