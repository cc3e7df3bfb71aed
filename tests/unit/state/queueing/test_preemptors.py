"""Preemptors that wait: whatever may help one wakes it within a second, and nothing else does
(semantics V25, V5).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gangsched.api import keys
from gangsched.core.preemption import by_rounds
from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.inter_pod import InterPodConstraints, PodTerm, Requirement
from gangsched.model.objects import Phase, Pod
from gangsched.model.preemption import NotHelpful, Obstacle, PreemptionSettings
from gangsched.model.protocol import Applied
from gangsched.state.group_record import GroupRecord
from gangsched.state.queueing.preemptors import AT_ONCE, EVERY_S, Preemptors
from gangsched.state.rule_set import Rules
from tests.builders import (
    GPU,
    gang,
    gang_metadata,
    group,
    members,
    node,
    pod,
    pod_group,
    running,
    shape,
)
from tests.world import EPOCH_S, World


def unswept(*names: str, **settings: Any) -> World:
    """Nodes of 8 GPUs in a world in which nobody is looked at again without a cause."""
    preemption = PreemptionSettings(**{"hold_back_s": 0, **settings})
    return World(
        *map(node, names), rules=Rules(preemption=preemption, unattended=True), preempts=True
    )


def on(world: World, name: str, gpus: int, at: str, **fields: Any) -> Pod:
    """A pod of ours that runs."""
    (made,) = world.create(running(pod(name, gpus=gpus, **{"start_s": int(EPOCH_S), **fields}), at))
    return made


def high(world: World, number: int = 1, gpus: int = 8, name: str = "high") -> list[Pod]:
    """A gang of high priority that is refused."""
    created = world.create(members(name, number, gpus=gpus, priority=1000))
    world.settle().advance(2 * EVERY_S)
    assert not world.state.preemptions.nominations.all()
    return created


def preempts(world: World) -> bool:
    """Whether room is made, within a second."""
    world.settle().advance(EVERY_S)
    return any(plan.verdicts and world.state.preemptions.nominations.all() for plan in world.plans)


def test_a_nomination_of_another_scheduler_that_ends_wakes_a_preemptor() -> None:
    """V25, F1: no pod of it fits beside its victims, so no room that it needs has grown."""
    world = unswept("a")
    on(world, "low", 6, "a")
    (theirs,) = world.create(
        pod("theirs", gpus=2, priority=2000, scheduler_name="other", nominated_node="a")
    )
    high(world)
    world.update(theirs, nominated_node="")
    assert preempts(world)


def test_a_pod_that_goes_beside_the_victims_wakes_a_preemptor() -> None:
    """V25: what it leaves is too little for a pod, and enough with what may be taken."""
    world = unswept("a")
    on(world, "low", 6, "a")
    equal = on(world, "equal", 2, "a", priority=1000)
    high(world)
    world.delete(equal)
    assert preempts(world)


def test_a_gang_whose_binds_are_answered_may_be_taken() -> None:
    """V25, V5: pods that are being bound are no victims; no node changes when they are bound."""
    world = unswept("a")
    world.create(members("low", 2, gpus=4))
    world.fate = lambda _: "later"
    world.turn()
    high(world)
    world.fate = lambda _: "bound"
    assert preempts(world)


def test_a_minimum_that_is_lowered_makes_victims() -> None:
    """V25, V6: members above the minimum may go one by one, and the gang on the other
    node stays.
    """
    world = unswept("a", "b", max_pods=1)
    world.declare(pod_group("low", 2))
    world.create(members("low", 2, gpus=8, pod_group=True))
    world.settle()
    high(world)
    world.declare(pod_group("low", 1, generation=2))
    assert preempts(world)


def test_a_budget_that_allows_more_wakes_a_preemptor() -> None:
    """V25, V7: whatever was said to be in its way."""
    world = unswept("a")
    budget = PodDisruptionBudget(namespace="ns", name="b", selector=(), allowed=0)
    world.say(Applied(budget))
    on(world, "low", 8, "a")
    high(world)
    world.say(Applied(msgspec.structs.replace(budget, allowed=1)))
    assert preempts(world)


def test_victims_are_taken_as_soon_as_they_have_run_for_long_enough() -> None:
    """V5: neither a few seconds later, nor looked at meanwhile: two pods of three are enough."""
    world = unswept("a", min_run_s=600)
    start_s = int(EPOCH_S + world.now_s)
    for number, late_s in enumerate((0, 100, 200)):
        on(world, f"low-{number}", 2, "a", start_s=start_s + late_s - 300)
    high(world, gpus=6)
    world.plans.clear()
    world.advance(396.0)
    assert (len(world.plans), preempts(world)) == (0, False)
    world.advance(1.0)
    assert preempts(world)


def test_a_jump_of_the_wall_clock_is_noticed_in_the_next_turn() -> None:
    """V5: by the new time the victim has run for long enough; the timer would come nine minutes
    later.
    """
    world = unswept("a", min_run_s=600)
    on(world, "low", 8, "a", start_s=int(EPOCH_S + world.now_s))
    high(world)
    world.clock_s = 3_600.0
    world.turn()
    assert preempts(world)


def test_what_changes_all_the_time_is_looked_at_once_a_second() -> None:
    """V25: a pod that comes and goes ten times a second makes one plan a second for preemptors, not
    ten.
    """
    world = unswept("a")
    on(world, "low", 2, "a")
    on(world, "equal", 6, "a", priority=1000)
    high(world, gpus=7)
    world.plans.clear()
    for number in range(50):
        world.delete(on(world, f"short-{number}", 0, "a", priority=2000))
        world.settle().advance(0.1)
    assert 4 <= len(world.plans) <= 6


def test_of_those_that_ask_the_same_the_first_is_examined() -> None:
    """V25: a hundred gangs wait and a pod goes that helps none of them; of other kinds some are
    examined a second.
    """
    world = unswept("a")
    on(world, "low", 1, "a")
    equal = on(world, "equal", 2, "a", priority=1000)
    on(world, "other", 5, "a", priority=1000)
    for number in range(100):
        (
            high(world, gpus=8, name=f"same-{number:03}")
            if number < 1
            else world.create(members(f"same-{number:03}", 1, gpus=8, priority=1000))
        )
    for number in range(2 * AT_ONCE):
        world.create(members(f"kind-{number:03}", number + 1, gpus=7, priority=999))
    world.settle().advance(60.0)
    world.plans.clear()
    world.delete(equal)
    world.settle()
    assert [len(plan.verdicts) for plan in world.plans] == [AT_ONCE]
    world.advance(EVERY_S)
    assert [len(plan.verdicts) for plan in world.plans] == [AT_ONCE, AT_ONCE]
    world.advance(60.0)
    names = {
        verdict.group
        for plan in world.plans
        for verdict in plan.verdicts
        if "same" in verdict.group
    }
    assert names == {"ns/same-000"}


def test_the_next_of_a_kind_is_examined_when_the_first_is_gone() -> None:
    """V25: it was woken for all of them, and deleted before it was planned."""
    world = unswept("a")
    on(world, "low", 6, "a")
    equal = on(world, "equal", 2, "a", priority=1000)
    first = high(world, name="first")
    world.create(members("second", 1, gpus=8, priority=1000, creation_s=200))
    world.settle().advance(2 * EVERY_S)
    world.delete(equal)
    world.state.refresh(world.now_s)
    assert world.state.queue.part("ns/first") == "active"
    world.delete(*first)
    assert preempts(world)


def test_a_node_that_shrinks_ends_a_hold_back_that_can_come_to_nothing() -> None:
    """V27: a group that the nodes could not hold if they were empty holds nobody back, from then
    on.
    """
    world = unswept("a", hold_back_s=600)
    on(world, "equal", 8, "a", priority=1000, phase=Phase.RUNNING)
    world.create(pod("small", gpus=1))
    high(world)
    assert world.state.preemptions.holding_back.now() is not None
    world.add_nodes(msgspec.structs.replace(world.nodes["a"], allocatable=node("a", 4).allocatable))
    world.settle().advance(EVERY_S)
    assert dict(world.nodes["a"].allocatable)[GPU] == 4
    assert world.state.preemptions.holding_back.now() is None


def test_a_hold_back_that_can_come_to_nothing_ends_within_a_preemption_delay() -> None:
    """V27, V28: a node that closes does not help the group, but those who are held back for it
    start.
    """
    world = unswept("a", "b", hold_back_s=600)
    on(world, "low", 2, "a", phase=Phase.RUNNING)
    metadata = (*gang_metadata("high", min_member=2), (keys.PREEMPTION_DELAY[0], "30m"))
    world.create(
        [
            pod(f"high-{n}", gpus=8, priority=1000, gang_metadata=metadata, creation_s=EPOCH_S)
            for n in (0, 1)
        ]
    )
    world.settle()
    world.create(pod("small", gpus=1))
    world.settle().advance(2 * EVERY_S)
    assert "small" in world.pending()
    world.add_nodes(replace_node(world, "b", unschedulable=True))
    world.settle().advance(EVERY_S)
    assert world.state.preemptions.holding_back.now() is None
    assert world.bound()["small"] == "a"


def test_where_all_priorities_are_equal_nobody_is_examined() -> None:
    """V25: whatever comes and goes."""
    world = unswept("a")
    others = [on(world, f"equal-{number}", 2, "a") for number in range(4)]
    world.create(members("g", 1, gpus=8))
    world.settle().advance(2 * EVERY_S)
    world.plans.clear()
    world.delete(others[0])
    world.settle().advance(2 * EVERY_S)
    assert world.plans == []


def test_a_non_strict_gang_that_never_fitted_wakes_when_a_full_node_is_opened() -> None:
    """Q3, P4: too small was the empty cluster; the members that fit are held, and others take what
    becomes free.
    """
    world = unswept("a", "b")
    world.add_nodes(replace_node(world, "b", unschedulable=True))
    on(world, "other", 8, "b", priority=1000)
    world.create(members("g", 2, gpus=8, mode="NonStrict"))
    world.settle()
    assert world.held() == {}
    world.add_nodes(replace_node(world, "b", unschedulable=False))
    world.settle()
    assert set(world.held().values()) == {"a"}


def replace_node(world: World, name: str, **fields: Any) -> Any:
    """The node with other fields."""
    return msgspec.structs.replace(world.nodes[name], **fields)


def test_groups_that_were_parked_at_different_times_are_swept_together() -> None:
    """Q3: two plans a minute at rest, however many groups wait."""
    world = World(node("a"), rules=replace(Rules(), unattended=False))
    on(world, "other", 8, "a")
    for number in range(20):
        world.create(members(f"g-{number}", 1, gpus=8))
        world.settle().advance(3.0)
    world.advance(120.0)
    for _ in range(3):
        world.plans.clear()
        world.advance(60.0)
        assert 1 <= len(world.plans) <= 2


def test_a_node_that_is_avoided_no_more_may_be_preempted() -> None:
    """V25, B6: nothing lower ran elsewhere, which says nothing of the node whose kubelet had
    rejected a member.
    """
    world = unswept("a")
    world.declare(pod_group("high", 1))
    (one,) = world.create(members("high", 1, gpus=8, priority=1000, pod_group=True))
    world.settle()
    world.update(one, phase=Phase.FAILED, status_reason="OutOfcpu", rejection="OutOfcpu")
    on(world, "low", 8, "a")
    world.create(members("high", 1, first=1, gpus=8, priority=1000, pod_group=True))
    world.settle().advance(50)
    assert not world.state.preemptions.nominations.all()
    world.advance(10)
    assert preempts(world)


def obstacle_of(world: World, group_id: str) -> Obstacle:
    """Why preemption does not help the group."""
    found = world.verdict(group_id).preemption
    assert isinstance(found, NotHelpful)
    return found.why


def test_what_changes_during_a_search_of_several_plans_is_looked_at_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """V25: the first plan has passed over the rack of a node that opens before the last one ends in
    vain.
    """
    monkeypatch.setattr(by_rounds, "ROUNDS", 5)
    world = unswept()
    closed = node("a2", labels={"rack": "a"}, unschedulable=True)
    others = [node(f"{rack}1", labels={"rack": rack}) for rack in "bcd"]
    world.add_nodes(node("a1", labels={"rack": "a"}), closed, *others)
    for name in ("a1", "a2", "b1", "c1", "d1"):
        for number in range(4):
            on(world, f"{name}-{number}", 2, name, priority=1)

    world.settle().advance(2 * EVERY_S)
    apart = PodTerm("kubernetes.io/hostname", (Requirement("app", "In", ("x",)),))
    terms = InterPodConstraints(anti_affinity=(apart,))
    metadata = gang_metadata("high", min_member=2, topology="rack")
    for number in range(2):
        world.create(
            pod(
                f"high-{number}",
                of=shape(2, inter_pod=terms),
                priority=1000,
                labels={"app": "x"},
                gang_metadata=metadata,
            )
        )

    for _ in range(2):  # it is under way then, and does not begin anew
        world.turn()
        assert obstacle_of(world, "ns/high") is Obstacle.LATER

    world.add_nodes(msgspec.structs.replace(closed, unschedulable=False))
    while obstacle_of(world, "ns/high") is Obstacle.LATER:
        world.turn()

    assert preempts(world)


def test_what_changes_while_two_search_is_looked_at_once_for_each() -> None:
    """V25, Q3: what is looked at after the search of one is no news for the other, or their
    searches would follow each other without end.
    """
    groups = {name: GroupRecord(id=name, gangs=(name,)) for name in ("ns/a", "ns/b")}
    first, second = (group(gang(name, [pod(name)])) for name in groups)
    preemptors = Preemptors(groups)
    goes_on = NotHelpful(why=Obstacle.LATER)
    ended = NotHelpful(why=Obstacle.TOO_LITTLE)

    preemptors.put(first, goes_on)
    preemptors.put(second, goes_on)
    preemptors.note({"n1"})
    changed = preemptors.version

    # It begins again at once, because of what changed during its search.
    preemptors.put(first, ended)
    preemptors.put(first, goes_on)
    preemptors.put(second, ended)
    assert preemptors.version == changed + 2

    preemptors.put(first, ended)
    assert preemptors.version == changed + 2
