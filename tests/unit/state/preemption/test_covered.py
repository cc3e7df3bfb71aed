"""PodDisruptionBudgets and the running pods that they cover (semantics V7)."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.inter_pod import Requirement
from gangsched.model.preemption import RunningPod
from gangsched.state.preemption.covered import COMPARED_PER_LOOK, MOST_BUDGETS_PER_POD, CoveredPods
from gangsched.state.preemption.disruption_budgets import Budgets
from tests.builders import pod


def runs(name: str, *, namespace: str = "ns", **labels: str) -> RunningPod:
    """A running pod with these labels."""
    return RunningPod(pod(name, namespace=namespace, uid=f"{namespace}/{name}", labels=labels), "a")


def budget(name: str, *, namespace: str = "ns", allowed: int = 1, app: str = "") -> PodDisruptionBudget:
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
    """Whatever comes, goes and changes: each pod is under its budgets, of which the first few are known."""
    dice = random.Random(seed)
    covered, there = CoveredPods(), dict[str, RunningPod]()
    listed: dict[tuple[str, str], PodDisruptionBudget] = {}
    for _ in range(60):
        name, namespace = f"p{dice.randrange(6)}", dice.choice(("ns", "other"))
        before = there.pop(f"{namespace}/{name}", None)
        now = runs(name, namespace=namespace, app=dice.choice("xy")) if dice.random() < 0.7 else None
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
        for running in there.values():
            keys = {each.key for each in listed.values() if each.covers(running.pod)}
            known = {key for key, uids in found.items() if running.pod.uid in uids}
            assert known <= keys, f"seed {seed}"
            assert len(known) == min(len(keys), MOST_BUDGETS_PER_POD), f"seed {seed}"
        assert frozenset().union(*found.values()) <= there.keys()
    for each in there.values():
        covered.follow(each, None)
    assert (read_all(covered, {}), len(covered)) == ({}, 0)
