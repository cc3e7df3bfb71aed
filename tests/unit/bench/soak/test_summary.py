"""What a soak makes of its samples: one summary, and the goals that are missed."""

from __future__ import annotations

import pytest

from bench.soak.samples import Sample
from bench.soak.summary import judge


def samples(*, grows: float = 0.0, descriptors: int = 0) -> list[Sample]:
    """Thirty minutes: 40 MB in the first ten, then MB an hour; `descriptors` are more or fewer in
    an hour.
    """
    return [
        Sample(
            at_s,
            140 + min(at_s, 600) / 15 + grows * at_s / 3_600,
            70 + round(descriptors * at_s / 3_600),
            *[0] * 8,
        )
        for at_s in range(0, 1_800, 5)
    ]


def test_the_first_ten_minutes_do_not_count_and_fewer_descriptors_are_no_fault(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All goals are met, and the summary says so."""
    assert judge(samples(grows=1.5, descriptors=-90), []) == []
    told = capsys.readouterr().out
    assert "+1.50 MB an hour" in told
    assert "the last third has -20 beside the first" in told
    assert told.endswith("goals            met\n")


@pytest.mark.parametrize(
    ("given", "found", "missed"),
    [
        ({"grows": 2.5}, [], "memory grows by 2.50 MB an hour"),
        ({"descriptors": 90}, [], "the last third has 20 descriptors more than the first"),
        ({}, ["gangsched_pods is 3, and 2 are listed"], "the caches differ from the LIST"),
    ],
)
def test_a_goal_that_is_missed_is_named(
    given: dict[str, int], found: list[str], missed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In what decides about the exit code, and in the summary."""
    assert judge(samples(**given), found) == [missed]
    assert f"missed: {missed}" in capsys.readouterr().out
