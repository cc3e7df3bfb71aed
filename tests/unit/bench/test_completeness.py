"""bench.completeness in a small form: it counts what an exhaustive solver would place."""

import pytest

from bench import completeness
from tests.sizes import of_size
from tests.unit.bench.printed import figures


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "trees"), [(of_size(30, 50), []), (of_size(40, 150), ["--trees"])]
)
def test_feasible_cases_are_found(
    number: int, trees: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The share of gangs or trees that the exhaustive solver places is counted; none is placed that
    it does not.
    """
    completeness.main(["--cases", str(number), "--seed", "3", "--json", *trees])
    (found,) = figures(capsys)
    assert (found["feasible"], found["found"], found["unsound"]) == (number, number, 0)
