"""PodDisruptionBudgets are kept over all units, and over all decisions."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from gangsched.core.preemption import admissible
from gangsched.core.preemption.budgets import Budgets
from gangsched.core.preemption.selection import Region
from gangsched.core.work import OutOfWork, Work
from gangsched.model.objects import Phase, Pod
from gangsched.model.preemption import (
    Budget,
    BudgetRule,
    NotHelpful,
    Obstacle,
    Preemption,
    Running,
    RunningPod,
)
from gangsched.model.snapshot import Ints
from gangsched.sentences import say
from tests import preemption_oracle as oracle
from tests.builders import gang, group, node, pod, shape
from tests.running_cluster import RunningCluster, full_of_low, high, obstacle, victims


def test_budgets_count_over_all_units_together() -> None:
    """V7, V21: two gangs share a budget of 4; both would be needed, so nobody goes and the budget
    is named.
    """
    cluster = RunningCluster([node("a", gpus=4), node("b", gpus=4)])
    both = [
        *cluster.gang("ns/x", 4, "a a a a", priority=1),
        *cluster.gang("ns/y", 4, "b b b b", priority=1),
    ]
    cluster.budget("ns/w", 4, both)
    told = obstacle(cluster, high(number=2, gpus=4))
    assert told == (Obstacle.BUDGET, "PodDisruptionBudget ns/w allows 4 of 8 evictions.")
    assert victims(cluster.verdicts(high(gpus=4))["ns/high"]) == ["x-0", "x-1", "x-2", "x-3"]
    broken = cluster.verdicts(high(number=2, gpus=4), budgets=BudgetRule.LAST_RESORT)["ns/high"]
    assert len(victims(broken)) == 8
    assert isinstance(broken.preemption, Preemption)
    assert broken.preemption.harm is not None
    assert broken.preemption.harm.budgets_broken == 1


def test_a_budget_is_the_obstacle_only_if_no_choice_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """V21: a gang could go in the place of a plain pod, which the order of prices spends the budget
    on, so no more is said without trying others than that no choice was found.
    """
    monkeypatch.setattr(admissible, "MOST_LIMITED", 0)
    case = oracle.case(3_000_082)
    assert case.best() is not None
    why, text = obstacle(case.cluster, case.group)
    assert why is Obstacle.BUDGET
    assert text == (
        "no choice among the 5 pods of lower priority was found that budgets allow;"
        " PodDisruptionBudget ns/budget allows 2 of 3 evictions."
    )


def test_budgets_count_over_all_decisions() -> None:
    """V7: what an earlier decision of the plan takes, or one under way, is not taken again."""
    cluster = RunningCluster([node("a"), node("b"), node("c")])
    pods = [cluster.run(f"low-{name}", name, gpus=8, priority=1) for name in "ab"]
    pods.append(cluster.run("going", "c", gpus=1, priority=1, leaving=True))
    cluster.run("filler", "c", gpus=7, priority=5000)
    cluster.budget("ns/w", 2, pods)
    made = cluster.verdicts(high("ns/first", gpus=8), high("ns/second", gpus=8))
    assert len(victims(made["ns/first"])) == 1
    assert isinstance(made["ns/second"].preemption, NotHelpful)


def test_budget_that_allows_nothing_is_as_good_as_never() -> None:
    """V7: with minAvailable = all members nobody of the gang is evicted."""
    cluster = full_of_low()
    cluster.budget("ns/w", 0, [each.pod for each in cluster.pods])
    told = obstacle(cluster, high(number=2, gpus=8))
    assert told == (Obstacle.BUDGET, "PodDisruptionBudget ns/w allows 0 of 2 evictions.")


def test_budget_of_another_namespace_is_not_named() -> None:
    """V22: whoever preempts learns that a budget is in the way, and no name of another tenant."""
    for high_gang in (
        high("other/high", number=2, gpus=8),
        group(gang("ns/p", [_of("ns")]), gang("other/q", [_of("other")]), priority=1000),
    ):
        cluster = full_of_low()
        cluster.budget("ns/secret", 0, [each.pod for each in cluster.pods])
        (verdict,) = cluster.verdicts(high_gang).values()
        assert isinstance(verdict.preemption, NotHelpful)
        assert verdict.preemption.why is Obstacle.BUDGET
        assert (
            "Preemption: a PodDisruptionBudget of another namespace allows 0 of 2 evictions."
            in say(verdict.told).now
        )
        assert "secret" not in repr(
            (verdict.told, verdict.notes, verdict.gangs, verdict.preemption)
        )


def _of(namespace: str) -> Pod:
    return pod(f"p-{namespace}", namespace=namespace, gpus=8, priority=1000)


def test_pod_under_two_budgets_is_no_candidate() -> None:
    """V7: the eviction API refuses it for ever; a pod that has not started passes any budget."""
    for phase in (Phase.RUNNING, Phase.PENDING):
        cluster = RunningCluster([node("a")])
        low = cluster.run("low", "a", gpus=8, priority=1, phase=phase)
        cluster.budget("ns/v", 5, [low])
        cluster.budget("ns/w", 5, [low])
        if phase is Phase.RUNNING:
            assert obstacle(cluster, high(gpus=8))[0] is Obstacle.NOTHING_LOWER
        else:
            assert victims(cluster.verdicts(high(gpus=8))["ns/high"]) == ["low"]


@pytest.mark.parametrize("seed", range(30))
def test_units_are_admitted_one_after_the_other_and_charged(seed: int) -> None:
    """V7: each unit that breaks no budget beside those before it; thousands of them count as work
    of the plan.
    """
    dice = random.Random(seed)
    pods = [RunningPod(pod(f"p{i}", uid=f"p{i}", phase=Phase.RUNNING), "a") for i in range(12)]
    known = [
        Budget(
            f"ns/b{b}",
            dice.randrange(5),
            frozenset(f"p{i}" for i in range(12) if dice.random() < 0.3),
        )
        for b in range(3)
    ]
    budgets, cores = Budgets(Running(pods, (), known)), {12: [0, 1, 2], 13: [3, 4]}
    units = dice.sample([*range(12), *cores], 14)
    gone: set[int] = set()
    expected = []
    for unit in units:
        more = gone | set(cores.get(unit, [unit]))
        before, after = (
            [sum(f"p{i}" in each.uids for i in among) - each.allowed for each in known]
            for among in (gone, more)
        )
        if all(then == now or now <= 0 for then, now in zip(before, after, strict=True)):
            gone = more
            expected.append(unit)
    work = Work()

    def pods_of(chosen: Sequence[int]) -> list[int]:
        return [i for unit in chosen for i in cores.get(unit, [unit])]

    assert budgets.admit(units, pods_of, 12, work) == expected, f"seed {seed}"
    assert work.used > len(units) // 4
    with pytest.raises(OutOfWork):
        budgets.admit(list(range(12)) * 1_000, list, 12, Work(2_000))


def test_a_plan_looks_at_as_many_regions_as_it_has_time_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A budget that lets nothing go makes each attempt choose victims in ten regions, of which each
    takes a third of a millisecond: the plan has 25 of them, and ended with 60 ms.
    """
    nodes = [node(f"n{n}", 8) for n in range(20)]
    cluster = RunningCluster(nodes)
    for n in range(20):
        cluster.run(f"low-{n}", f"n{n}", gpus=8, priority=0)

    cluster.budget("ns/b", 0, [running.pod for running in cluster.pods])
    preemptors = []
    for n in range(50):
        of = shape(8, 10 + n)
        waiting = pod(f"p{n}", of=of, priority=9)
        preemptors.append(group(gang(f"pod:ns/p{n}", [waiting], plain=True), priority=9))

    orders = 0
    ordered = Region.ordered

    def counted(region: Region, level: int, *, by_node: bool, breaking: bool) -> Ints:
        nonlocal orders
        orders += 1
        return ordered(region, level, by_node=by_node, breaking=breaking)

    monkeypatch.setattr(Region, "ordered", counted)
    verdicts = cluster.verdicts(*preemptors)
    assert 2 <= len(verdicts) < 50
    assert 20 <= orders <= 100
