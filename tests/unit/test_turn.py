"""A turn: what it spends before the plan, the plan has less."""

import pytest

from gangsched import turn
from gangsched.core.cycle import Limits
from gangsched.model.plan import Plan, Unfinished
from gangsched.state.queueing import batches
from tests import builders
from tests.world import World

LIMITS = Limits(work=10_000)


@pytest.mark.parametrize(
    ("spent", "ordered", "goes_on", "work"),
    [
        (0, 0, False, 10_000),
        (3_000, 0, False, 7_000),
        (1_000, 2_000, False, 7_000),
        (9_000, 0, False, 5_000),
        (9_000, 0, True, 10_000),
    ],
)
def test_a_plan_has_less_by_what_nominations_and_the_order_took(
    monkeypatch: pytest.MonkeyPatch, spent: int, ordered: int, goes_on: bool, work: int
) -> None:
    """Q4: at most half of it, and none where the plan continues with a group that may need all of
    it.
    """
    world = World(builders.node("n"))
    pod, _ = world.create(builders.pod("p"), builders.pod("q"))
    turn.prepare(world.state, world.now_s, 0.0)
    world.state.preemptions.nominations.promised.work = spent
    monkeypatch.setattr(batches, "UNITS_A_GROUP", ordered // 2)
    monkeypatch.setattr(batches, "MOST", 1 if ordered else 2)
    if goes_on:
        world.state._unfinished.known = Unfinished(group=pod.uid, generation=1)
    given: list[Limits | None] = []

    def plan(*_: object, limits: Limits | None = None, **__: object) -> Plan:
        given.append(limits)
        return Plan((), ())

    monkeypatch.setattr(turn, "plan", plan)
    turn.plan_and_commit(world.state, world.now_s, 0.0, limits=LIMITS)
    assert [each.work for each in given if each is not None] == [work]


class Hanging:
    """A clock of the plan on which each attempt that raises takes this many seconds."""

    def __init__(self, world: World, takes_s: float) -> None:
        self.world = world
        self.takes_s = takes_s
        self.spent_s = 0.0
        #: The time at which each attempt began.
        self.began_s: list[float] = []

    def now_s(self) -> float:
        """The time of the world, and what attempts have taken since the turn began."""
        return self.world.now_s + self.spent_s

    def decide(self, *_: object, **__: object) -> None:
        """Use up the time, and raise as the alarm does."""
        self.began_s.append(self.now_s())
        self.spent_s += self.takes_s
        raise TimeoutError

    def turn(self) -> None:
        """A turn; the time that it took has passed afterwards."""
        turn.prepare(self.world.state, self.world.now_s, 0.0)
        turn.plan_and_commit(
            self.world.state, self.world.now_s, 0.0, limits=LIMITS, clock=self.now_s
        )
        self.world.now_s = self.now_s()
        self.spent_s = 0.0


@pytest.mark.parametrize("target", ["core.decision.decide", "core.cycle.Ledger"])
def test_a_back_off_begins_when_a_long_plan_is_stopped(
    monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """I10: else it is over by then, and stopped plans follow each other without time for others."""
    world = World(builders.node("n"))
    hanging = Hanging(world, takes_s=10.0)
    failed_s: list[float] = []
    world.state.bulkhead.hears = lambda *_: failed_s.append(hanging.now_s())
    monkeypatch.setattr(f"gangsched.{target}", hanging.decide)
    world.create(builders.pod("p"))
    while len(failed_s) < 4:
        hanging.turn()
        world.now_s += 0.25
    pauses_s = []
    for end_s in failed_s[:3]:
        next_s = min(at_s for at_s in hanging.began_s if at_s >= end_s)
        pauses_s.append(next_s - end_s)
    assert pauses_s == [1.0, 2.0, 4.0]
