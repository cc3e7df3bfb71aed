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
