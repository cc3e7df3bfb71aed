"""bench.completeness in a small form: it counts what an exhaustive solver would place."""

import pytest

from bench import completeness
from tests.unit.bench.printed import figures


def test_feasible_cases_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    """The share of gangs that the exhaustive solver places is counted, and none is placed that it does not."""
    completeness.main(["--cases", "50", "--seed", "3", "--json"])
    (found,) = figures(capsys)
    assert (found["feasible"], found["found"], found["unsound"]) == (50, 50, 0)
