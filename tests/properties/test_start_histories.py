"""Nothing starts in part, leaves its rack or sleeps though it fits: a few histories of each manner
(B1, B3, B7, I9).
"""

from __future__ import annotations

import pytest

from tests.properties.rests import played
from tests.properties.start_histories import MANNERS
from tests.sizes import of_size

pytestmark = pytest.mark.long

HISTORIES = of_size(20, 500)


@pytest.mark.parametrize("manner", MANNERS)
def test_no_history_has_a_part_of_a_group_at_rest(manner: str) -> None:
    """A failure names its seed, and the command that plays it again."""
    assert [sentence for seed in range(HISTORIES) for sentence in played(seed, manner)] == []


@pytest.mark.parametrize(
    ("manner", "seed"),
    [
        ("kills-with-claims", 9_600_107),
        ("kills-with-claims", 9_600_333),
        ("kills-with-claims", 9_600_395),
        ("kills-with-claims", 9_602_035),
        ("kills-with-claims", 9_610_161),
        ("kills-with-claims", 9_612_826),
        ("kills-with-claims", 11_002_462),
        ("kills-with-claims", 12_001_164),
        ("kills-with-preemption", 13_000_734),
        ("kills-with-preemption", 14_001_184),
        ("kills-with-preemption", 14_001_847),
        ("claims-with-preemption", 9_700_180),
        ("claims-with-preemption", 12_001_584),
        ("claims-with-preemption", 13_001_163),
        ("claims-with-preemption", 14_002_483),
        ("all", 12_000_294),
        ("all", 12_000_568),
        ("all", 12_001_943),
        ("all", 12_002_585),
        ("all", 13_001_405),
        ("all", 15_400_201),
        ("all", 15_630_054),
        ("rests", 957_141),
        ("rests", 15_100_557),
    ],
)
def test_histories_that_once_ended_in_part(manner: str, seed: int) -> None:
    """tests/REGRESSIONS.md says what each of them found."""
    assert list(played(seed, manner)) == []
