"""Nobody sleeps wrongly, and at rest hardly anything is planned: a few of the histories of `rests`
(Q3, V25).
"""

from __future__ import annotations

import pytest

from tests.properties.rests import played
from tests.sizes import of_size

pytestmark = pytest.mark.long

HISTORIES = of_size(6, 400)


def test_no_history_rests_with_a_group_that_a_plan_from_scratch_would_help() -> None:
    """Without the safety net; a failure names its seed, which `python -m tests.properties.rests`
    plays again.
    """
    assert [sentence for seed in range(HISTORIES) for sentence in played(seed)] == []
