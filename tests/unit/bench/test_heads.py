"""bench.heads in a small form: every head has its reservation, and plans beside them are timed."""

import pytest

from bench import heads
from tests.unit.bench.printed import figures


def test_plans_beside_reservations_are_timed(capsys: pytest.CaptureFixture[str]) -> None:
    """The first case is what the ratios are to."""
    heads.main(["--part", "50", "--repeat", "1", "--json"])
    found = figures(capsys)
    assert len(found) == 13
    assert found[0]["ratio"] == 1.0
    assert all(row["plan_ms"] > 0 for row in found)
