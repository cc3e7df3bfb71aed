"""Searches for victims that take more than one plan end, and miss nothing meanwhile (V25)."""

from __future__ import annotations

from collections import Counter

import pytest

from gangsched.core.cycle import Limits
from gangsched.model.inter_pod import InterPodConstraints, PodTerm, Requirement, Spread
from gangsched.model.objects import Pod, Shape
from gangsched.model.preemption import NotHelpful, Obstacle
from tests import builders
from tests.world import World

NODES, RACKS = 20, 4
QUIET = "quiet"
GUARD = (Requirement("app", "In", ("guard",)),)
OWN = (Requirement("app", "In", ("x",)),)


def guarded(work: int) -> tuple[World, list[Pod]]:
    """Nodes full of low priorities, and a pod in each rack that keeps `picky` ones off for good."""
    nodes = [
        builders.node(f"n{n}", cpu_milli=16_100, labels={"rack": f"r{n % RACKS}"})
        for n in range(NODES)
    ]
    world = World(*nodes, limits=Limits(work=work), preempts=True)
    low = [
        builders.pod(
            f"low{n}",
            gpus=0,
            cpu_milli=4_000,
            priority=-10 - n % 3,
        )
        for n in range(4 * NODES)
    ]
    guards = [
        builders.pod(
            f"guard{n}",
            gpus=0,
            cpu_milli=10,
            priority=5_000,
            labels={"app": "guard"},
            namespace=namespace,
        )
        for namespace in (builders.NAMESPACE, QUIET)
        for n in range(RACKS)
    ]
    world.create(builders.running(each, f"n{n % NODES}") for n, each in enumerate(low))
    guards = world.create(builders.running(each, f"n{n % RACKS}") for n, each in enumerate(guards))
    world.settle()

    return world, guards


def picky(name: str, cpu_milli: int = 8_000, namespace: str = builders.NAMESPACE) -> Pod:
    """A pod whose victims only rounds can choose."""
    shape = Shape(
        requests=builders.amounts(cpu_milli=cpu_milli, pods=1),
        inter_pod=InterPodConstraints(
            anti_affinity=(PodTerm("rack", GUARD),),
            spread=(Spread(topology_key="rack", max_skew=1, selector=OWN),),
        ),
    )
    return builders.pod(name, of=shape, namespace=namespace, priority=1_000, labels={"app": "x"})


def searches(world: World, begun: int = 0) -> list[tuple[str, NotHelpful]]:
    """What plans, from the one of this number on, found of those that may preempt."""
    return [
        (verdict.group, verdict.preemption)
        for plan in world.plans[begun:]
        for verdict in plan.verdicts
        if isinstance(verdict.preemption, NotHelpful)
    ]


@pytest.mark.parametrize("work", [6_000, 9_000, 15_000])
def test_who_waits_for_its_turn_is_not_decided_before_it(work: int) -> None:
    """V25: 1,000 pods were told again and again that their search goes on, in 12 plans each."""
    world, _ = guarded(work)
    world.create(picky(f"p{n:02}", 8_000 + n) for n in range(20))
    begun = len(world.plans)
    world.settle()

    known: dict[str, NotHelpful] = {}
    in_vain: Counter[str] = Counter()
    for group, found in searches(world, begun):
        if found.why is Obstacle.LATER and group in known:
            in_vain[group] += known[group] == found
        known[group] = found

    assert len(known) == 20
    assert all(each.why is not Obstacle.LATER for each in known.values())
    assert max(in_vain.values(), default=0) <= 1


def test_a_search_of_another_namespace_waits_for_few_plans() -> None:
    """Q4, V25: however many a tenant makes that take long."""
    world, _ = guarded(9_000)
    world.create(picky(f"p{n:02}", 8_000 + n) for n in range(30))
    for _ in range(20):
        world.turn()

    (late,) = world.create([picky("late", namespace=QUIET)])
    begun = len(world.plans)
    for _ in range(60):
        world.turn()

    found = [each for group, each in searches(world, begun) if group.endswith(late.name)]
    assert found[-1].why is not Obstacle.LATER


@pytest.mark.parametrize("turns", [2, 4, 6, 8])
def test_what_changes_during_a_search_is_not_missed(turns: int) -> None:
    """V25: the racks that earlier plans had refused were not looked at again, and the pod slept."""
    world, guards = guarded(9_000)
    (pod,) = world.create([picky("p")])
    begun = len(world.plans)
    for _ in range(turns):
        world.turn()

    assert searches(world, begun)[-1][1].why is Obstacle.LATER
    world.delete(guards[0])
    world.settle().advance(5.0)

    assert starts(world, pod)


@pytest.mark.parametrize("has_changed", [False, True])
def test_a_search_is_made_again_if_something_changed_meanwhile(has_changed: bool) -> None:
    """V25: else the pod slept although the change may help it; once nothing changes it rests."""
    world, _ = guarded(9_000)
    world.create([picky("p")])
    for _ in range(6):
        world.turn()

    if has_changed:
        world.state.queue.preemptors.note((), anywhere=True)

    world.settle().advance(30.0)
    answers = [found for _, found in searches(world) if found.why is not Obstacle.LATER]
    assert len(answers) == 1 + has_changed


def starts(world: World, pod: Pod) -> bool:
    """Whether room is made for the pod, or it has it."""
    nominated = [each.group for each in world.state.preemptions.nominations.all()]
    return nominated == [f"pod:{pod.key}"] or bool(world.pods[pod.uid].node_name)
