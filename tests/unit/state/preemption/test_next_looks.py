"""When nominations are looked at next: a heap whose entries may be void, against a plain list of moments."""

from __future__ import annotations

import random
from math import inf

from gangsched.model.preemption import Preemption
from gangsched.state.preemption.next_looks import CHECKED_AT_ONCE, NextLooks
from gangsched.state.preemption.nomination import NominationRecord


def record(serial: int) -> NominationRecord:
    """A nomination of which only the moment matters."""
    return NominationRecord(
        id=f"n{serial}",
        group=f"g{serial}",
        serial=serial,
        decision=Preemption(placements=(), victims=()),
        nominees={},
        victims={},
        began_s=0.0,
        deadline_s=0.0,
    )


def test_the_heap_has_the_moments_that_hold() -> None:
    """V25: whatever moments are set, changed and set again, each comes up once, in time (seed 63)."""
    dice, looks = random.Random(63), NextLooks()
    records = [record(n) for n in range(6)]
    now_s = 0.0
    for _ in range(400):
        for each in dice.sample(records, 2):
            looks.look_at(each, dice.choice([inf, now_s + 1, now_s + 2, now_s + 3]))
        now_s += dice.choice([0.0, 0.5, 1.0])
        held = {each.group: each.due_s for each in records}
        assert looks.next_s() == (min(held.values()) if min(held.values()) < inf else None)
        assert looks.take_due(now_s) == {group for group, due_s in held.items() if due_s <= now_s}
        assert all(each.due_s == inf for each in records if held[each.group] <= now_s)


def test_what_changed_is_checked_in_turn() -> None:
    """V25: however many nominations a change concerns, each is checked, on all nodes that changed meanwhile."""
    looks, number = NextLooks(), 2 * CHECKED_AT_ONCE
    looks.now({f"g{n}": {"a"} for n in range(number)})
    first = looks.take()
    assert list(first) == [f"g{n}" for n in range(CHECKED_AT_ONCE)]
    looks.now({"g0": {"b"}, f"g{number - 1}": {"b"}, f"g{number - 2}": set()})
    looks.now({f"g{number - 2}": {"b"}})
    assert looks.next_s() == -inf
    assert looks.take_due(0.0) == set()
    second = looks.take()
    assert list(second) == [f"g{n}" for n in range(CHECKED_AT_ONCE, number)], "who came first is checked first"
    assert second[f"g{number - 1}"] == {"a", "b"}
    assert second[f"g{number - 2}"] == set(), "any node matters"
    assert looks.take() == {"g0": {"b"}}
    assert looks.next_s() is None
