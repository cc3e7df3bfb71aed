"""bench.domains in a small form: every gang is decided, and the figures are there."""

import pytest

from bench import domains, plan
from tests import builders
from tests.unit.bench.printed import figures


def test_required_domains_are_timed(capsys: pytest.CaptureFixture[str]) -> None:
    """A line each for one rack in N, large clusters, and racks that all differ."""
    domains.main(["--part", "50", "--repeat", "1", "--demands", "100", "--json"])
    found = figures(capsys)
    assert all(row["plan_ms"] > 0 < row["cold_ms"] for row in found if "plan_ms" in row)
    different = [row for row in found if "demands" in row]
    assert [row["demands"] for row in different] == [2, 2, 2, 2]
    assert all(
        0 <= row["four"] <= row["start"] <= 2 <= row["next_most_ms"] * 1e6 for row in different
    )


def test_a_plan_that_decides_otherwise_is_no_figure() -> None:
    """A gang that should start and does not ends the benchmark instead of being timed."""
    group = builders.group(domains.gang("ns/g", [(domains.whole(8), 2)]))
    with pytest.raises(SystemExit, match="two of one: gang ns/g can never start: it needs 2 pods"):
        domains.measure(plan.Case("two of one", domains.rack("r", [8]), group, 1.0), repeat=1)
