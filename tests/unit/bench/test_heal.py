"""bench.heal in a small form: what each policy is measured by."""

from __future__ import annotations

import pytest

from bench.heal import POLICIES, play


@pytest.mark.parametrize("policy", POLICIES)
def test_losses_are_healed_and_counted(policy: str) -> None:
    """L4, L5: nodes fail, and members come back; a required rack is never left."""
    found = play(policy, nodes=20, days=0.7, seed=1, rate=400.0)
    assert found.healed > 0
    assert 0.0 < found.effective <= 1.0
    assert 0.0 <= found.median_s <= found.p95_s <= found.longest_s
    if policy != "anywhere":
        assert found.split == 0.0
