"""Every rule of the semantics is proven by tests that cite it."""

from __future__ import annotations

from tests.rules import cited, table, unproven


def test_every_rule_has_tests() -> None:
    """Each rule has a scenario, and a test of another kind that cites it."""
    assert unproven(table()) == []


def test_rule_without_tests_is_noticed() -> None:
    """A rule that only scenarios prove, or only other tests, is named."""
    of = {"R1": {"scenarios": ["a"], "unit": ["b"]}, "R2": {"scenarios": ["a"]}, "R3": {"unit": ["b"]}}
    assert unproven(of) == ["R2", "R3"]


def test_citations_are_read() -> None:
    """Lists and ranges of rules are understood, and what only looks like a rule is not."""
    assert cited("P1, B1: a gang. See R1 to R3 and T1-T2.") == ["P1", "B1", "R1", "R2", "R3", "T1", "T2"]
    assert cited("Q9 of AB1, E12 and v1") == []
