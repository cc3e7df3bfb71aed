"""What a plan is told of running pods (semantics V25)."""

from __future__ import annotations

import random
from itertools import count, pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.api import keys
from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import Phase, Pod
from gangsched.model.preemption import Running, RunningPod
from gangsched.state.members import State
from gangsched.state.preemption import running
from gangsched.state.preemption.disruption_budgets import Budgets
from gangsched.state.preemption.running import (
    COMPARED_PER_LOOK,
    MOST_BUDGETS_PER_POD,
    RUNS,
    CoveredPods,
)
from tests.builders import members, node, pod, pod_group
from tests.sizes import of_size
from tests.world import World


def told(
    world: World,
    *,
    leaving: frozenset[str] = frozenset(),
    budgets: tuple[PodDisruptionBudget, ...] = (),
) -> Running:
    """As `core.preemption` sees it."""
    world.state.refresh(world.now_s)
    return world.state.preemptions.running.now(leaving, {"ns": budgets} if budgets else {})


def of(running: Running) -> dict[str, tuple[str, str, bool]]:
    """Pod name to node, gang and whether it is leaving."""
    return {each.pod.name: (each.node, each.gang, each.leaving) for each in running.pods}


def test_bound_pods_of_everybody_are_told_and_nothing_else() -> None:
    """Pending pods, those being bound and those that have ended are not among them; plain pods have
    no gang.
    """
    world = World(node("a", 8))
    world.create(
        members("g", 2), pod("plain"), pod("foreign", node_name="a", scheduler_name="other")
    )
    world.settle()
    world.create(pod("pending", gpus=100))
    world.fate = lambda _: "later"
    world.create(pod("under-way"))
    world.settle()
    assert of(told(world)) == {
        "g-0": ("a", "ns/g", False),
        "g-1": ("a", "ns/g", False),
        "plain": ("a", "", False),
        "foreign": ("a", "", False),
    }


def test_a_look_costs_what_has_changed() -> None:
    """The second look reads the pods that moved, and is the same as one that reads all."""
    world = World(node("a", 100))
    pods = world.create(members("g", 40, min_member=2), [pod(f"p{n}") for n in range(40)])
    world.settle()
    told(world)
    seen = world.state.preemptions.running.looks
    world.update(pods[0], deleting=True, deletion_s=5)
    world.delete(pods[50])
    world.update(pods[60], start_s=77, phase=Phase.RUNNING)
    now = told(world, leaving=frozenset({pods[1].uid}))
    assert world.state.preemptions.running.looks - seen <= 4
    world.restart()
    afresh = told(world, leaving=frozenset({pods[1].uid}))
    assert of(now) == of(afresh)
    assert {each.pod.uid: each.pod.start_s for each in now.pods} == {
        each.pod.uid: each.pod.start_s for each in afresh.pods
    }
    (gang,), (again,) = now.gangs, afresh.gangs
    assert sorted(gang.uids) == sorted(again.uids)
    assert len(gang.uids) == 38
    assert (gang.min_member, gang.group) == (2, "ns/g")


def test_an_edited_minimum_is_seen() -> None:
    """The gang's surplus follows its PodGroup."""
    world = World(node("a", 8))
    world.declare(pod_group("g", 2))
    world.create(members("g", 4, pod_group=True))
    world.settle()
    assert [each.min_member for each in told(world).gangs] == [2]
    world.declare(pod_group("g", 3, generation=2))
    assert [each.min_member for each in told(world).gangs] == [3]


def test_a_native_gang_may_be_indivisible() -> None:
    """V6: with disruptionMode `all` nothing of a gang is surplus."""
    world = World(node("a", 8))
    world.declare(pod_group("g", 2, indivisible=True))
    world.create(members("g", 4, pod_group=True))
    world.settle()
    assert [each.indivisible for each in told(world).gangs] == [True]
    world.declare(pod_group("g", 2, generation=2))
    assert [each.indivisible for each in told(world).gangs] == [False]


@pytest.mark.parametrize("api_group", [keys.X_K8S, keys.VOLCANO, keys.NATIVE])
@pytest.mark.parametrize(
    ("of_pods", "of_group", "field", "together", "singly"),
    [
        ("all", "", {}, True, False),
        ("", "all", {}, True, False),
        ("single", "all", {}, False, True),
        ("", "single", {"indivisible": True}, False, True),
        ("", "", {"disrupted_singly": True}, False, True),
        ("both", "", {"indivisible": True}, True, False),
        ("", "", {}, False, False),
    ],
)
def test_disruption_is_stated_like_every_value(
    api_group: str,
    of_pods: str,
    of_group: str,
    field: dict[str, bool],
    together: bool,
    singly: bool,
) -> None:
    """I3, V6: by pods of any dialect, else by the annotation of their PodGroup, else by
    its field.
    """
    world = World(node("a", 8))
    key = keys.DISRUPTION[0]
    marks = {keys.NATIVE: "", keys.VOLCANO: keys.VOLCANO_GROUP, keys.X_K8S: keys.IDENTITIES[0].key}
    texts = {marks[api_group]: "g", key: of_pods}
    stated: dict[str, Any] = {
        "gang_metadata": tuple(sorted(each for each in texts.items() if all(each)))
    }
    if api_group == keys.NATIVE:
        stated["native_group"] = "g"
    annotations = ((key, of_group),) if of_group else ()
    world.declare(pod_group("g", 2, api_group=api_group, gang_metadata=annotations, **field))
    world.create(pod(f"g-{each}", **stated) for each in range(4))
    world.settle()
    assert [(each.indivisible, each.disrupted_singly) for each in told(world).gangs] == [
        (together, singly)
    ]
    assert any(key in each.text for each in world.state.registry.gangs["ns/g"].problems) is (
        of_pods == "both"
    )


def test_a_parent_may_be_indivisible() -> None:
    """I9, V6: the PodGroup of a parent says so for all below it, and what its gangs say does not
    matter then.
    """
    world = World(node("a", 8))
    world.declare(pod_group("p", 1, gang_metadata=((keys.DISRUPTION[0], "all"),)))
    stated = ((keys.DISRUPTION[0], "single"), (keys.PARENT[0], "p"))
    for name in "ab":
        world.declare(pod_group(name, 2, gang_metadata=stated))
        world.create(members(name, 2, pod_group=True))
    world.advance(1)
    assert [(each.indivisible, each.disrupted_singly) for each in told(world).gangs] == [
        (True, False)
    ] * 2


def test_budgets_have_the_pods_that_they_cover() -> None:
    """A budget selects by labels in its namespace; one that covers nobody is left out."""
    world = World(node("a", 8))
    pods = world.create(pod("one", labels={"app": "x"}), pod("two", labels={"app": "y"}))
    world.settle()
    every = PodDisruptionBudget(namespace="ns", name="every", selector=(), allowed=1)
    nobody = PodDisruptionBudget(namespace="ns", name="nobody", selector=None, allowed=1)
    (budget,) = told(world, budgets=(every, nobody)).budgets
    assert (budget.key, budget.allowed, budget.uids) == (
        "ns/every",
        1,
        frozenset(each.uid for each in pods),
    )
    world.delete(pods[0])
    (budget,) = told(world, budgets=(every, nobody)).budgets
    assert budget.uids == {pods[1].uid}


def test_pods_that_are_gone_are_not_remembered_while_nobody_asks() -> None:
    """V25: thousands of pods come and go between two preemptions; the next look is right all the
    same.
    """
    world = World(node("a", 8))
    (stays,) = world.create(pod("stays"))
    went = world.create(
        members("g", 2), pod("goes"), pod("foreign", node_name="a", scheduler_name="other")
    )
    world.settle()
    told(world)
    assert len(world.state.preemptions.running) == 6
    world.delete(*went)
    for number in range(100):
        world.delete(*world.create(pod(f"gone-{number}", node_name="a", scheduler_name="other")))
        (ends,) = world.create(pod(f"ends-{number}", node_name="a", scheduler_name="other"))
        world.update(ends, phase=Phase.SUCCEEDED)
    world.settle()
    assert len(world.state.preemptions.running) == 1
    assert world.state.members.take_changed() == set()
    assert of(told(world)).keys() == {stays.name}


def test_a_plan_with_little_work_left_reads_fewer_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """V25: reading counts as work, pods and comparisons with budgets; each look reads some,
    whatever is left.
    """
    monkeypatch.setattr(running, "LEAST_LOOKS", 10)
    monkeypatch.setattr(running, "LEAST_COMPARED", 20)
    world = World(node("a", 100))
    world.create([pod(f"p{n}", node_name="a", scheduler_name="other") for n in range(100)])
    world.state.refresh(world.now_s)
    budgets = {"ns": tuple(PodDisruptionBudget(namespace="ns", name=f"b{n}") for n in range(2))}
    looks = world.state.preemptions.running
    made = [looks.now(frozenset(), budgets, left) for left in (120, 0, 1_000, 50, 0, 1_000)]
    assert [len(each.pods) for each in made] == [40, 50, 100, 100, 100, 100]
    assert [each.units for each in made] == [120, 30, 150 + 200, 0, 0, 0]
    assert [each.whole for each in made] == [False, False, True, True, True, True]


def test_many_pods_are_read_in_several_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """V25: a plan reads a bounded number of pods; nobody is preempted, nor refused for good, before
    all are known.
    """
    monkeypatch.setattr(running, "LOOKS_A_PLAN", 5)
    world = World(node("a", 4), node("b", 8), preempts=True)
    low = [
        *(
            pod(f"a{n}", node_name="a", scheduler_name="gangsched", priority=1, start_s=1)
            for n in range(4)
        ),
        *(
            pod(f"b{n}", node_name="b", scheduler_name="gangsched", priority=2, start_s=1)
            for n in range(8)
        ),
    ]
    world.create([replace(each, phase=Phase.RUNNING) for each in low])
    world.settle()
    (high,) = world.create(pod("high", gpus=4, priority=9))
    looks, before = [0], len(world.plans)
    while not world.state.preemptions.nominations.victims():
        assert world.turn() is not None, "the group was given up"
        looks.append(world.state.preemptions.running.looks)
    assert [after - then for then, after in pairwise(looks)] == [5, 5, 3]
    assert len(world.plans) - before == 3
    world.advance(60)
    assert world.bound()[high.name] == "a", (
        "pods of the lowest priority go, whichever were read first"
    )


@pytest.mark.long
@pytest.mark.parametrize("seed", range(of_size(8, 100)))
def test_looks_now_and_then_tell_what_a_first_look_tells(seed: int) -> None:
    """V25: whatever came, went, moved or changed its gang between two looks, however many."""
    dice, world, names = random.Random(seed), World(*(node(f"n{n}", 6) for n in range(3))), count()
    pods: dict[str, Pod] = {}
    for _ in range(60):
        for _ in range(dice.randrange(5)):
            match dice.randrange(6):
                case 0:
                    made = world.create(
                        members(f"g{dice.randrange(4)}-{next(names)}", dice.randint(1, 3))
                    )
                    pods |= {each.uid: each for each in made}
                case 1:
                    made = world.create(pod(f"p{next(names)}"))
                    pods |= {each.uid: each for each in made}
                case _ if not pods:
                    pass
                case 2 | 3:
                    world.delete(pods.pop(dice.choice(sorted(pods))))
                case 4:
                    world.update(pods[dice.choice(sorted(pods))], deleting=True, deletion_s=5)
                case 5:
                    world.update(
                        pods[dice.choice(sorted(pods))],
                        phase=dice.choice((Phase.RUNNING, Phase.SUCCEEDED)),
                    )
        world.settle()
        if dice.random() < 0.3:
            leaving = frozenset(uid for uid in pods if dice.random() < 0.1)
            now = told(world, leaving=leaving)
            run = [each for each in world.state.members.all() if each.state in RUNS]
            goes = {each.pod.uid for each in run if each.state is State.TERMINATING} | leaving
            gang_of = {each.pod.uid: "" if each.gang == each.pod.key else each.gang for each in run}
            assert {
                each.pod.uid: (each.pod, each.node, each.gang, each.leaving) for each in now.pods
            } == {
                each.pod.uid: (each.pod, each.node, gang_of[each.pod.uid], each.pod.uid in goes)
                for each in run
            }, seed
            stay = {
                gang: {uid for uid in gang_of if gang_of[uid] == gang} - goes
                for gang in gang_of.values()
                if gang
            }
            assert {each.id: {*each.uids} for each in now.gangs} == {
                gang: of for gang, of in stay.items() if of
            }, seed
            assert len(world.state.preemptions.running) == len(now.pods) + len(now.gangs), seed


def runs(name: str, *, namespace: str = "ns", **labels: str) -> RunningPod:
    """A running pod with these labels."""
    return RunningPod(pod(name, namespace=namespace, uid=f"{namespace}/{name}", labels=labels), "a")


def budget(
    name: str, *, namespace: str = "ns", allowed: int = 1, app: str = ""
) -> PodDisruptionBudget:
    """A budget over the pods of an app, or over all of its namespace."""
    selector = (Requirement("app", "In", (app,)),) if app else ()
    return PodDisruptionBudget(namespace=namespace, name=name, selector=selector, allowed=allowed)


def read_all(covered: CoveredPods, budgets: Budgets) -> dict[str, frozenset[str]]:
    """Look until all is compared."""
    while not covered.read(budgets):
        pass
    return {each.key: each.uids for each in covered.of(budgets)}


def test_a_look_compares_a_bounded_number_of_pods_with_budgets() -> None:
    """60 budgets over 3,300 pods are compared in parts; what was compared is not compared again."""
    covered = CoveredPods()
    pods = [runs(f"p{n}", app="x") for n in range(3_300)]
    for each in pods:
        covered.follow(None, each)
    budgets = {"ns": tuple(budget(f"b{n}", app="y") for n in range(60))}
    looks, before = 0, 0
    while not covered.read(budgets):
        assert covered.compared - before <= COMPARED_PER_LOOK
        looks, before = looks + 1, covered.compared
    assert covered.compared == 198_000
    assert looks >= 198_000 // COMPARED_PER_LOOK - 1
    told = {"ns": tuple(replace(each, allowed=7) for each in budgets["ns"])}
    covered.follow(pods[0], pods[0]._replace(leaving=True))
    assert covered.read(told)
    assert covered.compared == 198_000


@pytest.mark.parametrize("seed", range(30))
def test_covered_pods_follow_what_changes(seed: int) -> None:
    """Whatever comes, goes and changes: each pod is under its budgets, of which the first few are
    known.
    """
    dice = random.Random(seed)
    covered, there = CoveredPods(), dict[str, RunningPod]()
    listed: dict[tuple[str, str], PodDisruptionBudget] = {}
    for _ in range(60):
        name, namespace = f"p{dice.randrange(6)}", dice.choice(("ns", "other"))
        before = there.pop(f"{namespace}/{name}", None)
        now = (
            runs(name, namespace=namespace, app=dice.choice("xy")) if dice.random() < 0.7 else None
        )
        covered.follow(before, now)
        if now is not None:
            there[now.pod.uid] = now
        key = dice.choice(("ns", "other")), f"b{dice.randrange(4)}"
        if dice.random() < 0.5:
            listed.pop(key, None)
        else:
            listed[key] = budget(key[1], namespace=key[0], app=dice.choice(("", "x", "y")))
        budgets = {
            namespace: tuple(listed[each] for each in sorted(listed) if each[0] == namespace)
            for namespace in {each[0] for each in listed}
        }
        if dice.random() < 0.5:
            continue
        found = read_all(covered, budgets)
        for now in there.values():
            keys = {each.key for each in listed.values() if each.covers(now.pod)}
            known = {key for key, uids in found.items() if now.pod.uid in uids}
            assert known <= keys, f"seed {seed}"
            assert len(known) == min(len(keys), MOST_BUDGETS_PER_POD), f"seed {seed}"
        assert frozenset().union(*found.values()) <= there.keys()
    for each in there.values():
        covered.follow(each, None)
    assert (read_all(covered, {}), len(covered)) == ({}, 0)
