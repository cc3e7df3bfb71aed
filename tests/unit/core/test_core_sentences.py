"""The sentences: one of something is told as one."""

from __future__ import annotations

from gangsched.core import sentences


def test_one_is_not_told_as_many() -> None:
    """Counts of one read as people say them, and others as they did."""
    assert sentences.permitted(1) == "1 pod has found a node and is bound"
    assert sentences.permitted(2) == "2 pods have found a node and are bound together"
    assert sentences.holds_summary(1, "waiting") == "1 member holds a node, waiting"
    assert sentences.holds_summary(2, "waiting") == "2 members hold a node, waiting"
    assert sentences.strict_holds_nothing(1).endswith("; 1 hold was released")
    assert sentences.strict_holds_nothing(3).endswith("; 3 holds were released")
