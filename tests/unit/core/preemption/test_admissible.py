"""Units that go together within the budgets, where the cheapest of them do not suffice (V6, V7)."""

from __future__ import annotations

import pytest

from gangsched.core.preemption import admissible
from gangsched.core.preemption.admissible import MOST_LIMITED, AdmissibleSets, Trials
from gangsched.model.objects import Pod
from gangsched.model.preemption import BudgetRule, Obstacle, Preemption
from gangsched.model.snapshot import Ints
from tests import preemption_oracle as oracle
from tests.builders import node
from tests.running_cluster import RunningCluster, high, obstacle, victims


def cheap_and_needed(cheap: int, allowed: int) -> RunningCluster:
    """Two nodes with a pod that fills each, `cheap` pods where their room is of no use, and one
    budget over all of them.
    """
    cluster = RunningCluster([node("x", gpus=64), node("b", gpus=8), node("c", gpus=8)])
    covered: list[Pod] = []
    for number in range(cheap):
        covered.append(cluster.run(f"cheap-{number}", "x", gpus=1, priority=1, ran_s=10))

    cluster.run("filler", "x", gpus=64 - cheap, priority=5_000)
    for name in "bc":
        covered.append(cluster.run(name, name, gpus=8, priority=1, ran_s=3_000))

    cluster.budget("ns/w", allowed, covered)
    return cluster


def test_a_budget_is_spent_where_the_room_is_needed() -> None:
    """V7: the cheap pod costs less, and its room is too small for a member."""
    made = cheap_and_needed(cheap=1, allowed=2).verdicts(high(number=2, gpus=8))["ns/high"]
    assert victims(made) == ["b", "c"]
    assert isinstance(made.preemption, Preemption)
    assert made.preemption.harm is not None
    assert made.preemption.harm.budgets_broken == 0


def test_no_budget_is_broken_while_another_choice_is_left() -> None:
    """V8: with `last_resort`, too, the fewest violated budgets come first."""
    made = cheap_and_needed(cheap=1, allowed=2).verdicts(
        high(number=2, gpus=8),
        budgets=BudgetRule.LAST_RESORT,
    )["ns/high"]
    assert victims(made) == ["b", "c"]


def test_a_budget_that_is_too_small_is_the_obstacle() -> None:
    """V21: no choice of one pod is enough."""
    told = obstacle(cheap_and_needed(cheap=1, allowed=1), high(number=2, gpus=8))
    assert told == (Obstacle.BUDGET, "PodDisruptionBudget ns/w allows 1 of 2 evictions.")


def test_the_member_goes_whose_room_is_needed() -> None:
    """V6: a gang may lose one member, and the youngest is where that is of no use."""
    cluster = RunningCluster([node("x", gpus=12), node("b", gpus=8), node("c", gpus=8)])
    gang = cluster.gang("ns/g", 3, "b x x x", gpus=4, priority=1)
    cluster.run("plain", "c", gpus=8, priority=1)
    cluster.budget("ns/w", 1, gang)
    made = cluster.verdicts(high(number=2, gpus=8))["ns/high"]
    assert victims(made) == ["g-0", "plain"]


def test_the_member_goes_whose_room_is_needed_without_a_budget() -> None:
    """V6: two of three may go, and the usual order takes those of which nobody is helped. The whole
    gang may not: another one of its group has a higher priority.
    """
    case = oracle.case(6_003_408)
    made = case.cluster.verdicts(case.group)["ns/high"]
    assert victims(made) == ["g0-0", "g2-0", "g2-1"]


def test_what_the_order_of_prices_misses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """V7: a budget is not spent on a plain pod if a gang could go in its place; nobody goes in
    vain.
    """
    case = oracle.case(3_000_082)
    made = case.cluster.verdicts(case.group)["ns/high"].preemption
    assert isinstance(made, Preemption)
    assert [*oracle.problems(case, made)] == []

    monkeypatch.setattr(admissible, "MOST_LIMITED", 0)
    without = case.cluster.verdicts(case.group)["ns/high"].preemption
    assert not isinstance(without, Preemption)


def test_among_too_many_pods_it_is_told_that_no_choice_was_found() -> None:
    """V21: beyond the bound another choice may exist, and the sentence does not deny it."""
    cluster = cheap_and_needed(cheap=MOST_LIMITED, allowed=2)
    why, text = obstacle(cluster, high(number=2, gpus=8))
    assert why is Obstacle.BUDGET
    assert text.startswith(
        f"no choice among the {MOST_LIMITED + 2} pods of lower priority was found that budgets"
        " allow; PodDisruptionBudget ns/w allows 2 of "
    )


def test_the_trials_of_an_attempt_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """V25: 12 of 24 pods may go, all 24 would suffice, and there are 2,704,156 choices."""
    names = [f"n{number}" for number in range(MOST_LIMITED)]
    cluster = RunningCluster([node(name, gpus=8) for name in names])
    pods = [cluster.run(name, name, gpus=8, priority=1) for name in names]
    cluster.budget("ns/w", MOST_LIMITED // 2, pods)
    compared: list[Trials] = []
    original = AdmissibleSets.first

    def first(sets: AdmissibleSets, ordered: Ints) -> Ints | None:
        going = original(sets, ordered)
        compared.append(sets.trials)
        return going

    monkeypatch.setattr(AdmissibleSets, "first", first)
    why, _ = obstacle(cluster, high(number=MOST_LIMITED // 2 + 1, gpus=8))
    assert why is Obstacle.BUDGET
    assert len({id(trials) for trials in compared}) == 1
    assert compared[0].left == 0
