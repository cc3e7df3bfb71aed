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
