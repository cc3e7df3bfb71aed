"""Each planted bug still has its place in the source; whether the tests find it is `make mutants`."""

from __future__ import annotations

import pytest

from tests.mutants.mutant import Mutant
from tests.mutants.planted import MUTANTS
from tests.mutants.run import ROOT, kind_of, page


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_planted_bug_applies(mutant: Mutant) -> None:
    """The text to replace is in the file once, and the tests that must fail exist."""
    assert (ROOT / "gangsched" / mutant.file).read_text().count(mutant.old) == 1
    assert (ROOT / mutant.tests).exists()


def test_names_are_unique() -> None:
    """`python -m tests.mutants.run WORD` can tell them apart, and there are enough of them."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 12


def test_every_planted_bug_is_looked_for_by_a_kind_of_test_with_a_name() -> None:
    """The table can say by what kind of test each was found."""
    assert "other" not in {kind_of(mutant.tests) for mutant in MUTANTS}
    assert kind_of("tests/unit/state/test_validate.py::test_a") == "validate"
    assert kind_of("tests/unit/state/test_cluster.py::test_a") == "unit"


def test_the_page_says_what_was_found_by_what_and_what_was_not() -> None:
    """One line for each planted bug; one that survives counts as not found."""
    text = page([("R2", "a", "unit", "test_a"), ("R3", "b", "properties", "test_b"), ("R4", "c", "", "nothing")])
    assert "2 of 3 are found: 1 by unit, 1 by properties." in text
    assert "| R2 | a | unit | `test_a` |\n" in text
    assert text.endswith("| R4 | c |  | nothing |\n")
