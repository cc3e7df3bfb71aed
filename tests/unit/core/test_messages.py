"""The sentences: one of something is told as one."""

from __future__ import annotations

from gangsched.core import messages


def test_one_is_not_told_as_many() -> None:
    """Counts of one read as people say them, and others as they did."""
    assert messages.permitted(1) == "1 pod has found a node and is bound"
    assert messages.permitted(2) == "2 pods have found a node and are bound together"
    assert messages.holds_summary(1, "waiting") == "1 member holds a node, waiting"
    assert messages.holds_summary(2, "waiting") == "2 members hold a node, waiting"
    assert messages.strict_holds_nothing(1).endswith("; 1 hold was released")
    assert messages.strict_holds_nothing(3).endswith("; 3 holds were released")
