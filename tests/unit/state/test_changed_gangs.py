"""In which order changed gangs are read, and how much of it a plan waits for."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gangsched.api.gang_spec import GangDefaults
from gangsched.api.keys import MIN_CHILDREN, PARENT
from gangsched.loop import MESSAGES_PER_TURN, READ_PER_TURN
from gangsched.model.gang import Gang
from gangsched.model.objects import ClaimUse
from gangsched.model.protocol import Applied, Replaced
from gangsched.model.storage import Claim, CsiNode, StorageClass, Volume
from gangsched.state.changed_gangs import (
    UNITS_A_COMPANION_IN_A_TREE,
    UNITS_A_GANG,
    UNITS_IN_A_TREE,
    ChangedGangs,
)
from gangsched.state.companions import Companions
from gangsched.state.gangs import GangRecord
from gangsched.state.members import Member, State
from gangsched.state.parents import Parents
from gangsched.state.podgroup_names import PodGroupNames
from tests.builders import gang, gang_metadata, members, node, pod, pod_group
from tests.sizes import of_size
from tests.unit.test_loop import Bench


def alone(gangs: dict[str, GangRecord]) -> Companions:
    """Each of these gangs is decided by itself."""
    return Companions(gangs, {}, {}, Parents(gangs, {}, PodGroupNames()))


def changed(*known: str) -> tuple[ChangedGangs, dict[str, GangRecord], dict[str, Gang]]:
    """Some gangs, of which these were read once and have changed, and nothing is left of
    the start.
    """
    gangs: dict[str, GangRecord] = {}
    views: dict[str, Gang] = {}
    made = ChangedGangs(gangs, views, alone(gangs))
    assert not list(made.take())
    for each in known:
        gangs[each], views[each] = GangRecord(id=each), gang(each)
        made.add(each)
    return made, gangs, views


def add(made: ChangedGangs, gangs: dict[str, GangRecord], *names: str) -> None:
    """These gangs are new."""
    for each in names:
        gangs[each] = GangRecord(id=each)
        made.add(each)


def test_known_gangs_come_first_and_new_ones_by_namespace_in_turn() -> None:
    """A namespace with many new gangs does not keep those of another one waiting."""
    made, gangs, _ = changed("ns/known")
    add(made, gangs, "many/0", "many/1", "many/2", "few/0")
    assert [*made.take()] == ["ns/known", "many/0", "few/0", "many/1", "many/2"]
    assert not made.any_new


def test_a_plan_waits_for_known_gangs_only() -> None:
    """New ones count for the turn that reads them, and are read beside a plan as far as its share
    goes.
    """
    made, gangs, _ = changed("ns/known")
    add(made, gangs, *(f"many/{n}" for n in range(10)))
    assert made.exceeds(10 * UNITS_A_GANG, with_new=True)
    assert not made.exceeds(UNITS_A_GANG, with_new=False)
    assert [*made.take(most_new=2 * UNITS_A_GANG)] == ["ns/known", "many/0", "many/1"]
    assert [*made.take(most_new=UNITS_A_GANG - 1)] == []
    assert len([*made.take(most=3 * UNITS_A_GANG)]) == 3


def test_a_new_gang_with_a_member_on_a_node_is_read_before_the_plan() -> None:
    """Preemption and reservations count the members of known gangs only."""
    made, gangs, _ = changed()
    add(made, gangs, "ns/a", "ns/b")
    made.must_read("ns/b")
    made.must_read("ns/unknown")
    assert [*made.take(most_new=0)] == ["ns/b"]
    assert [*made.take()] == ["ns/a"]


@pytest.mark.parametrize("by", ["pod", "PodGroup", "spec"])
def test_a_child_of_a_tree_costs_more_also_before_it_is_read(by: str) -> None:
    """The turn that reads thousands of new children is as short as any other."""
    made, gangs, _ = changed()
    add(made, gangs, "ns/g")
    assert not made.exceeds(UNITS_A_GANG, with_new=True)
    stated = ((PARENT[0], "svc"),)
    if by == "pod":
        each = pod("g-0", gang_metadata=stated)
        gangs["ns/g"].members[each.uid] = Member(each, State.PENDING)
    else:
        gangs["ns/g"].pod_groups["api"] = pod_group("g", gang_metadata=stated)
    if by == "spec":
        gangs["ns/g"].read_spec(defaults=GangDefaults())
        assert gangs["ns/g"].spec is not None
    assert made.exceeds(UNITS_A_GANG + UNITS_IN_A_TREE - 1, with_new=True)


def test_until_all_were_read_once_a_plan_waits_for_all() -> None:
    """H16, Q1: after a start all namespaces are served in order, whichever gang is read first."""
    gangs: dict[str, GangRecord] = {}
    made = ChangedGangs(gangs, {}, alone(gangs))
    add(made, gangs, "ns/a", "ns/b")
    assert made.exceeds(UNITS_A_GANG, with_new=False)
    assert [*made.take(most=UNITS_A_GANG)] == ["ns/a"]
    assert [*made.take(most_new=0)] == ["ns/b"]


@pytest.mark.long
def test_ten_thousand_new_gangs_delay_the_pod_of_another_namespace_by_few_turns() -> None:
    """Attack: a tenant creates gangs as fast as they are applied; plans go on between turns that
    read them.
    """
    number, bench = of_size(2_000, 10_000), Bench()
    bench.loop.inbox(Applied(node("a")))
    while bench.loop.turn():
        pass
    for n in range(number):
        bench.loop.inbox(Applied(members(f"g{n}", 1, gpus=8, min_member=2, namespace="many")[0]))
    bench.loop.inbox(Applied(pod("mine", namespace="other", gpus=0)))
    turns = 0
    while not bench.binds:
        bench.loop.turn()
        turns += 1
        assert turns <= number // MESSAGES_PER_TURN + 5
    assert bench.state.registry.is_behind
    while bench.loop.turn() or bench.state.registry.is_behind:
        turns += 1
        assert turns < number
    assert len(bench.state.registry.groups) == number + 1


def test_a_known_gang_that_waits_for_something_else_is_read_beside_plans() -> None:
    """Once it has changed itself, a plan waits for it; it is read once."""
    made, _, _ = changed("ns/a", "ns/b")
    assert [*made.take()] == ["ns/a", "ns/b"]
    made.add_unhurried(["ns/a", "ns/b"])
    assert not made.exceeds(0, with_new=False)

    made.add("ns/b")
    assert made.exceeds(0, with_new=False)
    assert [*made.take(most_new=0)] == ["ns/b"]
    assert [*made.take()] == ["ns/a"]
    assert not made.any_new


@pytest.mark.long
def test_a_claim_of_many_pods_delays_the_pod_of_another_namespace_by_few_turns() -> None:
    """Attack: a tenant changes a claim each second that all of its pods name."""
    number, bench = of_size(600, 10_000), Bench()
    claim = Claim(namespace="many", name="c", uid="c", storage_class="none")
    bench.loop.inbox(Applied(node("a")))
    for kind in (StorageClass, Claim, Volume, CsiNode):
        bench.loop.inbox(Replaced(kind, ()))
    bench.loop.inbox(Applied(claim))
    for n in range(number):
        bench.loop.inbox(Applied(pod(f"p{n}", namespace="many", claims=(ClaimUse("c"),))))
    while bench.loop.turn() or bench.state.registry.is_behind:
        pass

    bench.loop.inbox(Applied(replace(claim, attributes_class="other")))
    bench.loop.inbox(Applied(pod("mine", namespace="other", gpus=0)))
    turns = 0
    while not bench.binds:
        bench.loop.turn()
        turns += 1
        assert turns <= 4, turns

    assert bench.state.registry.is_behind


def test_a_turn_reads_few_trees_whoever_edits_the_parents_of_all() -> None:
    """Each gang of a tree that is grouped anew counts what it takes until its tree is told."""
    trees, children = 12, 30
    bench = Bench()
    bench.loop.inbox(Applied(node("a")))
    for number in range(trees * children):
        stated = gang_metadata(f"g{number}", min_member=1, parent=f"top{number // children}")
        bench.loop.inbox(Applied(pod(f"p{number}", namespace="many", gang_metadata=stated)))
    while bench.loop.turn() or bench.state.registry.is_behind:
        pass

    registry = bench.state.registry
    before = {group_id: group.generation for group_id, group in registry.groups.items()}
    for tree in range(trees):
        least = ((MIN_CHILDREN[0], "2"),)
        parent = pod_group(f"top{tree}", None, namespace="many", gang_metadata=least)
        bench.loop.inbox(Applied(parent))

    bench.loop.turn()
    read = [
        group.id
        for group in registry.groups.values()
        if len(group.gangs) > 1 and group.generation != before[group.id]
    ]
    most = READ_PER_TURN // (children * UNITS_A_COMPANION_IN_A_TREE) + 1
    assert 0 < len(read) <= most < trees
