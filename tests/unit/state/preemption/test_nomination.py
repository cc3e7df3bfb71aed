"""A group whose victims are whole gangs starts once all of these are being evicted (semantics V11,
V12, V22).
"""

from __future__ import annotations

from gangsched.model.objects import Pod
from gangsched.model.protocol import Evict
from tests.unit.state.preemption.decided import DecidedWorld, low_and_high
from tests.unit.state.preemption.test_nominations import HIGH

LATE = ("low-6", "low-7")


def half_evicted() -> tuple[DecidedWorld, list[Pod]]:
    """Six of eight members of the gang low have left, which is room enough; the other evictions are
    unanswered.
    """
    world, low, high = low_and_high(8, 4, gpus=6, grace_s=1)
    world.fate = lambda order: (
        "later" if isinstance(order, Evict) and order.name in LATE else "bound"
    )
    world.decide(HIGH, [(high[0], "a")], low)
    world.advance(3)
    world.told()
    return world, high


def answer(world: DecidedWorld, fate: str) -> None:
    """The API server answers the evictions that are not yet answered."""
    world.fate = lambda order: fate if isinstance(order, Evict) else "bound"
    world.settle()
    world.advance(3)
    world.told()


def test_a_group_starts_only_when_no_gang_is_evicted_by_half() -> None:
    """V11: the other two would run on without the rest of their gang, since a start cancels what is
    not sent.
    """
    world, _ = half_evicted()
    assert world.bound().keys() == set(LATE)
    answer(world, "bound")
    assert world.bound().keys() == {"high-0"}
    told = [text for about, _, text in world.events("Preempted") if about == "PodGroup ns/low"]
    assert told == ["Preempted by pod high-0: all 8 members"]


def test_a_nomination_that_is_lost_first_evicts_the_rest_of_a_gang() -> None:
    """V12: the preemptor is deleted when a part of them is evicted."""
    world, high = half_evicted()
    world.delete(*high)
    world.advance(3)
    assert world.bound().keys() == set(LATE)
    answer(world, "bound")
    assert not world.bound()
    assert not world.state.preemptions.nominations.all()


def test_a_refused_eviction_holds_nobody() -> None:
    """V14: what cannot be evicted stays, and the group starts in the room that there is."""
    world, _ = half_evicted()
    answer(world, "failed")
    assert world.bound().keys() == {*LATE, "high-0"}
