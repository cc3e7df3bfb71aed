"""What was written lately is remembered for a while, and what is kept does not grow."""

from __future__ import annotations

from gangsched.kube.write.recent import Recent


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_an_entry_is_there_for_its_time_and_gone_after_twice_that() -> None:
    """Whatever the moment of its writing was within a generation."""
    for first_s in (0.0, 30.0, 59.0, 60.0, 61.0, 119.0):
        clock = Clock()
        recent: Recent[str, int] = Recent(clock, for_s=60.0)
        clock.now_s = first_s
        recent["a"] = 1
        for second in range(1, 60):
            clock.now_s = first_s + second
            recent[f"other-{second}"] = 0
            assert recent.get("a") == 1, (first_s, second)
        for second in (60, 120):
            clock.now_s = first_s + second
            recent["other"] = 0
        assert "a" not in recent


def test_what_is_kept_does_not_grow_at_a_steady_pace() -> None:
    """An hour of ten writes a second, remembered for a minute: never more than two minutes of them."""
    clock = Clock()
    recent: Recent[int, None] = Recent(clock, for_s=60.0)
    most = 0
    for number in range(36_000):
        clock.now_s = number / 10
        recent[number] = None
        most = max(most, len(recent)) if number % 97 == 0 else most
    assert 600 <= most <= 1_200


def test_a_burst_is_bounded_by_the_limit() -> None:
    """The last half of the limit is always there, and never more than the limit; the newest value counts."""
    recent: Recent[int, str] = Recent(Clock(), for_s=60.0, limit=100)
    for number in range(1_000):
        recent[number] = "old"
        assert len(recent) <= 100
    recent[980] = "new"
    assert {number for number in range(950, 1_000) if number in recent} == set(range(950, 1_000))
    assert recent.get(980) == "new"
    assert recent.get(0) is None
