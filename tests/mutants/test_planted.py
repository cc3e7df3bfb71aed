"""Each planted bug still has its place in the source; whether the tests find it is `make mutants`."""

from __future__ import annotations

import pytest

from tests.mutants.mutant import Mutant
from tests.mutants.planted import MUTANTS
from tests.mutants.run import ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_planted_bug_applies(mutant: Mutant) -> None:
    """The text to replace is in the file once, and the tests that must fail exist."""
    assert (ROOT / "gangsched" / mutant.file).read_text().count(mutant.old) == 1
    assert (ROOT / mutant.tests).exists()


def test_names_are_unique() -> None:
    """`python -m tests.mutants.run WORD` can tell them apart, and there are enough of them."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 12
