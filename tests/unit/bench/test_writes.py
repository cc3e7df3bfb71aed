"""The goals of `make bench-writes`."""

from __future__ import annotations

from bench.writes import Counting, Writes, missed


def test_writes_are_counted_by_object() -> None:
    """Changes count, creations and other names do not."""
    counting = Counting()
    for kind, name, change in (
        ("Pod", "a-0", "ADDED"),
        ("Pod", "a-0", "MODIFIED"),
        ("Pod", "a-0", "MODIFIED"),
        ("Pod", "a-1", "MODIFIED"),
        ("Pod", "b-0", "MODIFIED"),
        ("PodGroup", "a", "MODIFIED"),
    ):
        counting.heard(change, {"kind": kind, "metadata": {"name": name}}, 0.0)
    assert counting.taken("case", "a", 60.0) == Writes("case", 60, 3, 2, 1, 1)


def test_missed_goals_are_named() -> None:
    """Three writes a pod that is created, one a refused pod, two statuses a refused gang
    a minute.
    """
    created, refused = (
        Writes("created", 58, 999, 3, 12, 12),
        Writes("refused", 300, 2_000, 1, 900, 10),
    )
    assert missed(created, refused) == []
    assert len(missed(Writes("created", 58, 999, 4, 12, 12), refused)) == 1
    assert len(missed(created, Writes("refused", 300, 2_000, 2, 900, 11))) == 2
