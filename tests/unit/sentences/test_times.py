"""Times in sentences."""

from __future__ import annotations

from gangsched.sentences.times import by, since


def test_promises_are_rounded_up_and_what_is_past_down() -> None:
    """E7: neither is said too early."""
    assert by(1_893_456_000.0) == since(1_893_456_000.0) == "2030-01-01T00:00Z"
    assert by(1_893_456_000.5) == "2030-01-01T00:01Z"
    assert since(1_893_456_059.9) == "2030-01-01T00:00Z"
