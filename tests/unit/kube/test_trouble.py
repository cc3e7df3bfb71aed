"""What is the matter is told once, and that it is over once."""

from __future__ import annotations

from gangsched.kube.trouble import Trouble


def test_a_trouble_is_told_when_it_begins_and_changes_and_when_it_is_over() -> None:
    """Neither a repetition nor an end without a beginning is told."""
    told: list[str] = []
    trouble = Trouble(told.append)
    trouble.is_over("never began")
    for sentence in ("down", "down", "forbidden", "forbidden"):
        trouble.begins(sentence)

    trouble.is_over("up")
    trouble.is_over("up")
    trouble.begins("down")
    assert told == ["down", "forbidden", "up", "down"]
