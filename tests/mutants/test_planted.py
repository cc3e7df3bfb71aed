"""Each planted bug still has its place in the package; whether the tests find it is
`make mutants`.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from types import FunctionType

import pytest

from tests.mutants.mutant import Mutant
from tests.mutants.planted import MUTANTS
from tests.mutants.run import ROOT, SITE, kind_of, page


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_planted_bug_applies(mutant: Mutant) -> None:
    """What it patches is there and becomes something else that takes the same arguments, and the
    tests that must fail exist.
    """
    owner, name = mutant.place()
    found = inspect.getattr_static(owner, name)
    planted = mutant.make(found)
    assert planted is not found
    assert_takes_what(planted, found)
    assert (ROOT / "tests" / mutant.tests).is_file()


def assert_takes_what(planted: object, found: object) -> None:
    """A function that cannot be called as the one before would be found by any test that calls it,
    whatever it is about.
    """
    if not (isinstance(found, FunctionType) and isinstance(planted, FunctionType)):
        return

    needed = []
    for parameter in inspect.signature(found).parameters.values():
        is_positional = parameter.kind in (
            parameter.POSITIONAL_ONLY,
            parameter.POSITIONAL_OR_KEYWORD,
        )
        if is_positional and parameter.default is parameter.empty:
            needed.append(parameter.name)

    inspect.signature(planted).bind_partial(*needed)


def test_a_planted_bug_is_in_every_process_of_its_tests() -> None:
    """Whoever imported the function by its name has the bug as well, in children too; an unknown
    bug ends them.
    """
    ask = "import sys; from gangsched.core import cycle, permit, rounds; "
    ask += "print(rounds.missing is permit.missing, permit.missing.__module__.partition('.')[0])"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(SITE), str(ROOT)))}
    for name, printed in (("gangs start one member short", "True tests"), ("", "True gangsched")):
        done = subprocess.run(
            [sys.executable, "-c", ask],
            env={**env, "MUTANT": name},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == printed
    unknown = subprocess.run(
        [sys.executable, "-c", ""], env={**env, "MUTANT": "?"}, capture_output=True, check=False
    )
    assert unknown.returncode == 3


def test_names_are_unique() -> None:
    """`python -m tests.mutants.run WORD` can tell them apart, and there are enough of them."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 12


def test_every_planted_bug_is_looked_for_by_a_kind_of_test_with_a_name() -> None:
    """The table can say by what kind of test each was found."""
    assert "other" not in {kind_of(f"tests/{mutant.tests}") for mutant in MUTANTS}
    assert kind_of("tests/unit/state/test_validate.py::test_a") == "validate"
    assert kind_of("tests/unit/state/test_cluster.py::test_a") == "unit"


def test_the_page_says_what_was_found_by_what_and_what_was_not() -> None:
    """One line for each planted bug; one that survives counts as not found."""
    text = page(
        [
            ("R2", "a", "unit", "test_a"),
            ("R3", "b", "properties", "test_b"),
            ("R4", "c", "", "nothing"),
        ]
    )
    assert "2 of 3 are found: 1 by unit, 1 by properties." in text
    assert "| R2 | a | unit | `test_a` |\n" in text
    assert text.endswith("| R4 | c |  | nothing |\n")
