"""Timers: a heap whose entries may be void, against a plain dictionary."""

from __future__ import annotations

import random
from math import inf

from gangsched.state.timers import DUE_AT_ONCE, SPARE, Timers


def test_the_heap_has_the_times_that_hold() -> None:
    """Whatever times are set, changed, dropped and set again, each comes up once, in time (seed
    63).
    """
    dice, timers, now_s = random.Random(63), Timers(), 0.0
    held: dict[str, float] = {}
    for _ in range(600):
        key = f"k{dice.randrange(6)}"
        at_s = dice.choice([inf, now_s + 1, now_s + 2, now_s + 3])
        match dice.choice(["set", "set", "sooner", "drop"]):
            case "set":
                timers.set(key, at_s)
                held[key] = at_s
            case "sooner":
                timers.set_sooner(key, at_s)
                held[key] = min(at_s, held.get(key, inf))
            case "drop":
                timers.drop(key)
                held.pop(key, None)
        held = {key: at_s for key, at_s in held.items() if at_s < inf}
        assert timers.next_s() == min(held.values(), default=inf)
        assert timers.keys() == held.keys()
        assert all(timers.get(key) == at_s for key, at_s in held.items())
        now_s += dice.choice([0.0, 0.5, 1.0])
        due = timers.take_due(now_s)
        assert sorted(due) == sorted(key for key, at_s in held.items() if at_s <= now_s)
        assert [held[key] for key in due] == sorted(held[key] for key in due), "the earliest first"
        for key in due:
            del held[key]


def test_what_is_set_time_and_again_takes_no_room() -> None:
    """A time that moves 10,000 times leaves no more entries than there are keys, and some."""
    timers = Timers()
    for n in range(10_000):
        timers.set("k", float(n))
    assert len(timers) == 1
    assert len(timers._heap) <= 2 + SPARE + 1
    assert timers.take_due(inf) == ["k"]
    assert "k" not in timers


def test_a_part_of_what_is_due_leaves_the_rest_due() -> None:
    """The earliest are taken, and the next time is that of the first that is left."""
    timers = Timers()
    for n in (3, 1, 2, 9):
        timers.set(f"k{n}", float(n))

    assert timers.take_due(5.0, 2) == ["k1", "k2"]
    assert timers.next_s() == 3.0
    assert timers.take_due(5.0, 2) == ["k3"]
    assert timers.take_due(5.0, 2) == []


def test_of_thousands_that_are_due_in_one_moment_some_are_taken() -> None:
    """Unless all are asked for; each comes once."""
    timers = Timers()
    number = 2 * DUE_AT_ONCE + 1
    for n in range(number):
        timers.set(f"k{n}", 5.0)

    taken = timers.take_due(5.0)
    assert len(taken) == DUE_AT_ONCE
    taken += timers.take_due(5.0)
    assert timers.next_s() == 5.0
    taken += timers.take_due(5.0, most=None)
    assert len(taken) == len(set(taken)) == number
    assert timers.next_s() == inf


def test_what_is_due_at_once_comes_up_once_in_turn() -> None:
    """Before anything with a time, those that were due before first, unless another time was set
    or they were dropped since.
    """
    timers = Timers()
    for n in range(4):
        timers.set(f"k{n}", 100.0 + n)

    timers.all_at_once({"k1"})
    timers.all_at_once({"k1", "k2", "k3", "new"})
    assert timers.next_s() == timers.get("k1") == -inf
    timers.set("k2", 7.0)
    timers.drop("k3")

    assert timers.keys() == {"k0", "k1", "k2", "new"}
    assert timers.take_due(5.0) == ["k1", "new"]
    assert timers.next_s() == 7.0
    assert timers.take_due(100.0) == ["k2", "k0"]
    assert timers.next_s() == inf


def test_who_is_made_due_again_and_again_is_taken_in_turn() -> None:
    """Where nodes come faster than groups are looked at, all are looked at, and nothing grows."""
    timers = Timers()
    keys = {f"k{n}" for n in range(50)}
    taken: list[str] = []
    for _ in range(100):
        timers.all_at_once(keys)
        key = timers.take_next(0.0)
        assert key is not None
        taken.append(key)

    assert set(taken) == keys
    assert len(timers._in_turn) <= len(keys)
