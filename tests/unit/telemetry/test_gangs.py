"""The metrics of gangs: every series from the start, and what each shows."""

from __future__ import annotations

from collections import Counter

import pytest

from gangsched.state.reporting.gang_numbers import REASONS, GangCounts, GangStart, Pending
from gangsched.telemetry.gangs import LARGEST, SIZES
from gangsched.telemetry.metrics import Metrics
from tests.unit.telemetry.seen import samples


def test_series_exist_before_anything_waits() -> None:
    """Zeros, not gaps, for every reason and every size."""
    shown = samples(Metrics())
    for reason in REASONS:
        assert shown[f"gangsched_pending_gangs{{reason={reason}}}"] == 0
        assert shown[f"gangsched_pending_pods{{reason={reason}}}"] == 0
    for size in (*(size for _, size in SIZES), LARGEST):
        assert shown[f"gangsched_gang_wait_seconds_count{{members={size}}}"] == 0
    names = ("broken_gangs", "holds", "yields_total", "timeouts_total", "kubelet_rejections_total", "gang_rounds_count")
    assert {name: shown[f"gangsched_{name}"] for name in names} == dict.fromkeys(names, 0.0)


def test_what_waits_is_asked_for_when_it_is_shown() -> None:
    """The numbers are those of the moment of the scrape, by reason."""
    metrics, now = Metrics(), Pending()
    metrics.gangs.count = lambda: now
    metrics.gangs.counts = GangCounts(yielded=1, timed_out=2, kubelet_rejected=3)
    now = Pending(Counter(Unschedulable=2), Counter(Unschedulable=9, New=1), broken=4, held=5)
    shown = samples(metrics)
    assert shown["gangsched_pending_gangs{reason=Unschedulable}"] == 2
    assert shown["gangsched_pending_pods{reason=Unschedulable}"] == 9
    assert shown["gangsched_pending_pods{reason=New}"] == 1
    assert [shown[f"gangsched_{name}"] for name in ("broken_gangs", "holds")] == [4, 5]
    counts = [shown[f"gangsched_{name}_total"] for name in ("yields", "timeouts", "kubelet_rejections")]
    assert counts == [1, 2, 3]


@pytest.mark.parametrize(
    ("members", "size"), [(0, "1"), (1, "1"), (2, "2-8"), (8, "2-8"), (9, "9-64"), (512, "65-512"), (513, "513+")]
)
def test_a_start_is_counted_by_its_minimum(members: int, size: str) -> None:
    """The wait is in the histogram of its size and in no other; so are the rounds, of all sizes together."""
    metrics = Metrics()
    metrics.gangs.started(GangStart(members, 0.2, 3))
    shown = samples(metrics)
    counted = {name: value for name, value in shown.items() if "gang_wait_seconds_count" in name and value}
    assert counted == {f"gangsched_gang_wait_seconds_count{{members={size}}}": 1}
    assert shown[f"gangsched_gang_wait_seconds_bucket{{le=0.25}}{{members={size}}}"] == 1
    assert shown[f"gangsched_gang_wait_seconds_bucket{{le=0.1}}{{members={size}}}"] == 0
    assert (shown["gangsched_gang_rounds_bucket{le=2.0}"], shown["gangsched_gang_rounds_bucket{le=3.0}"]) == (0, 1)
