"""Reservations over several plans: what stands, who passes, what wakes whom (H3-H9, H12,
H16, H17).
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from gangsched.api import keys
from gangsched.core.cycle import Limits
from gangsched.model.objects import Pod
from gangsched.model.protocol import Applied
from gangsched.model.reservation import NotEntitled, ReservationLimits
from gangsched.state.rule_set import Rules
from gangsched.turn import prepare
from tests.builders import gang_metadata, members, node, pod, pod_group, running, shape
from tests.sizes import of_size
from tests.world import EPOCH_S, World

LIMITS = ReservationLimits(share=1.0)


def world(nodes: int = 4, **limits: Any) -> World:
    """Nodes of 8 GPUs, with reservations on."""
    return World(
        *(node(f"n{n:02}") for n in range(nodes)),
        rules=Rules(reservations=replace(LIMITS, **limits) if limits else LIMITS),
    )


def states(run_s: float) -> tuple[tuple[str, str], ...]:
    """What a pod states of its run time."""
    return ((keys.EXPECTED_RUNTIME, f"{run_s}s"),)


def plain(
    there: World, name: str, gpus: int = 8, *, run_s: float | None = None, **fields: Any
) -> Pod:
    """A plain pod is created now."""
    fields.setdefault("creation_s", int(EPOCH_S + there.now_s))
    made = pod(name, gpus=gpus, run_time_metadata=states(run_s) if run_s else (), **fields)
    there.create(made)
    return made


def gang_of(
    there: World,
    name: str,
    number: int,
    gpus: int = 8,
    *,
    run_s: float | None = None,
    **fields: Any,
) -> list[Pod]:
    """A gang is created now."""
    fields.setdefault("creation_s", int(EPOCH_S + there.now_s))
    return there.create(
        members(name, number, gpus=gpus, run_time_metadata=states(run_s) if run_s else (), **fields)
    )


def full(nodes: int = 4, run_s: float | None = 100.0, **limits: Any) -> tuple[World, list[Pod]]:
    """A world each node of which is taken by a pod that states its run time."""
    there = world(nodes, **limits)
    taken = [plain(there, f"r{n}", run_s=run_s and run_s + n) for n in range(nodes)]
    there.settle()
    return there, taken


def standing(there: World) -> list[tuple[str, float, str]]:
    """(group, seconds until it starts, its nodes) of what stands."""
    now_s = EPOCH_S + there.now_s
    return [
        (each.group, each.at_s - now_s, "".join(name[-1] for name in each.nodes))
        for each in there.state.reservations.standing
    ]


def test_a_gang_that_does_not_fit_has_a_reservation_at_once() -> None:
    """Whole nodes: the first two that end."""
    there, _ = full()
    gang_of(there, "g", 2)
    there.settle()
    assert standing(there) == [("ns/g", 101.0, "01")]


def test_a_plan_without_the_head_keeps_off_its_room() -> None:
    """H12: the pod ends early, and nobody who comes later gets its node, but who is over in time
    does.
    """
    there, taken = full()
    gang_of(there, "g", 2)
    there.settle()
    there.advance(10)
    there.delete(taken[0])
    there.settle()
    for n in range(5):
        plain(there, f"long-{n}", 1)
    short = plain(there, "short", 1, run_s=80)
    there.settle()
    assert set(there.bound()) == {"r1", "r2", "r3", "short"}
    assert there.pods[short.uid].node_name == "n00"


def test_it_starts_when_its_room_is_free() -> None:
    """And the reservation is gone."""
    there, taken = full()
    gang_of(there, "g", 2)
    there.settle()
    there.delete(taken[0], taken[1])
    there.settle()
    assert {"g-0", "g-1"} <= set(there.bound())
    assert standing(there) == []


def test_nobody_knows_an_end_so_nodes_are_fenced_after_a_while() -> None:
    """H6: nothing enters the fence; a node that empties elsewhere replaces an occupied one
    of it.
    """
    there, taken = full(4, run_s=None, fence_after_s=50.0)
    gang_of(there, "g", 2)
    there.advance(49)
    assert standing(there) == []
    assert there.state.reservations.given((), there.now_s, EPOCH_S + there.now_s) is None, (
        "nothing to do until then"
    )
    there.advance(1)
    ((_, _, fenced),) = standing(there)
    outside = next(each for each in taken if there.pods[each.uid].node_name[-1] not in fenced)
    emptied = there.pods[outside.uid].node_name
    there.delete(outside)
    there.advance(1)
    assert emptied[-1] in standing(there)[0][2]
    plain(there, "late", 1, run_s=1)
    there.settle()
    assert "late" not in there.bound()
    there.delete(
        *(
            each
            for each in taken
            if each.uid in there.pods
            and there.pods[each.uid].node_name[-1] in standing(there)[0][2]
        )
    )
    there.settle()
    assert {"g-0", "g-1"} <= set(there.bound())


def test_a_namespace_has_two() -> None:
    """H7, scenario 9: hundreds of gangs of one namespace have two reservations, and one of another
    has the third.
    """
    there, _ = full(8)
    for n in range(300):
        gang_of(there, f"many-{n:03}", 2, namespace="many")
    there.settle()
    gang_of(there, "one", 2, namespace="single")
    there.settle()
    stands = there.state.reservations.standing
    assert [each.group for each in stands] == ["many/many-000", "many/many-001", "single/one"]


def test_what_can_never_start_has_none_and_takes_no_place() -> None:
    """Scenario 5: told how many nodes it needs; others behind it have theirs."""
    there, _ = full(4)
    for n in range(3):
        gang_of(there, f"giant-{n}", 5)
    gang_of(there, "g", 1)
    there.settle()
    assert [each.group for each in there.state.reservations.standing] == ["ns/g"]
    answers = [
        each.reservations.not_reserved for each in there.plans if each.reservations is not None
    ]
    why = next(each["ns/giant-0"] for each in answers if "ns/giant-0" in each)
    assert (why.why, why.needs, why.offers) == (NotEntitled.IMPOSSIBLE, 5, 4)


def test_a_small_group_has_one_after_a_while() -> None:
    """H3, in time: no other event is needed."""
    there, _ = full(2, run_s=10_000.0, small_head_after_s=30.0)
    plain(there, "small", 2, run_s=60)
    there.advance(59)
    assert standing(there) == []
    there.advance(1)
    assert [group for group, *_ in standing(there)] == ["pod:ns/small"]


def test_room_that_comes_earlier_moves_it_earlier() -> None:
    """Scenario 19: pods end before anybody expected it."""
    there, taken = full(4)
    gang_of(there, "g", 3)
    there.settle()
    assert standing(there) == [("ns/g", 102.0, "012")]
    there.delete(taken[3])
    there.advance(1)
    assert standing(there) == [("ns/g", 100.0, "013")]


def test_an_end_that_passes_moves_it_later() -> None:
    """H2: the pod runs on, so the time that was told cannot be kept, whatever else happens."""
    there, _ = full(2, run_s=100.0)
    gang_of(there, "g", 1)
    there.settle()
    assert standing(there)[0][1] == 100.0
    there.advance(106)
    assert standing(there)[0][1] > 0


def test_higher_priority_uses_it_and_it_is_made_anew() -> None:
    """Scenario 6."""
    there, taken = full(3)
    gang_of(there, "g", 1)
    there.settle()
    there.delete(taken[0])
    gang_of(there, "high", 1, priority=10)
    there.settle()
    assert there.bound()["high-0"] == "n00"
    assert standing(there)[0][2] == "1"


def test_a_head_that_is_deleted_leaves_its_room() -> None:
    """Scenario 14: those that it kept out are woken."""
    there, taken = full(2, run_s=100.0)
    head = gang_of(there, "g", 2)
    there.settle()
    there.delete(taken[0])
    waiting = plain(there, "long", 1)
    there.settle()
    assert "long" not in there.bound()
    there.delete(*head)
    there.settle()
    assert waiting.name in there.bound()
    assert standing(there) == []


def test_a_head_whose_pods_are_deleted_leaves_its_room_at_once() -> None:
    """H12: its PodGroup stays, so its group is still known, and no plan looks at a group without
    pods.
    """
    there, taken = full(2)
    there.say(Applied(pod_group("g", min_member=2)))
    pods = gang_of(there, "g", 2)
    there.settle()
    late = plain(there, "late", run_s=1_000.0)
    there.delete(taken[0])
    there.settle()
    assert there.pods[late.uid].node_name == ""
    there.delete(*pods)
    there.settle()
    assert standing(there) == []
    assert there.pods[late.uid].node_name == "n00"


def test_the_shorter_class_goes_first_among_equals() -> None:
    """H9, scenario 18: of two that may pass, the younger one of 5 minutes before the older one of a
    day.
    """
    there, taken = full(3, run_s=5_000.0)
    gang_of(there, "g", 3)
    there.settle()
    plain(there, "day", 8, run_s=4_000.0)
    there.advance(2)
    plain(there, "short", 8, run_s=300.0)
    there.settle()
    there.delete(taken[2])
    there.settle()
    assert "short" in there.bound()
    assert "day" not in there.bound()


def test_a_restart_comes_to_the_same() -> None:
    """H16: no bind of a later group on reserved room, also in the first plan of a new daemon."""
    there, taken = full(4)
    gang_of(there, "g", 2)
    gang_of(there, "h", 1)
    there.settle()
    for n, each in enumerate(taken):
        there.update(each, start_s=int(EPOCH_S + there.now_s))
        assert n < 4
    there.delete(taken[0])
    there.settle()
    before = [(each.group, each.at_s, each.nodes) for each in there.state.reservations.standing]
    plain(there, "late", 1)
    there.restart()
    there.settle()
    assert "late" not in there.bound()
    assert [
        (each.group, each.at_s, each.nodes) for each in there.state.reservations.standing
    ] == before


def test_off_is_off() -> None:
    """Scenario 20."""
    there, taken = full(2, reservations=0)
    gang_of(there, "g", 2)
    there.settle()
    there.delete(taken[0])
    plain(there, "long", 1)
    there.settle()
    assert "long" in there.bound()
    assert all(each.reservations is None for each in there.plans)


def test_a_closed_node_is_left_at_once() -> None:
    """H5: a reservation is made anew when a node of it is cordoned."""
    there, _ = full()
    gang_of(there, "g", 2)
    there.settle()
    there.add_nodes(node("n01", unschedulable=True))
    there.advance(1.0)
    assert standing(there) == [("ns/g", 101.0, "02")]


def test_a_head_in_vain_of_a_fence_makes_no_plans() -> None:
    """H6, H17: a group that has waited for long and can have no fence does not keep the scheduler
    busy.
    """
    there = world(4, fence_after_s=5.0, share=0.0)
    for number in range(4):
        plain(there, f"r{number}")
    there.settle()
    gang_of(there, "a", 4)
    gang_of(there, "b", 4)
    there.advance(10)
    before = len(there.plans)
    there.advance(20)
    assert len(there.plans) - before < 5


@pytest.mark.long
def test_thousands_of_one_namespace_leave_room_for_another() -> None:
    """H7: they get two reservations, and a gang of another namespace that comes after them the
    next, within a plan.
    """
    there, _ = full()
    number = of_size(1_000, 10_000)
    there.limits = Limits(groups=number // 5)
    since_s = int(EPOCH_S + there.now_s)
    there.create(pod(f"m{number:05}", gpus=8, creation_s=since_s) for number in range(number))
    there.settle()
    assert [group for group, *_ in standing(there)] == ["pod:ns/m00000", "pod:ns/m00001"]
    before = len(there.plans)
    plain(there, "o", namespace="other", creation_s=since_s + 1)
    there.turn()
    assert len(there.plans) == before + 1
    assert [group for group, *_ in standing(there)] == [
        "pod:ns/m00000",
        "pod:ns/m00001",
        "pod:other/o",
    ]


def test_an_end_costs_a_few_looks_however_many_are_kept_out() -> None:
    """H17: room that is kept for a head does not have all those looked at that it is not for."""
    there, taken = full(4, run_s=5_000.0)
    gang_of(there, "g", 4)
    for n in range(300):
        plain(there, f"small-{n:03}", 1, namespace=f"t{n % 20}")
    there.settle()
    for one in taken[:2]:
        before = len(there.plans)
        there.delete(one)
        there.settle()
        assert sum(len(each.verdicts) for each in there.plans[before:]) < 30
    assert not any(name.startswith("small") for name in there.bound())
    there.delete(*taken[2:])
    there.settle()
    assert {f"g-{n}" for n in range(4)} <= set(there.bound())


def test_room_beside_a_reservation_is_used_to_the_last() -> None:
    """Q3: those that were kept out are woken for room that is nobody's, in spite of it."""
    there, taken = full(4, run_s=5_000.0)
    gang_of(there, "g", 2, gpus=6)
    for n in range(30):
        plain(there, f"small-{n:03}", 1, namespace=f"t{n % 20}")
    there.settle()
    there.delete(taken[0])
    there.settle()
    assert sum(name.startswith("small") for name in there.bound()) == 2
    there.delete(
        *(each for each in there.pods.values() if each.name.startswith("small") and each.node_name)
    )
    there.settle()
    assert sum(name.startswith("small") for name in there.bound()) == 2


def test_holds_keep_off_reserved_room() -> None:
    """Scenario 11: of a NonStrict gang behind the head; what it holds elsewhere stays its own."""
    there, taken = full(4, run_s=5_000.0)
    gang_of(there, "g", 2, gpus=6)
    there.settle()
    gang_of(there, "slow", 10, gpus=1, mode="NonStrict")
    there.settle()
    assert there.held() == {}
    there.delete(taken[0])
    there.settle()
    assert sorted(there.held().values()) == ["n00", "n00"], "beside the 6 that are reserved"
    there.delete(taken[1])
    there.settle()
    assert {"g-0", "g-1"} <= set(there.bound())
    assert len(there.held()) == 4


def test_a_gang_that_holds_keeps_its_reservation_in_the_plans_of_others() -> None:
    """H12: what holds is part of each plan, and only decided about in its own; else two
    reservations take turns.
    """
    there, taken = full(2)
    there.delete(taken[0])
    gang_of(there, "slow", 2, mode="NonStrict")
    there.settle()
    assert there.held() == {"slow-0": "n00"}
    assert standing(there) == [("ns/slow", 101.0, "1")]
    plans = len(there.plans)
    for n in range(3):
        plain(there, f"other-{n}", 1)
        there.settle()
    assert len(there.plans) == plans + 3
    for each in there.plans[plans:]:
        assert each.reservations is not None
        assert [one.group for one in each.reservations.standing] == ["ns/slow"]
    assert not any(name.startswith("other") for name in there.bound())


def test_gangs_that_are_kept_out_alike_are_not_all_looked_at() -> None:
    """H17: the same for gangs, of which one refusal says it of all that need as many pods."""
    there, taken = full(4, run_s=5_000.0)
    gang_of(there, "g", 4)
    for n in range(200):
        gang_of(there, f"small-{n:03}", 2, gpus=1, namespace=f"t{n % 20}")
    there.settle()
    before = len(there.plans)
    there.delete(taken[0])
    there.settle()
    assert sum(len(each.verdicts) for each in there.plans[before:]) < 30
    assert not any(name.startswith("small") for name in there.bound())


def test_a_node_that_a_group_may_not_use_is_nothing_to_it() -> None:
    """Q3: a gang of more nodes than there are is not looked at for every node that comes, and by
    and by for its own.
    """
    there, _ = full(2)
    plenty = shape(8, node_selector=(("size", "plenty"),))
    waiting = there.create(members("w", 2, of=plenty, creation_s=int(EPOCH_S + there.now_s)))
    there.settle()
    assert there.state.reservations.standing == ()
    there.plans.clear()
    for number in range(5):
        there.add_nodes(node(f"other-{number}"))
        there.settle()
    assert not [each for plan in there.plans for each in plan.verdicts if each.group == "ns/w"]
    there.add_nodes(*(node(f"plenty-{n}", labels={"size": "plenty"}) for n in range(2)))
    there.settle()
    assert {there.bound()[each.name] for each in waiting} == {"plenty-0", "plenty-1"}


def test_a_node_that_makes_a_group_possible_lets_it_be_a_head() -> None:
    """H3: a gang of three nodes where there were two has its reservation as soon as there is a
    third, full as it is.
    """
    there, _ = full(2)
    gang_of(there, "three", 3)
    there.settle()
    assert standing(there) == []
    there.add_nodes(node("n02"))
    taken = pod(
        "first", gpus=4, run_time_metadata=states(300.0), start_s=int(EPOCH_S + there.now_s)
    )
    there.create(running(taken, "n02"))
    there.settle()
    assert [group for group, *_ in standing(there)] == ["ns/three"]


def test_what_plans_remember_is_forgotten_once_nothing_stands() -> None:
    """H17: pods that are gone are kept for nobody; a reservation that is made later is as the first
    one was.
    """
    there, taken = full()
    waits = gang_of(there, "g", 2)
    there.settle()
    assert standing(there) == [("ns/g", 101.0, "01")]
    assert there.state.reservations.cache
    there.delete(*waits)
    there.settle()
    there.delete(taken[3])
    there.advance(30)
    assert not there.state.reservations.cache
    assert len(there.state.expected_ends) == 3
    there.delete(*there.pods.values())
    taken = [plain(there, f"s{n}", run_s=200 + n) for n in range(4)]
    there.settle()
    gang_of(there, "g", 2)
    there.settle()
    assert standing(there) == [("ns/g", 201.0, "01")]


@pytest.mark.parametrize(
    ("run_s", "expected"),
    [(None, [inf]), (500.0, [500.0])],
)
def test_the_end_of_its_own_members_frees_nothing_for_a_gang(
    run_s: float | None,
    expected: list[float],
) -> None:
    """H2: a replacement does not start when its gang has ended, but when others have; where no end
    is known, it has a fence.
    """
    there = world(2)
    (_, lost) = gang_of(there, "g", 2, run_s=100)
    there.settle()
    where = there.pods[lost.uid].node_name
    there.delete(lost)
    stated = states(run_s) if run_s else ()
    there.create(pod("f", gpus=8, node_name=where, run_time_metadata=stated))

    gang_of(there, "g", 1, first=2, min_member=2, run_s=100)
    there.settle()

    assert [at_s for _, at_s, _ in standing(there)] == expected
    assert not any("when ns/g" in message for _, _, message in there.told().events())


@pytest.mark.parametrize("on_pod", [True, False])
def test_a_run_time_that_is_declared_later_helps_the_first_that_waits(*, on_pod: bool) -> None:
    """H1, H3: nothing is freed by it, and the younger one has not asked before."""
    there = world(1)
    there.declare(pod_group("f", 1))
    (first,) = there.create(members("f", 1, gpus=8, pod_group=True))
    there.settle()
    gang_of(there, "old", 1)
    there.advance(60)
    assert standing(there) == []

    if on_pod:
        there.update(there.pods[first.uid], run_time_metadata=states(300))
    else:
        there.declare(pod_group("f", 1, gang_metadata=states(300), generation=2))
    gang_of(there, "young", 1)
    there.settle()

    assert [group for group, _, _ in standing(there)][:1] == ["ns/old"]


def beside_a_head(there: World) -> None:
    """A gang of 8 and 4 GPUs waits for the end of the pod on n00, and has the last 4 GPUs of n01,
    which a pod that outlasts that end asks for, too.
    """
    stated = gang_metadata("g", min_member=2)
    fields: dict[str, Any] = {"gang_metadata": stated, "creation_s": int(EPOCH_S + there.now_s)}
    there.create([pod("g-0", gpus=8, **fields), pod("g-1", gpus=4, **fields)])
    plain(there, "small", 4, run_s=1_000)


def two_nodes() -> World:
    """A pod of 8 GPUs runs on n00 for 500 s more."""
    there = world(2)
    there.add_nodes(node("n01", unschedulable=True))
    plain(there, "first", 8, run_s=500)
    there.settle()
    there.add_nodes(node("n01"))
    return there


def test_room_beside_a_reservation_that_a_declared_run_time_opens_is_used() -> None:
    """H1, Q3: a pod on the reserved node ends before the reservation begins, which is known only
    now; nothing is freed by it, and the reservation stays as it is.
    """
    there = two_nodes()
    (last,) = there.create([pod("last", gpus=4, creation_s=int(EPOCH_S))])
    there.settle()
    beside_a_head(there)
    there.settle()
    assert set(there.bound()) == {"first", "last"}

    there.update(there.pods[last.uid], run_time_metadata=states(300))
    there.settle()
    assert set(there.bound()) == {"first", "last", "small"}


def test_members_of_a_group_may_end_before_it() -> None:
    """H2, Q3: a plan places a group that runs for long, and makes a reservation beside it; that one
    of its gangs ends before is known once it is bound.
    """
    there = two_nodes()
    groups: dict[str, Any] = {"groups": ["ns/x", "ns/y"], "creation_s": 1}
    there.create(
        members("x", 1, gpus=4, run_time_metadata=states(300), **groups),
        members("y", 1, gpus=0, run_time_metadata=states(5_000), **groups),
    )
    beside_a_head(there)
    there.settle()
    assert set(there.bound()) == {"first", "x-0", "y-0", "small"}


def test_ends_on_nodes_that_changed_are_read_before_the_plan() -> None:
    """The plan would ask for them, and its turn has no time for more: with 5,000 nodes 8 ms."""
    there, taken = full()
    gang_of(there, "g", 2)
    there.settle()
    assert there.state.reservations.standing

    there.update(there.pods[taken[0].uid], run_time_metadata=states(20.0))
    assert there.state.cluster.touched
    prepare(there.state, there.now_s, there.wall_s())
    assert not there.state.cluster.touched
    there.settle()
    assert standing(there) == [("ns/g", 101.0, "01")]
