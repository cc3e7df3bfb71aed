"""Sentences: each fact of a refusal is true, and each number of its text is a fact (E1).

`make sentences SEEDS=20000` checks more cases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gangsched.model.gang import Refusal
from gangsched.model.verdict_facts import MemberFails, RoomShort
from gangsched.sentences import say
from tests.properties.sentence_oracle import HEADLINE, case_of, lies, refusal_of

SEEDS = range(250)
RACKS_WITHOUT_LABEL = 1752


def test_no_refusal_has_a_false_fact() -> None:
    """E1: k of n, the best domain, what no node has, never, and counts by cause."""
    found = {}
    for seed in (*SEEDS, RACKS_WITHOUT_LABEL):
        case = case_of(seed)
        told = refusal_of(case)
        if told is not None and (false := [*lies(case, told)]):
            found[seed] = (say(told).text, false)

    assert found == {}


def test_headlines_are_short() -> None:
    """E1: what is needed, the best there is and what is in the way, in 160 characters."""
    told = [refusal_of(case_of(seed)) for seed in SEEDS]
    headlines = [say(each).headline for each in told if each is not None]
    assert len(headlines) > 100
    assert [each for each in headlines if len(each) > HEADLINE] == []


def _of(kind: type, **change: Callable[[Any], Any]) -> Callable[[Refusal], Refusal | None]:
    """A lie about facts of this kind: fields with another value."""

    def lie(told: Refusal) -> Refusal | None:
        fact: Any = told.fact
        if type(told.fact) is not kind:
            return None

        values = {name: of(fact) for name, of in change.items()}
        return replace(told, fact=replace(fact, **values))

    return lie


def _short(**change: Callable[[Any], Any]) -> Callable[[Refusal], Refusal | None]:
    """A lie about the scarcest resource."""

    def amounts(fact: Any) -> Any:
        scarcest = fact.short.scarcest
        values = {name: of(scarcest) for name, of in change.items()}
        return replace(fact.short, scarcest=replace(scarcest, **values))

    return _of(RoomShort, short=amounts)


def _domains(**change: Callable[[Any], Any]) -> Callable[[Refusal], Refusal | None]:
    """A lie about the best domain."""

    def lie(told: Refusal) -> Refusal | None:
        fact: Any = told.fact
        if not isinstance(fact, MemberFails) or fact.domains is None:
            return None

        values = {name: of(fact.domains) for name, of in change.items()}
        return replace(told, fact=replace(fact, domains=replace(fact.domains, **values)))

    return lie


LIES: dict[str, Callable[[Refusal], Refusal | None]] = {
    "one more fits": _of(RoomShort, room=lambda fact: fact.room + 1),
    "one less fits": _of(RoomShort, room=lambda fact: fact.room - 1),
    "one less fits when empty": _of(RoomShort, empty_room=lambda fact: fact.empty_room - 1),
    "one more pod is needed": _of(
        RoomShort, need=lambda fact: replace(fact.need, pods=fact.need.pods + 1)
    ),
    "one more node": _of(
        RoomShort, nodes=lambda fact: replace(fact.nodes, total=fact.nodes.total + 1)
    ),
    "no node has a reason": _of(RoomShort, nodes=lambda fact: replace(fact.nodes, excluded=())),
    "one more eligible node": _of(
        RoomShort, short=lambda fact: replace(fact.short, nodes=fact.short.nodes + 1)
    ),
    "one more is free on one node": _short(free_on_one=lambda each: each.free_on_one + 1),
    "one more is free in all": _short(free_in_all=lambda each: each.free_in_all + 1),
    "the largest node is larger": _short(offered=lambda each: each.offered + 1),
    "more is offered in all": _short(offered_in_all=lambda each: each.offered_in_all + 1),
    "a pod asks for more": _short(asked=lambda each: each.asked + 1),
    "it starts never": lambda told: None if told.never else replace(told, never=True),
    "all were placed": _of(MemberFails, placed=lambda fact: fact.needed + 1),
    "no node takes it alone": _of(MemberFails, alone=lambda fact: fact.alone + 1),
    "the best rack takes less": _domains(takes=lambda domains: domains.takes - 1),
    "there is one more rack": _domains(number=lambda domains: domains.number + 1),
}


@pytest.mark.parametrize("name", LIES)
def test_the_oracle_finds_a_planted_lie(name: str) -> None:
    """A fact that is changed by one is found in one of the cases."""
    for seed in SEEDS:
        case = case_of(seed)
        told = refusal_of(case)
        lie = LIES[name](told) if told is not None else None
        if lie is not None and [*lies(case, lie)]:
            return

    pytest.fail(f"nobody notices that {name}")
