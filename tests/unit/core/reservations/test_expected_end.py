"""When a pod is expected to end (H2)."""

from __future__ import annotations

import math

import pytest

from gangsched.api.keys import run_time_metadata
from gangsched.api.run_time import run_time_s
from gangsched.core.reservations.expected_end import expected_end_s


@pytest.mark.parametrize(
    ("run_time_s", "now_s", "end_s"),
    [
        (3600, 1000, 4600),
        (3600, 4599, 4600),
        (3600, 4600, 8200),  # passed: twice the time run so far
        (3600, 8199, 8200),  # and it stays there until that has passed, too
        (3600, 8200, 15_400),
        (60, 1060, 1660),  # at least 10 minutes ahead
        (60, 1660, 2320),
        (0, 1000, 1600),
        (math.inf, 1e9, math.inf),  # unknown: never
    ],
)
def test_expected_ends(run_time_s: float, now_s: float, end_s: float) -> None:
    """H2: of a pod that started at 1,000."""
    assert expected_end_s(1000, run_time_s, now_s) == end_s


def test_a_negative_run_time_ends() -> None:
    """Objects may say anything: from -2**63 s on, steps of ten minutes would never come to
    an end.
    """
    stated_s = run_time_s(run_time_metadata({}, {}, -(2**63)), None, None)
    assert 2e9 < expected_end_s(-62_135_596_800, stated_s, 2e9) < 1e12
