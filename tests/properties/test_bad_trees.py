"""Trees that are stated wrongly, or change while they wait or run: what is refused, what recovers,
who runs on.
"""

from __future__ import annotations

import cProfile
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gangsched.api import keys
from gangsched.loop import MESSAGES_PER_TURN
from gangsched.model.gang import COMPOSITE_PREFIX
from gangsched.model.objects import PodGroup
from gangsched.model.protocol import Applied
from gangsched.model.reasons import Reason
from gangsched.state.divided_pods import MOVED_AT_A_TIME
from gangsched.state.gangs import GangRecord
from gangsched.state.groups import Registry
from gangsched.state.parents import Parents
from gangsched.turn import plan_and_commit
from tests.builders import gang_metadata, members, node, pod, pod_group
from tests.sizes import of_size
from tests.unit.api.test_sub_groups import MARK, group, role
from tests.unit.core.test_trees import reason, replica, started, started_pods, told
from tests.unit.test_loop import Bench
from tests.world import World

READ_AT_A_TIME = 2 * MOVED_AT_A_TIME + 10
"""Gangs that a turn reads: those that a pod left, and those that it came to."""


pytestmark = pytest.mark.usefixtures("no_wait_for_a_minimum")


def names(parent: str, *, generation: int = 1) -> PodGroup:
    """The PodGroup of gang r0, which names this parent and a minimum of two children."""
    stated = ((keys.PARENT[0], parent), (keys.MIN_CHILDREN[0], "2"))
    return pod_group("r0", 2, generation=generation, gang_metadata=stated)


def needs(least: str, *, generation: int = 1) -> PodGroup:
    """The PodGroup of the parent, which states this minimum of children."""
    return pod_group(
        "svc", None, generation=generation, gang_metadata=((keys.MIN_CHILDREN[0], least),)
    )


@pytest.mark.parametrize("length", [2, 3, 7])
def test_a_circle_of_parents_is_refused_and_harms_nobody(length: int) -> None:
    """G3: each of them is told that its parent has pods; one that leaves the circle frees the one
    before it.
    """
    world = World(*(node(f"n{n}") for n in range(8)))
    circle = [f"c{n}" for n in range(length)]
    for n, name in enumerate(circle):
        world.create(members(name, 2, gpus=1, parent=circle[(n + 1) % length]))
    world.create(replica("r0"), replica("r1"))
    assert started(world.settle()) == {"r0", "r1"}
    for n, name in enumerate(circle):
        assert told(world, name).startswith(
            f"ns/{circle[(n + 1) % length]}, the parent of gang ns/{name}, has pods"
        )
        assert reason(world, name) is Reason.INVALID_GANG
    world.delete(*[each for each in list(world.pods.values()) if each.name.startswith("c1-")])
    assert started(world.settle()) == {"r0", "r1", "c0"}


def test_of_gangs_with_pods_above_each_other_the_topmost_one_starts() -> None:
    """G3: a gang with pods is nobody's parent; the others are refused, each with the name of its
    own.
    """
    world = World(*(node(f"n{n}") for n in range(8)))
    for n in range(1, 6):
        world.create(members(f"level{n}", 2, gpus=1, parent=f"level{n + 1}" if n < 5 else "top"))
    assert started(world.settle()) == {"level5"}
    for n in range(1, 5):
        assert f"ns/level{n + 1}, the parent of gang ns/level{n}, has pods itself" in told(
            world, f"level{n}"
        )


def test_a_parent_that_goes_and_comes_again_counts_while_it_is_there() -> None:
    """G2: its PodGroup states the minimum, else a child does; a running child stays where it is."""
    world = World(node("a"))
    world.declare(needs("2"))
    world.create(replica("r0", least=1), replica("r1", least=1))
    assert started(world.settle()) == set()
    assert "2 of the 4 pods of its group fit" in told(world, "r1")
    world.withdraw(needs("2"))
    assert started(world.settle()) == {"r0"}
    world.declare(needs("2", generation=2))
    assert started(world.settle()) == {"r0"}
    world.add_nodes(node("b"))
    assert started(world.settle()) == {"r0", "r1"}


def test_a_waiting_child_that_moves_to_another_parent_counts_there() -> None:
    """I5: the first tree lacks it, the second has it."""
    world = World(node("a"), node("b"))
    world.declare(names("svc"))
    world.create(members("r0", 2, gpus=4, pod_group=True), replica("r1", parent="other"))
    assert started(world.settle()) == set()
    world.create(replica("r2", least=None))
    world.declare(names("other", generation=2))
    assert started(world.settle()) == {"r0", "r1"}
    assert {world.state.registry.group_of[f"ns/{each}"] for each in ("r0", "r1")} == {
        "tree:ns/other"
    }


def test_a_running_child_that_moves_to_another_parent_runs_on() -> None:
    """I5: what is bound stays; the tree that it left lacks a child, and nobody is evicted
    for that.
    """
    world = World(node("a"), node("b"), preempts=True)
    world.declare(names("svc"))
    world.create(members("r0", 2, gpus=4, pod_group=True), replica("r1"))
    assert started(world.settle()) == {"r0", "r1"}
    world.declare(names("other", generation=2))
    world.advance(120)
    assert started(world.settle()) == {"r0", "r1"}
    assert not world.ordered


def test_of_two_parents_of_one_name_in_two_dialects_one_counts() -> None:
    """I2, G2: that of scheduling.x-k8s.io; without it the other."""
    world = World(node("a"))
    other = pod_group(
        "svc",
        None,
        api_group=keys.VOLCANO,
        uid="volcano",
        gang_metadata=((keys.MIN_CHILDREN[0], "1"),),
    )
    world.declare(other, needs("2"))
    world.create(replica("r0", least=None), replica("r1", least=None))
    assert started(world.settle()) == set()
    world.withdraw(needs("2"))
    assert started(world.settle()) == {"r0"}


def test_a_minimum_above_what_exists_is_waited_for() -> None:
    """G4: how many children are lacking is told; lowered, or when another child has come, they
    start.
    """
    world = World(node("a"), node("b"), node("c"))
    world.declare(needs("3"))
    world.create(replica("r0", least=None), replica("r1", least=None))
    assert started(world.settle()) == set()
    assert (
        told(world, "r0")
        == "waiting for children of ns/svc: 2 of 3 needed children are ready; 1 is missing"
    )
    world.declare(needs("2", generation=2))
    assert started(world.settle()) == {"r0", "r1"}
    world.declare(needs("5", generation=3))
    world.advance(120)
    assert started(world.settle()) == {"r0", "r1"}
    world.create(replica("r2", least=None))
    world.settle()
    assert (
        told(world, "r2")
        == "waiting for children of ns/svc: 3 of 5 needed children are ready; 2 are missing"
    )
    world.declare(needs("2", generation=4))
    assert started(world.settle()) == {"r0", "r1", "r2"}


def test_a_child_that_lost_a_member_is_healed_beside_its_siblings() -> None:
    """G7: the others run on, and the lost member starts again though the tree has its minimum
    without it.
    """
    world = World(node("a"), node("b"), node("c"))
    pods = world.create(replica("r0"), replica("r1"), replica("r2"))
    assert started(world.settle()) == {"r0", "r1", "r2"}
    world.delete(pods[0])
    world.advance(60)
    assert started_pods(world) == {"r0", "r1", "r2"}
    world.create([each for each in replica("r0") if each.name == "r0-0"])
    assert started(world.settle()) == {"r0", "r1", "r2"}


@pytest.mark.long
@pytest.mark.parametrize("is_circle", [True, False])
def test_thousands_of_composites_above_each_other_cost_what_changes(
    monkeypatch: pytest.MonkeyPatch, *, is_circle: bool
) -> None:
    """Attack: a chain or circle of composites in one namespace, each with a gang. All of them are
    refused, each change reads the levels that a tree may have and no more, and the pod of another
    namespace starts.
    """
    number, visits = of_size(500, 2_000), 0
    children = Parents._children

    def counted(self: Parents, parent: str) -> Iterator[str]:
        nonlocal visits
        visits += 1
        return children(self, parent)

    monkeypatch.setattr(Parents, "_children", counted)
    world = World(node("n"))
    for n in range(number):
        above = f"c{(n + 1) % number}" if is_circle or n < number - 1 else ""
        world.say(
            Applied(composite(f"c{n}", above)),
            Applied(composite(f"g{n}", f"c{n}", is_composite=False)),
        )
    for n in range(0, number, number // 20):  # of the others it is the same
        world.create(pod(f"g{n}-0", native_group=f"g{n}"))
    world.create(pod("mine", namespace="other"))
    assert set(world.settle().bound()) == {"mine"}
    assert visits < 40 * number
    visits = 0
    world.declare(composite("c7", "c9", generation=2))
    world.settle()
    assert visits < 1_000


def test_a_tree_of_128_different_children_costs_each_plan_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Attack: 512 pods of as many shapes in 128 children that each require a rack, of which 100 are
    needed and nearly fit. A plan makes as many function calls as in 35 ms at most, and is continued
    by the next one.
    """
    calls: list[int] = []

    def counted(*args: Any, **more: Any) -> Any:
        with cProfile.Profile() as profile:
            made = plan_and_commit(*args, **more)
        calls.append(sum(entry.callcount for entry in profile.getstats()))
        return made

    monkeypatch.setattr("tests.world.plan_and_commit", counted)
    world = World(
        *(node(f"n{n}", 8 if n % 2 else 4, labels={"rack": f"r{n // 10}"}) for n in range(60))
    )
    for n in range(128):
        stated = gang_metadata(f"g{n:03}", min_member=4, parent="svc", min_children="100")
        stated = tuple(sorted((*stated, (keys.TOPOLOGY[0], "rack"))))
        shapes = [(1 + n % 3, 1_000 + 37 * n + 11 * each) for each in range(4)]
        world.create(
            pod(f"g{n:03}-{each}", gpus=gpus, cpu_milli=cpu, gang_metadata=stated)
            for each, (gpus, cpu) in enumerate(shapes)
        )
    for _ in range(12):
        world.turn()
    print(f"{calls} calls")
    assert max(calls) < 104_000
    world.create(pod("mine", namespace="other", gpus=0))
    world.turn()
    world.answer()
    assert set(world.bound()) == {"mine"}


@pytest.mark.long
def test_pods_that_all_change_their_sub_group_cost_a_turn_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Attack: all pods of a PodGroup change a label at once, so that each is a sub group of its
    own; then its policy divides them by another label. A turn reads a bounded number of gangs; a
    pod of another namespace is bound in one of the next turns after all messages before it are
    applied, and in the turn after the policy has changed.
    """
    number, read, turns = of_size(600, 10_000), 0, 0
    view = Registry._view

    def counted(self: Registry, record: GangRecord, now_s: float) -> Any:
        nonlocal read
        read += 1
        return view(self, record, now_s)

    monkeypatch.setattr(Registry, "_view", counted)
    bench = Bench()
    bench.loop.inbox(Applied(node("a", pods=1_000)))
    bench.loop.inbox(Applied(group(role(subGroupSize=number + 1))))
    labels = {"role": "decode", "number": "0"}
    pods = [
        pod(f"d{n}", gang_metadata=((MARK, "g"),), labels={**labels, "other": str(n)})
        for n in range(number)
    ]

    def turns_until(name: str) -> int:
        nonlocal read, turns
        bench.loop.inbox(Applied(pod(name, namespace="other", gpus=0)))
        before = turns
        while name not in {each.name for each in bench.binds}:
            read, turns = 0, turns + 1
            bench.loop.turn()
            assert read <= READ_AT_A_TIME
            assert turns - before < number
        return turns - before

    for each in pods:
        bench.loop.inbox(Applied(each))
    turns_until("first")
    for n, each in enumerate(pods):
        bench.loop.inbox(
            Applied(msgspec.structs.replace(each, labels={**each.labels, "number": str(n)}))
        )
    assert turns_until("second") <= number // MESSAGES_PER_TURN + 2
    assert turns_until("third") <= 2, "the gangs that the pods form are read meanwhile"
    while bench.state.registry.is_behind:
        bench.loop.turn()
    policy = group(role(subGroupSize=number + 1, matchLabelKeys=["other"]))
    bench.loop.inbox(Applied(msgspec.structs.replace(policy, generation=2)))
    # The tree that is divided takes a turn of its own, before the one with the next plan.
    assert turns_until("mine0") <= 3
    for n in range(1, number // MOVED_AT_A_TIME):
        assert turns_until(f"mine{n}") <= 2
    assert len(bench.binds) == number // MOVED_AT_A_TIME + 3


def composite(name: str, parent: str, *, is_composite: bool = True, **fields: Any) -> PodGroup:
    """A CompositePodGroup with this parent, or a native PodGroup of one pod."""
    prefix = COMPOSITE_PREFIX
    return PodGroup(
        api_group=keys.COMPOSITE if is_composite else keys.NATIVE,
        version="v1alpha3",
        namespace="ns",
        name=f"{prefix}{name}" if is_composite else name,
        uid=name,
        creation_s=1,
        min_member=0 if is_composite else 1,
        is_composite=is_composite,
        of_object=name if is_composite else "",
        min_children=1 if is_composite else None,
        parent=f"{prefix}{parent}" if parent else "",
        **fields,
    )
