"""What a nomination waits for, and what is told of it (semantics V12, V20)."""

from __future__ import annotations

import pytest

from gangsched.model.preemption import STUCK_S
from gangsched.sentences import say
from gangsched.state.preemption import awaited
from tests.builders import members, node, pod
from tests.unit.state.preemption.decided import DecidedWorld


def test_a_nomination_with_many_victims_is_counted_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """V20: hundreds that go one by one are not all counted for each of them, and the last count is
    told.
    """
    nodes = [node(f"n{n:02}", 8) for n in range(awaited.MANY // 8 + 1)]
    world = DecidedWorld(*nodes, preempts=True)
    low = world.create(
        [pod(f"low-{n:03}", priority=0, grace_s=1_000) for n in range(8 * len(nodes))]
    )
    world.settle()
    world.create(members("high", len(nodes), gpus=8, priority=1000))
    world.settle()
    assert len(world.evicted()) == len(low)
    counts = 0
    ends_s = awaited.ends_s

    def counted(*args: object, **named: object) -> float:
        nonlocal counts
        counts += 1
        return ends_s(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(awaited, "ends_s", counted)
    world.now_s += awaited.RECOUNT_S
    gone = low[:50]
    for each in gone:
        world.delete(each)
        world.settle()
    # once for the deadline and once for what is told, at the begin and no more
    assert counts <= 2 * 2
    world.advance(awaited.RECOUNT_S)
    assert (
        "when pod ns/low-050, pod ns/low-051 and 52 more pods have stopped"
        in say(world.verdict("ns/high").told).text
    )
    for each in low[50:]:
        world.delete(each)
    world.settle()
    assert len(world.bound()) == len(nodes)


def test_evictions_that_wait_for_their_turn_do_not_end_a_nomination() -> None:
    """V12: the time of a victim begins with the answer to its eviction, which may wait behind those
    of others.
    """
    world = DecidedWorld(node("a", 2), preempts=True)
    low = world.create([pod(f"low-{n}", priority=0, grace_s=0) for n in range(2)])
    world.settle()
    world.fate = lambda each: "later" if getattr(each, "uid", "") == low[1].uid else "bound"
    world.create(members("high", 2, priority=1000))
    world.advance(2 * STUCK_S)
    assert world.events("NominationLost") == []
    world.fate = lambda each: "bound"
    world.advance(1)
    assert {"high-0", "high-1"} <= world.bound().keys()
