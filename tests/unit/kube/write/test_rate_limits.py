"""Token buckets: what a burst takes, how it comes back, and what is remembered."""

from __future__ import annotations

import pytest

from gangsched.kube.write.rate_limits import Rate, TokenBuckets, WriteLimits
from gangsched.settings import Settings
from tests.unit.kube.fakes import FakeTime


def test_a_burst_and_then_one_at_a_time() -> None:
    """A full bucket gives its burst at once; then a token comes every so often, for each
    key alone.
    """
    time = FakeTime()
    buckets: TokenBuckets[str] = TokenBuckets(Rate(3, 10.0), time.now)
    for _ in range(3):
        assert buckets.wait_s("a") == 0.0
        buckets.take("a")
    assert buckets.wait_s("a") == pytest.approx(10.0)
    assert buckets.wait_s("b") == 0.0
    time.at_s += 10.0
    assert buckets.wait_s("a") == 0.0
    buckets.take("a")
    assert buckets.wait_s("a") == pytest.approx(10.0)
    time.at_s += 1000.0
    for _ in range(3):
        assert buckets.wait_s("a") == 0.0
        buckets.take("a")
    assert buckets.wait_s("a") > 0.0


def test_buckets_are_forgotten() -> None:
    """Memory is bounded, however many objects there ever were; a bucket that misses several tokens
    is remembered.
    """
    time = FakeTime()
    buckets: TokenBuckets[int] = TokenBuckets(Rate(3, 1e6), time.now)
    for _ in range(3):
        buckets.take(-1)
    for number in range(100_000):
        buckets.take(number)
        time.at_s += 0.1
        assert len(buckets) <= 101
    assert buckets.wait_s(-1) > 0


def test_what_is_gone_has_no_bucket() -> None:
    """Pods come and go for days; how much was said of them is not remembered longer than they are
    there.
    """
    time = FakeTime()
    buckets: TokenBuckets[int] = TokenBuckets(Rate(3, 1e6), time.now)
    for number in range(10_000):
        for _ in range(3):
            buckets.take(number)
        buckets.forget(number)
        buckets.forget(number)  # told twice
        assert len(buckets) == 0


def test_defaults_are_those_of_the_settings() -> None:
    """What docs/reference/settings.md says holds also where no settings are read."""
    assert WriteLimits.of(Settings().writes_per_s) == WriteLimits()
