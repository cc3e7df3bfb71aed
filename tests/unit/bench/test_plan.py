"""bench.plan in a small form: it times whole plans and nothing else."""

import pytest

from bench import plan
from tests import builders
from tests.unit.bench.printed import figures


def test_plans_are_timed(capsys: pytest.CaptureFixture[str]) -> None:
    """Every case is placed whole by `plan` and by the naive loop, and both are timed; then plans
    that preempt.
    """
    plan.main(["--part", "50", "--repeat", "1", "--json"])
    *found, plain, gangs, zone, rack, slices = figures(capsys)
    assert [(row["pods"], row["nodes"]) for row in found] == [
        (20, 100),
        (20, 100),
        (2, 20),
        (2, 100),
    ]
    assert all(row["plan_ms"] > 0 and row["naive_ms"] > 0 for row in found)
    assert all(row["plan_ms"] > 0 for row in (plain, gangs, zone, rack, slices))


def test_a_plan_that_leaves_pods_out_is_no_figure() -> None:
    """A case that does not fit ends the benchmark instead of being timed."""
    gang = builders.gang("ns/g", builders.pods("p", builders.shape(gpus=8), 2))
    too_large = plan.Case("two", [builders.node("n", gpus=8)], builders.group(gang), 1.0)
    with pytest.raises(SystemExit, match="was to be placed whole"):
        plan.measure(too_large, repeat=1)
