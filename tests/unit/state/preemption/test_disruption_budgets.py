"""PodDisruptionBudgets are shown as they are, and not at all while they cannot be read."""

from __future__ import annotations

from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.protocol import Applied, Gone, Replaced, Unread
from gangsched.state.preemption.disruption_budgets import DisruptionBudgets
from gangsched.state.rule_set import Rules
from gangsched.state.scheduling import SchedulingState


def budget(name: str = "b", namespace: str = "ns", allowed: int = 1) -> PodDisruptionBudget:
    """One that covers every pod of its namespace."""
    return PodDisruptionBudget(namespace=namespace, name=name, selector=(), allowed=allowed)


def test_nothing_is_shown_before_the_list() -> None:
    """Single budgets may come before the list is complete; until then nobody knows what else there
    is.
    """
    budgets = DisruptionBudgets()
    budgets.apply(budget())
    assert budgets.snapshot() is None
    budgets.replace((budget(), budget("a")))
    assert budgets.snapshot() == {"ns": (budget("a"), budget())}


def test_a_change_is_shown_and_told_once() -> None:
    """A snapshot that was given away stays as it was, and an irrelevant update is no change."""
    budgets = DisruptionBudgets()
    budgets.replace((budget(), budget(namespace="other")))
    before = budgets.snapshot()
    assert budgets.take_changed()
    budgets.apply(budget())
    assert not budgets.take_changed()
    assert budgets.snapshot() is before
    budgets.apply(budget(allowed=0))
    budgets.drop("other/b")
    assert budgets.take_changed()
    assert budgets.snapshot() == {"ns": (budget(allowed=0),)}
    assert before == {"ns": (budget(),), "other": (budget(namespace="other"),)}


def test_budgets_that_cannot_be_read_any_more_are_not_shown() -> None:
    """What was known may be wrong by now; a new list replaces all of it."""
    budgets = DisruptionBudgets()
    budgets.replace((budget(),))
    budgets.snapshot()
    budgets.miss()
    assert budgets.take_changed()
    assert budgets.snapshot() is None
    budgets.replace((budget("a"),))
    assert budgets.take_changed()
    assert budgets.snapshot() == {"ns": (budget("a"),)}


def test_the_state_takes_the_messages() -> None:
    """The four messages about budgets reach the store."""
    state = SchedulingState(Rules())
    state.apply(Replaced(PodDisruptionBudget, (budget(),)), now_s=0.0)
    state.apply(Applied(budget("a")), now_s=0.0)
    state.apply(Gone(PodDisruptionBudget, "ns/b"), now_s=0.0)
    assert state.disruption_budgets.snapshot() == {"ns": (budget("a"),)}
    state.apply(Unread(PodDisruptionBudget), now_s=0.0)
    assert state.disruption_budgets.snapshot() is None


def test_one_change_among_ten_thousand_copies_its_namespace_only() -> None:
    """What a snapshot shows of other namespaces stays the same object."""
    budgets = DisruptionBudgets()
    budgets.replace(budget(f"b{number % 100}", f"ns{number // 100}") for number in range(10_000))
    before = budgets.snapshot()
    budgets.apply(budget("b7", "ns7", allowed=0))
    after = budgets.snapshot()
    assert before is not None
    assert after is not None
    assert sum(map(len, after.values())) == 10_000
    assert [namespace for namespace in after if after[namespace] is not before[namespace]] == [
        "ns7"
    ]
