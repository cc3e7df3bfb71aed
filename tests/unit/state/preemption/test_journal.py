"""What is told of preemptions: conditions, the debug page, counts (semantics V20, V22, V23)."""

from __future__ import annotations

from gangsched.model.disruption import VICTIM_MESSAGE
from gangsched.model.objects import Pod
from gangsched.model.preemption import UnitKind
from gangsched.state.debug_view import describe_gang
from gangsched.state.preemption.nomination import Result
from tests.builders import members
from tests.unit.state.preemption.decided import DecidedWorld, low_and_high
from tests.unit.state.preemption.test_nominations import HIGH, decide, full


def preempted() -> tuple[DecidedWorld, list[Pod]]:
    """The gang low, which has a PodGroup, evicted whole."""
    world, low, high = low_and_high(2, 2, gpus=8, grace_s=5)
    world.decide(HIGH, [(high[0], "a")], low)
    world.told()
    return world, high


def test_the_pod_group_says_that_it_was_preempted_until_it_starts_again() -> None:
    """V22: DisruptionTarget is True from the first eviction on, and False once the gang has started
    anew.
    """
    world, high = preempted()
    assert world.gang_condition("low", "DisruptionTarget") == "True"
    assert VICTIM_MESSAGE in str(world.status("low"))
    world.advance(6)
    assert world.bound().keys() == {"high-0"}
    world.create(members("low", 2, gpus=4, pod_group=True, first=2))
    world.told()
    assert world.gang_condition("low", "DisruptionTarget") == "True"
    world.delete(*high)
    world.told()
    assert world.bound().keys() == {"low-2", "low-3"}
    assert world.gang_condition("low", "DisruptionTarget") == "False"


def test_a_gang_that_only_lost_surplus_is_no_disruption_target() -> None:
    """V22: it keeps its minimum; its Event says how many went."""
    world, low, high = low_and_high(4, 2, gpus=2)
    world.decide(HIGH, [(high[0], "a")], [low[3]], UnitKind.SURPLUS)
    world.told()
    assert world.gang_condition("low", "DisruptionTarget") == ""
    told = [text for about, _, text in world.events("Preempted") if about == "PodGroup ns/low"]
    assert told == ["Preempted by pod high-0: 1 of 4 members; it keeps its minimum of 2"]


def test_the_debug_page_shows_a_nomination_while_it_lives() -> None:
    """V23: nodes, victims with what became of them, the deadline."""
    world, low, high = full()
    decide(world, high, low)
    world.settle()
    told = describe_gang(world.state, HIGH, now_s=world.now_s)
    assert told is not None
    nomination = told["nomination"]
    assert isinstance(nomination, dict)
    assert nomination["stage"] == "evicting"
    assert nomination["nodes"] == {"ns/high-0": "a", "ns/high-1": "b"}
    assert [each["fate"] for each in nomination["victims"]] == ["evicted", "evicted"]
    assert nomination["deadlineS"] == 90
    world.advance(30)
    told = describe_gang(world.state, HIGH, now_s=world.now_s)
    assert told is not None
    assert told["nomination"] is None


def test_what_happened_is_counted_once() -> None:
    """V23: attempts, victims by unit, how a nomination ended and how long it took."""
    world, low, high = full()
    journal = world.state.preemptions.nominations.journal
    decide(world, high, low)
    world.advance(30)
    counts = journal.take_counts()
    assert counts is not None
    assert dict(counts.attempts) == {"nominated": 1}
    assert dict(counts.victims) == {UnitKind.CORE: 2}
    assert counts.seconds == [(Result.STARTED, 20.0)]
    assert counts.evicted_in_vain == 0
    assert journal.take_counts() is None
