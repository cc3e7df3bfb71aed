"""Every rule of the semantics is proven by tests that cite it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.density import PACKAGES
from tests.rules import cited, table, unproven

ROOT = Path(__file__).parents[1]
CITATION = re.compile(r"\((?:semantics )?([A-Z]\d{1,2}(?:(?:, | to | and |-|–)[A-Z]\d{1,2})*)\)")


def test_every_rule_has_tests() -> None:
    """Each rule has a scenario, and a test of another kind that cites it."""
    assert unproven(table()) == []


def test_rule_without_tests_is_noticed() -> None:
    """A rule that only scenarios prove, or only other tests, is named."""
    of = {
        "R1": {"scenarios": ["a"], "unit": ["b"]},
        "R2": {"scenarios": ["a"]},
        "R3": {"unit": ["b"]},
    }
    assert unproven(of) == ["R2", "R3"]


def test_citations_are_read() -> None:
    """Lists and ranges of rules are understood, and what only looks like a rule is not."""
    assert cited("P1, B1: a gang. See R1 to R3 and T1-T2.") == [
        "P1",
        "B1",
        "R1",
        "R2",
        "R3",
        "T1",
        "T2",
    ]
    assert cited("Q9 of AB1, E12 and v1") == []


def test_the_package_cites_rules_that_exist() -> None:
    """A number in parentheses leads to a rule of the pages, else its reader searches in vain."""
    pages = (ROOT / "docs" / "semantics.md", *sorted((ROOT / "docs" / "semantics").glob("*.md")))
    rules = {
        rule for page in pages for rule in re.findall(r"\*\*([A-Z]\d{1,2})\.", page.read_text())
    }
    assert {"Q1", "V28", "A5"} <= rules
    sources = {path: path.read_text() for package in PACKAGES for path in package.rglob("*.py")}
    named = {
        (str(path.relative_to(ROOT)), rule)
        for path, text in sources.items()
        for found in CITATION.findall(" ".join(text.split()))
        for rule in re.findall(r"[A-Z]\d{1,2}", found)
    }
    assert len(named) > 300
    assert {where for where in named if where[1] not in rules} == set()
