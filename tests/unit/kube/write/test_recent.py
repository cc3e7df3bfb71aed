"""What was written lately is remembered for a while, and what is kept does not grow."""

from __future__ import annotations

from gangsched.kube.write.recent import Recent


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_an_entry_is_there_for_its_time_and_gone_with_the_next_one_after_it() -> None:
    """Whatever the moment of its writing, and however much is written meanwhile; writing it again
    is a new time.
    """
    for first_s in (0.0, 30.0, 61.0):
        clock = Clock()
        recent: Recent[str, int] = Recent(clock, for_s=60.0)
        clock.now_s = first_s
        recent["a"] = recent["b"] = 1
        for second in range(1, 60):
            clock.now_s = first_s + second
            recent[f"other-{second}"] = 0
            assert recent.get("a") == 1, (first_s, second)
        recent["b"] = 2
        clock.now_s = first_s + 60
        recent["other"] = 0
        assert "a" not in recent
        assert recent.get("b") == 2


def test_what_is_kept_is_always_as_much_at_a_steady_pace() -> None:
    """An hour of ten writes a second, remembered for a minute: a minute of them, at any time after
    the first.
    """
    clock = Clock()
    recent: Recent[int, None] = Recent(clock, for_s=60.0)
    for number in range(36_000):
        clock.now_s = number / 10
        recent[number] = None
        assert number < 600 or 599 <= len(recent) <= 601


def test_a_burst_is_bounded_by_the_limit() -> None:
    """The last ones are there, and never more than the limit; the newest value counts."""
    recent: Recent[int, str] = Recent(Clock(), for_s=60.0, limit=100)
    for number in range(1_000):
        recent[number] = "old"
        assert len(recent) <= 100
    recent[980] = "new"
    assert {number for number in range(1_000) if number in recent} == set(range(900, 1_000))
    assert recent.get(980) == "new"
    assert recent.get(0) is None


def test_what_is_forgotten_is_gone_at_once() -> None:
    """The others stay, and it may be remembered again."""
    recent: Recent[str, int] = Recent(Clock(), for_s=60.0)
    recent["a"] = recent["b"] = 1
    recent.forget("a")
    recent.forget("never there")
    assert "a" not in recent
    assert recent.get("b") == 1
    recent["a"] = 2
    assert recent.get("a") == 2
