"""The bench of promises: what counts as kept, and what is read from a PodGroup."""

from __future__ import annotations

from typing import Any

import pytest

from bench.reservation import Promises, Run


@pytest.mark.parametrize(
    ("promised_s", "started_s", "kept"),
    [
        (20.0, 18.0, True),
        (20.0, 20.0, True),
        (20.0, 20.1, False),
        (None, 3.0, False),
        (20.0, None, False),
    ],
)
def test_what_is_kept(promised_s: float | None, started_s: float | None, kept: bool) -> None:
    """A start no later than told; without a promise or a start nothing is kept."""
    assert Run(told_s=0.3, promised_s=promised_s, started_s=started_s).kept == kept


def test_the_first_promise_counts() -> None:
    """A later text does not replace the first, and an estimate is none."""
    promises = Promises()
    for text in (
        "expected at about 2026-01-01T00:00:10Z",
        "starts at 2026-01-01T00:00:20Z at the latest, when",
        "",
    ):
        promises.changed("MODIFIED", group(text), 0.0)
    promises.changed("MODIFIED", group("starts at 2026-01-01T00:09Z at the latest"), 0.0)
    assert [latest_s for _, latest_s in promises.told.values()] == [1_767_225_620.0]


def group(text: str) -> dict[str, Any]:
    """A PodGroup whose condition says this."""
    return {
        "metadata": {"name": "g"},
        "status": {"conditions": [{"type": "Reserved", "message": text}]},
    }
