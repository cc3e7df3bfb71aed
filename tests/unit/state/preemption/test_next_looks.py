"""When nominations are checked next."""

from __future__ import annotations

from math import inf

from gangsched.state.preemption.next_looks import CHECKED_AT_ONCE, NextLooks


def test_what_changed_is_checked_in_turn() -> None:
    """V25: however many nominations a change concerns, each is checked, on all nodes that changed
    meanwhile.
    """
    looks, number = NextLooks(), 2 * CHECKED_AT_ONCE
    looks.now({f"g{n}": {"a"} for n in range(number)})
    first = looks.take()
    assert list(first) == [f"g{n}" for n in range(CHECKED_AT_ONCE)]
    looks.now({"g0": {"b"}, f"g{number - 1}": {"b"}, f"g{number - 2}": set()})
    looks.now({f"g{number - 2}": {"b"}})
    assert looks.next_s() == -inf
    second = looks.take()
    assert list(second) == [f"g{n}" for n in range(CHECKED_AT_ONCE, number)], (
        "who came first is checked first"
    )
    assert second[f"g{number - 1}"] == {"a", "b"}
    assert second[f"g{number - 2}"] == set(), "any node matters"
    assert looks.take() == {"g0": {"b"}}
    assert looks.next_s() == inf
