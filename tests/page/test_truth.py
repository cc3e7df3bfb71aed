"""The live page says what the commands say: the long form of a test of the feed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import page_truth

pytestmark = [pytest.mark.page, pytest.mark.long]


@pytest.mark.parametrize("has_api", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_a_thousand_events(tmp_path: Path, seed: int, *, has_api: bool) -> None:
    """`map`, `queue` and `why`, byte for byte, after 1,000 random events."""
    page_truth.check(tmp_path, seed=seed, events=1_000, has_api=has_api)
