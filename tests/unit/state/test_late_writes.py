"""What is written on pods late, by the process before or by an unanswered request of this one
(semantics V24, E1).
"""

from __future__ import annotations

import math

import pytest

from gangsched.model.objects import Pod, ScheduledCondition
from gangsched.model.protocol import CancelPreemption, SetPodCondition, WriteUndecided
from gangsched.state import late_writes
from gangsched.state.late_writes import LOOK_AFTER_S
from tests.builders import members, node, pod
from tests.unit.state.test_holds import waiting_for_claims
from tests.world import World

OLDER = ScheduledCondition("False", "Unschedulable", "0 of 9 nodes are free")


def waiting() -> tuple[World, Pod]:
    """A gang waits for its second member, and gangsched was restarted."""
    world = World(node("a", 16), preempts=True)
    (first,) = world.create(members("g", 1, min_member=2))
    world.told()
    world.restart()
    return world.told(), first


def conditions(world: World) -> list[SetPodCondition]:
    """The conditions of pods that were told."""
    return [report for report in world.reports if isinstance(report, SetPodCondition)]


def cancelled(world: World) -> list[str]:
    """The names of pods whose nominations were cleared."""
    orders = [order for order in world.ordered if isinstance(order, CancelPreemption)]
    return [member.name for order in orders for member in order.members]


def test_a_nomination_that_came_late_is_cleared() -> None:
    """V24: an autoscaler takes a nominated pod for one that has a node soon."""
    world, first = waiting()

    world.update(first, nominated_node="a")
    world.advance(LOOK_AFTER_S + 1)

    assert cancelled(world) == [first.name]


def test_our_own_nomination_is_not_taken_for_a_late_one() -> None:
    """V24: the victim takes its time to go."""
    world = World(node("a", 1), preempts=True)
    world.create(pod("low", priority=0, gpus=1, grace_s=400))
    world.settle()
    (urgent,) = world.create(pod("urgent", priority=10, gpus=1))

    world.advance(LOOK_AFTER_S + 1)

    assert world.pods[urgent.uid].nominated_node == "a"
    assert not world.pods[urgent.uid].node_name
    assert cancelled(world) == []


@pytest.mark.parametrize("restarts", [True, False])
def test_a_condition_that_came_late_is_told_again(*, restarts: bool) -> None:
    """E1: what the pod says is what is true, though the verdict does not change any more."""
    world, first = waiting()
    if not restarts:
        world.update(first, condition=None)

    world.update(first, condition=OLDER)
    before = len(conditions(world))
    world.advance(LOOK_AFTER_S + 1)

    assert len(conditions(world)) == before + 1
    assert world.condition(first)[0] == "WaitingForMembers"


def test_what_this_process_sent_in_vain_and_is_written_late_is_told_again() -> None:
    """E1: the first of two conditions got no answer, and is written over the second one."""
    world = World(node("a", 16))
    (first,) = world.create(members("g", 1, min_member=2))
    world.told()
    world.advance(10 * LOOK_AFTER_S)  # long after the look for the process before

    world.state.apply(WriteUndecided(first.uid), now_s=world.now_s)
    world.advance(LOOK_AFTER_S / 2)
    world.update(first, condition=OLDER)
    assert world.condition(first)[0] == "Unschedulable"
    world.advance(LOOK_AFTER_S / 2 + 1)

    assert world.condition(first)[0] == "WaitingForMembers"


def test_a_nomination_of_this_process_that_is_written_late_is_cleared() -> None:
    """V24: it was cancelled, and is carried out all the same."""
    world = World(node("a", 16), preempts=True)
    (first,) = world.create(members("g", 1, min_member=2))
    world.told()
    world.advance(10 * LOOK_AFTER_S)

    world.state.apply(WriteUndecided(first.uid), now_s=world.now_s)
    world.update(first, nominated_node="a")
    world.advance(LOOK_AFTER_S + 1)

    assert cancelled(world) == [first.name]


def test_a_condition_that_waits_for_claims_is_compared_too() -> None:
    """E5: a member that has a node and waits for its volume says so."""
    world = waiting_for_claims()
    pod_waits = next(iter(world.pods.values()))
    world.told()
    told = world.condition(pod_waits)
    assert told[0] == "WaitingForVolumes"

    world.state.apply(WriteUndecided(pod_waits.uid), now_s=world.now_s)
    world.update(pod_waits, condition=OLDER)
    world.advance(LOOK_AFTER_S + 1)

    assert world.condition(pod_waits) == told


def test_a_pod_that_is_gone_is_not_looked_at() -> None:
    """The answer may come after its deletion."""
    world, first = waiting()
    world.advance(10 * LOOK_AFTER_S)
    world.delete(first)

    world.state.apply(WriteUndecided(first.uid), now_s=world.now_s)

    assert world.state.late_writes.next_deadline_s() == math.inf


def test_conditions_that_are_stored_are_not_written_again() -> None:
    """E1: 10,000 waiting pods cause no write."""
    world, _ = waiting()
    before = len(conditions(world))

    world.advance(10 * LOOK_AFTER_S)

    assert len(conditions(world)) == before


def test_a_turn_looks_at_some_groups_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """I10: tens of thousands of pods may wait, and a turn of all of them would stop everybody."""
    monkeypatch.setattr(late_writes, "LOOKS_A_TURN", 2)
    world = World(node("a", 16), preempts=True)
    pods = [world.create(members(f"g{number}", 1, min_member=2))[0] for number in range(5)]
    world.told()
    world.restart()
    world.told()

    for waiting_pod in pods:
        world.update(waiting_pod, nominated_node="a")
    world.advance(LOOK_AFTER_S - 1)
    assert cancelled(world) == []

    late = world.state.late_writes
    at_s = late.next_deadline_s()
    numbers = []
    while late.next_deadline_s() <= at_s:
        numbers.append(len(late.due(at_s)))

    assert numbers == [1, 1, 1, 1, 1]
