"""What is counted and timed of gangs, on the virtual clock of a `World`."""

from __future__ import annotations

from typing import Any

from gangsched.model.objects import Phase, Pod
from gangsched.model.protocol import Bind
from gangsched.state.groups import POD_GROUP_WAIT_S
from gangsched.state.reporting.gang_numbers import GangStart, Healed, Loss, count_pending
from tests.builders import members, node, pod
from tests.world import World


def starts(world: World) -> list[GangStart]:
    """The starts since last asked."""
    return world.state.waits.take_started()


def crowded(name: str, **fields: Any) -> tuple[World, Pod]:
    """Four GPUs, two of them taken by another pod; a NonStrict gang of four holds the other two."""
    world = World(node("a", gpus=4))
    (other,) = world.create(pod("other", gpus=2, node_name="a"))
    world.create(members(name, 4, mode="NonStrict", **fields))
    return world.settle(), other


def test_a_gang_waits_from_its_quorum_to_the_last_answer() -> None:
    """Neither the time before the quorum counts, nor is a bind over before its answer."""
    world = World(node("a", gpus=3))
    pods = members("g", 4)
    world.create(pods[:3])
    world.advance(100.0)
    world.create(pods[3:])
    world.advance(7.0)
    assert starts(world) == []
    world.add_nodes(node("b", gpus=1))
    world.fate = lambda bind: "later" if bind.uid == pods[0].uid else "bound"
    world.advance(2.0)
    assert len(world.bound()) == 3
    assert starts(world) == []
    world.fate = lambda _: "bound"
    world.settle()
    (start,) = starts(world)
    assert (start.min_member, start.wait_s) == (4, 9.0)
    assert starts(world) == []


def test_the_rounds_of_a_start_are_counted() -> None:
    """R1: earlier rounds hold room, the last one permits."""
    world, other = crowded("g")
    assert starts(world) == []
    world.delete(other)
    world.settle()
    (start,) = starts(world)
    assert start.rounds == world.state.registry.groups["ns/g"].rounds > 1


def test_members_above_the_minimum_are_not_waited_for() -> None:
    """The answer to the bind that completes the minimum ends the wait; a surplus member starts
    nothing.
    """
    world = World(node("a", gpus=8))
    answered: list[str] = []

    def first_two(order: object) -> str:
        assert isinstance(order, Bind)
        answered.append(order.uid)
        return "bound" if len(answered) <= 2 else "later"

    world.fate = first_two
    world.create(members("g", 3, min_member=2))
    world.turn()
    world.answer()
    world.turn()
    assert [start.min_member for start in starts(world)] == [2]
    world.fate = lambda _: "bound"
    world.settle()
    assert starts(world) == []


def test_a_quorum_that_is_lost_waits_anew() -> None:
    """Who has too few members does not wait for room."""
    world = World(node("a", gpus=1))
    pods = members("g", 2)
    world.create(pods)
    world.advance(50.0)
    world.delete(pods[1])
    world.advance(50.0)
    world.create([pod("g-2", gang_metadata=pods[0].gang_metadata)])
    world.advance(5.0)
    world.add_nodes(node("b", gpus=1))
    world.settle()
    (start,) = starts(world)
    assert start.wait_s == 5.0


def test_a_gang_that_ended_and_came_back_is_another_start() -> None:
    """Its pods are deleted and made again: two starts, each with its own wait."""
    world = World(node("a", gpus=2))
    first = members("g", 2)
    world.create(first)
    world.settle()
    for each in first:
        world.delete(each)
    world.advance(30.0)
    world.create(members("g", 2))
    world.settle()
    assert [start.wait_s for start in starts(world)] == [0.0, 0.0]


def test_plain_pods_are_not_timed() -> None:
    """They are no gangs."""
    world = World(node("a"))
    world.create([pod("alone")])
    assert world.settle().bound()
    assert starts(world) == []


def test_a_restart_of_the_daemon_starts_no_gang_again() -> None:
    """A gang that runs already is not taken for one that starts."""
    world = World(node("a", gpus=2))
    world.create(members("g", 2))
    world.settle()
    world.restart()
    world.settle()
    assert starts(world) == []


def test_what_waits_is_counted_by_reason() -> None:
    """Gangs and pods of ours, plain ones among the pods only; another scheduler's are not ours to
    count.
    """
    world = World(node("a", gpus=2))
    world.create(members("big", 4))
    world.create(members("absent", 2, pod_group=True))
    world.create([pod("alone", gpus=8), pod("foreign", scheduler_name="default-scheduler")])
    world.advance(POD_GROUP_WAIT_S)
    pending = count_pending(world.state.registry)
    assert pending.gangs == {"Unschedulable": 1, "PodGroupMissing": 1}
    assert pending.pods == {"Unschedulable": 4 + 1, "PodGroupMissing": 2}
    assert (pending.broken, pending.held) == (0, 0)


def test_who_no_plan_has_looked_at_is_new() -> None:
    """Between its arrival and the first verdict a gang has a reason of its own, and is not lost."""
    world = World(node("a", gpus=2))
    world.create(members("g", 4))
    world.state.refresh(world.now_s)
    assert count_pending(world.state.registry).gangs == {"New": 1}


def test_gangs_of_a_group_have_the_reason_that_each_was_told() -> None:
    """Of a group, one gang may lack members and the other wait for it."""
    world = World(node("a", gpus=8))
    world.create(members("one", 2, groups=["ns/one", "ns/two"]))
    world.create(members("two", 2, min_member=3, groups=["ns/one", "ns/two"]))
    world.turn()
    assert count_pending(world.state.registry).gangs == {
        "WaitingForGang": 1,
        "WaitingForMembers": 1,
    }


def test_broken_gangs_are_counted() -> None:
    """B5: a gang below its minimum whose replacement waits."""
    world = World(node("a", gpus=2), node("b", gpus=2))
    first, *_ = world.create(members("g", 4))
    world.settle()
    assert count_pending(world.state.registry).broken == 0
    world.delete(first)
    world.create(members("g", 1, gpus=2, first=9, min_member=4))
    world.settle()
    assert count_pending(world.state.registry).broken == 1


def test_a_hold_counts_until_it_times_out() -> None:
    """R3, T2: a NonStrict gang that holds for its wait time releases, and is counted once."""
    world, _ = crowded("g", wait="60s")
    assert (count_pending(world.state.registry).held, world.state.counts.timed_out) == (2, 0)
    world.advance(61.0)
    assert (count_pending(world.state.registry).held, world.state.counts.timed_out) == (0, 1)


def test_a_yield_is_counted() -> None:
    """D1: of two gangs that hold what the other needs, one yields, once."""
    world, other = crowded("h", creation_s=2)
    assert world.state.counts.yielded == 0
    world.delete(other)
    world.create(members("g", 4, mode="NonStrict", creation_s=1))
    world.settle()
    assert world.state.counts.yielded == 1


def test_a_kubelet_rejection_is_counted() -> None:
    """B6: once a pod, however often it is shown; failures of other kinds are none."""
    world = World(node("a", gpus=2))
    one, two = world.create(members("g", 2))
    world.settle()
    rejected = world.update(one, phase=Phase.FAILED, status_reason="OutOfcpu", rejection="OutOfcpu")
    world.update(rejected, labels=(("seen", "again"),))
    world.update(two, phase=Phase.FAILED, status_reason="Evicted")
    assert world.state.counts.kubelet_rejected == 1


def test_losses_are_counted_once_and_by_cause() -> None:
    """L1: also if a lost pod is deleted later; members that succeed are not lost."""
    world = World(node("a", 4), node("b", 1))
    pods = world.create(members("g", 5))
    world.settle()
    on_b = next(pod for pod in pods if world.bound()[pod.name] == "b")
    deleted, rejected, failed, done = (pod for pod in pods if pod is not on_b)

    world.delete(deleted)
    world.update(rejected, phase=Phase.FAILED, status_reason="OutOfcpu", rejection="OutOfcpu")
    world.delete(world.update(failed, phase=Phase.FAILED, status_reason="Evicted"))
    world.update(done, phase=Phase.SUCCEEDED)
    world.remove_node("b")
    world.delete(on_b)
    assert world.state.counts.losses == dict.fromkeys(Loss, 1)


def test_a_replacement_is_timed_from_its_creation_to_its_bind() -> None:
    """L14: at home, or outside of it; members of a start are no replacements."""
    racks = ("a", "a", "b")
    nodes = [
        node(f"n{number}", 2, labels={"topology.kubernetes.io/rack": rack})
        for number, rack in enumerate(racks)
    ]
    world = World(*nodes)
    one, two = world.create(members("g", 2, gpus=2))
    world.settle()
    assert set(world.bound().values()) == {"n0", "n1"}
    assert world.state.waits.take_healed() == []

    world.delete(one)
    world.create(members("g", 1, first=2, min_member=2, gpus=2, creation_s=7))
    world.settle()
    assert world.state.waits.take_healed() == [Healed(is_outside=False, created_s=7)]

    world.delete(two)
    world.create(pod("other", gpus=2, priority=1))
    world.settle()
    world.create(members("g", 1, first=3, min_member=2, gpus=2, creation_s=9))
    world.settle()
    assert world.state.waits.take_healed()[0].is_outside


def test_waiting_pods_are_counted_by_namespace_and_impossible_gangs_apart() -> None:
    """A gang that fits on no empty node is impossible; a namespace without waiting pods is not
    remembered.
    """
    world = World(node("a", 8))
    world.create(members("large", 2, gpus=16), members("g", 1, gpus=8))
    world.create(members("waits", 1, gpus=8))
    world.settle()
    pending = world.state.pending.now()
    assert (dict(pending.namespaces), pending.never) == ({"ns": 3}, 1)
    world.delete(*[pod for pod in world.pods.values() if pod.name.startswith(("large", "waits"))])
    world.settle()
    pending = world.state.pending.now()
    assert (dict(pending.namespaces), pending.never) == ({}, 0)
