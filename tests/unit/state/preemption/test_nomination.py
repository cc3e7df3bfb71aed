"""A group whose victims are whole gangs starts once all of these are being evicted (semantics V11,
V12, V22).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gangsched.model.objects import Pod
from gangsched.model.protocol import Evict, Evicted, EvictionResult
from tests.builders import members, node
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


def ordered() -> tuple[DecidedWorld, list[Pod], list[Pod], list[Evict]]:
    """The evictions of the gang low, of four, are ordered, and none of them is answered."""
    world, low, high = low_and_high(4, 4, gpus=6, grace_s=1)
    world.fate = lambda order: "later" if isinstance(order, Evict) else "bound"
    world.decide(HIGH, [(high[0], "a")], low)
    world.settle()
    sent = [order for order in world.unwritten if isinstance(order, Evict)]
    assert len(sent) == len(low)
    return world, low, high, sent


def answer_late(world: DecidedWorld, order: Evict) -> None:
    """The API server carries out an eviction that was sent; its pod is gone a second later."""
    world.unwritten.remove(order)
    pod = world.pods[order.uid]
    world.update(pod, deleting=True, deletion_s=world.wall_s() + 1)
    world.leaving[pod.uid] = world.now_s + 1
    world.say(Evicted(order.id, order.uid, EvictionResult.DONE, ""))


def lose_preemptor(world: DecidedWorld, high: list[Pod]) -> None:
    world.delete(*high)


def lose_node(world: DecidedWorld, _: list[Pod]) -> None:
    world.add_nodes(node("a", 8, unschedulable=True))


def pause(world: DecidedWorld, _: list[Pod]) -> None:
    world.state.preemptions.pause("maintenance")


@pytest.mark.parametrize("lose", [lose_preemptor, lose_node, pause])
@pytest.mark.parametrize("are_asked_first", [False, True], ids=["at once", "asked first"])
def test_an_eviction_answered_after_its_nomination_was_lost_takes_the_gang_along(
    lose: Callable[[DecidedWorld, list[Pod]], None], *, are_asked_first: bool
) -> None:
    """V12: one of four evictions had been sent when the nomination was lost, and no answer was seen
    by then; the gang is not left with three members, whether the other evictions are asked for
    before that answer or after it.
    """
    world, _, high, sent = ordered()
    lose(world, high)
    world.turn()
    if are_asked_first:
        first = sent[0]
        world.fate = lambda order: (
            "later" if isinstance(order, Evict) and order.uid == first.uid else "bound"
        )
        world.settle()
        assert set(world.bound()) == {order.name for order in sent}, "nobody needs their room"

    answer_late(world, sent[0])
    world.fate = lambda order: "bound"
    world.advance(10)
    assert not world.bound().keys() & {order.name for order in sent}
    assert not world.state.preemptions.nominations.all()
    told = [text for about, _, text in world.events("Preempted") if about == "PodGroup ns/low"]
    assert told[-1:] == ["Preempted by pod high-0: all 4 members"] or lose is lose_preemptor


@pytest.mark.parametrize("lose", [lose_preemptor, lose_node, pause])
def test_a_gang_of_which_nobody_was_evicted_stays_when_the_nomination_is_lost(
    lose: Callable[[DecidedWorld, list[Pod]], None],
) -> None:
    """V12: evictions that were not sent are withdrawn, and the nomination ends."""
    world, _, high, sent = ordered()
    lose(world, high)
    world.fate = lambda order: "bound"
    world.advance(10)
    assert world.bound().keys() >= {order.name for order in sent}
    assert not world.state.preemptions.nominations.all()


def two_preemptors() -> tuple[DecidedWorld, list[Pod], list[Evict]]:
    """The gang low is evicted for high, and the gang top waits for two of its members to go, too.

    Nothing is answered yet.
    """
    world = DecidedWorld(node("a", 8))
    low = world.create(members("low", 4, gpus=2, grace_s=1))
    world.settle()
    high = world.create(members("high", 1, gpus=4, priority=1000))
    top = world.create(members("top", 1, gpus=4, priority=2000))
    world.settle()
    world.fate = lambda order: "later" if isinstance(order, Evict) else "bound"
    world.decide(HIGH, [(high[0], "a")], low)
    world.settle()
    world.decide("ns/top", [(top[0], "a")], low)
    world.settle()
    return world, high, [order for order in world.unwritten if isinstance(order, Evict)]


def test_a_gang_is_evicted_for_another_nomination_that_waits_for_it() -> None:
    """V12: whoever counts on it that the gang goes gets its room, though the nomination that
    ordered the evictions is lost before any of them is sent.
    """
    world, high, sent = two_preemptors()
    world.delete(*high)
    world.fate = lambda order: "bound"
    world.advance(3)
    assert world.bound().keys() == {"top-0"}
    assert not world.state.preemptions.nominations.all()
    assert len(sent) == len(world.evicted())


def test_a_gang_that_two_nominations_wait_for_is_not_left_half() -> None:
    """V12: both are lost while one of four evictions is on its way."""
    world, high, sent = two_preemptors()
    world.delete(*high)
    world.turn()
    world.state.preemptions.pause("maintenance")
    world.turn()
    answer_late(world, sent[0])
    world.fate = lambda order: "bound"
    world.advance(10)
    assert not world.bound().keys() & {order.name for order in sent}
