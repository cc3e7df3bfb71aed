"""Sentences: each fact of a refusal is true, and each headline can be read back (E1).

`make sentences SEEDS=20000` checks more cases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec import structs

from gangsched.model.gang import Refusal
from gangsched.model.preemption import NotHelpful
from gangsched.model.verdict_facts import (
    ChildrenMissing,
    ClaimOfOnePod,
    FewSlices,
    MemberFails,
    NoDomainForSlice,
    Nominated,
    RoomShort,
    SlicesFail,
)
from gangsched.sentences import say
from tests.properties.facts_of import SITUATIONS, wrong

SEEDS: Mapping[str, range] = {
    "rooms": range(250),
    "slices": range(300),
    "devices": range(60),
    "claims": range(40),
    "trees": range(60),
    "preemption": range(60),
    "reservations": range(120),
}
"""Cases of each situation, as many as take a second."""
RACKS_WITHOUT_LABEL = 1752
LIMITED_TOGETHER = (5122, 5786)
"""Different pods, each of which alone fits into a rack."""
Lie = Callable[[Refusal], Refusal | None]


@pytest.mark.parametrize("situation", SEEDS)
def test_no_refusal_has_a_false_fact(situation: str) -> None:
    """E1: k of n, the best domain, what no node has, never, who must end, and counts by cause."""
    found = {}
    more = (RACKS_WITHOUT_LABEL, *LIMITED_TOGETHER) if situation == "rooms" else ()
    for seed in (*SEEDS[situation], *more):
        told = SITUATIONS[situation](seed)
        if told is not None and (false := [*wrong(told, told.refusal)]):
            found[seed] = (say(told.refusal).text, false)

    assert found == {}


def _of(kind: type, **change: Callable[[Any], Any]) -> Lie:
    """A lie about facts of this kind: fields with another value."""

    def lie(told: Refusal) -> Refusal | None:
        fact: Any = told.fact
        if type(told.fact) is not kind:
            return None

        values = {name: of(fact) for name, of in change.items()}
        return structs.replace(told, fact=structs.replace(fact, **values))

    return lie


def _short(**change: Callable[[Any], Any]) -> Lie:
    """A lie about the scarcest resource."""

    def amounts(fact: Any) -> Any:
        scarcest = fact.short.scarcest
        values = {name: of(scarcest) for name, of in change.items()}
        return structs.replace(fact.short, scarcest=structs.replace(scarcest, **values))

    return _of(RoomShort, short=amounts)


def _domains(**change: Callable[[Any], Any]) -> Lie:
    """A lie about the best domain."""

    def lie(told: Refusal) -> Refusal | None:
        fact: Any = told.fact
        if not isinstance(fact, MemberFails) or fact.domains is None:
            return None

        values = {name: of(fact.domains) for name, of in change.items()}
        return structs.replace(
            told, fact=structs.replace(fact, domains=structs.replace(fact.domains, **values))
        )

    return lie


def _slices(kind: type, **change: Callable[[Any], Any]) -> Lie:
    """A lie about what slices lack."""

    def lie(told: Refusal) -> Refusal | None:
        fact: Any = told.fact
        if not isinstance(fact, SlicesFail) or type(fact.lack) is not kind:
            return None

        values = {name: of(fact.lack) for name, of in change.items()}
        lack: Any = fact.lack
        return structs.replace(
            told, fact=structs.replace(fact, lack=structs.replace(lack, **values))
        )

    return lie


def _devices(**change: Callable[[Any], Any]) -> Lie:
    """A lie about devices."""

    def lie(told: Refusal) -> Refusal | None:
        fact: Any = told.fact
        if not isinstance(fact, MemberFails) or fact.devices is None:
            return None

        values = {name: of(fact.devices) for name, of in change.items()}
        return structs.replace(
            told, fact=structs.replace(fact, devices=structs.replace(fact.devices, **values))
        )

    return lie


def _preemption(**change: Callable[[NotHelpful], Any]) -> Lie:
    """A lie about why preemption does not help."""

    def lie(told: Refusal) -> Refusal | None:
        details = []
        for detail in told.details:
            if isinstance(detail, NotHelpful):
                values = {name: of(detail) for name, of in change.items()}
                details.append(structs.replace(detail, **values))

        return structs.replace(told, details=tuple(details)) if details else None

    return lie


LIES: dict[str, tuple[str, Lie]] = {
    "one more fits": ("rooms", _of(RoomShort, room=lambda fact: fact.room + 1)),
    "one less fits": ("rooms", _of(RoomShort, room=lambda fact: fact.room - 1)),
    "one less fits when empty": (
        "rooms",
        _of(RoomShort, empty_room=lambda fact: fact.empty_room - 1),
    ),
    "another resource limits the empty nodes": (
        "rooms",
        _of(RoomShort, limits=lambda fact: ("memory",) if fact.limits else ()),
    ),
    "nothing limits the empty nodes": ("rooms", _of(RoomShort, limits=lambda _: ())),
    "another resource limits the best rack": (
        "rooms",
        _domains(
            when_empty=lambda domains: (
                domains.when_empty and structs.replace(domains.when_empty, limits=("memory",))
            )
        ),
    ),
    "another resource limits a slice": (
        "slices",
        _of(
            SlicesFail,
            when_empty=lambda fact: (
                fact.when_empty and structs.replace(fact.when_empty, limits=("cpu",))
            ),
        ),
    ),
    "one more pod is needed": (
        "rooms",
        _of(RoomShort, need=lambda fact: structs.replace(fact.need, pods=fact.need.pods + 1)),
    ),
    "one more node": (
        "rooms",
        _of(RoomShort, nodes=lambda fact: structs.replace(fact.nodes, total=fact.nodes.total + 1)),
    ),
    "no node has a reason": (
        "rooms",
        _of(RoomShort, nodes=lambda fact: structs.replace(fact.nodes, excluded=())),
    ),
    "one more eligible node": (
        "rooms",
        _of(RoomShort, short=lambda fact: structs.replace(fact.short, nodes=fact.short.nodes + 1)),
    ),
    "one more is free on one node": (
        "rooms",
        _short(free_on_one=lambda each: each.free_on_one + 1),
    ),
    "one more is free in all": ("rooms", _short(free_in_all=lambda each: each.free_in_all + 1)),
    "the largest node is larger": ("rooms", _short(offered=lambda each: each.offered + 1)),
    "more is offered in all": (
        "rooms",
        _short(offered_in_all=lambda each: each.offered_in_all + 1),
    ),
    "a pod asks for more": ("rooms", _short(asked=lambda each: each.asked + 1)),
    "it starts never": (
        "rooms",
        lambda told: None if told.never else structs.replace(told, never=True),
    ),
    "all were placed": ("rooms", _of(MemberFails, placed=lambda fact: fact.needed + 1)),
    "no node takes it alone": ("rooms", _of(MemberFails, alone=lambda fact: fact.alone + 1)),
    "the best rack takes less": ("rooms", _domains(takes=lambda domains: domains.takes - 1)),
    "there is one more rack": ("rooms", _domains(number=lambda domains: domains.number + 1)),
    "the best domain takes more of a slice": (
        "slices",
        _slices(NoDomainForSlice, takes=lambda lack: lack.takes + 1),
    ),
    "a slice is smaller": ("slices", _slices(NoDomainForSlice, size=lambda lack: lack.size - 1)),
    "one slice less fits": ("slices", _slices(FewSlices, room=lambda lack: lack.room - 1)),
    "one slice more is needed": ("slices", _slices(FewSlices, needed=lambda lack: lack.needed + 1)),
    "one more device is free": ("devices", _devices(free=lambda devices: devices.free + 1)),
    "a node has one more device": ("devices", _devices(on_one=lambda devices: devices.on_one + 1)),
    "a pod asks for one device more": ("devices", _devices(by_pod=lambda of: of.by_pod + 1)),
    "one more pod gets devices": ("devices", _of(MemberFails, placed=lambda fact: fact.needed)),
    "one more pod needs the claim": (
        "claims",
        _of(ClaimOfOnePod, needed=lambda fact: fact.needed + 1),
    ),
    "the other claim is for one pod": ("claims", _of(ClaimOfOnePod, claim=lambda _: "data-2")),
    "one more child is ready": ("trees", _of(ChildrenMissing, ready=lambda fact: fact.ready + 1)),
    "one more child is needed": (
        "trees",
        _of(ChildrenMissing, minimum=lambda fact: fact.minimum + 1),
    ),
    "one pod less must stop": ("preemption", _of(Nominated, pods=lambda fact: fact.pods - 1)),
    "it starts on another node": ("preemption", _of(Nominated, nodes=lambda _: ("elsewhere",))),
    "another gang must stop": (
        "preemption",
        _of(
            Nominated,
            named=lambda fact: tuple(structs.replace(e, pods=e.pods + 1) for e in fact.named),
        ),
    ),
    "it gives up sooner": ("preemption", _of(Nominated, until_s=lambda fact: fact.until_s - 60)),
    "evictions make less room": ("preemption", _preemption(room=lambda why: -1)),
    "one more pod could go": ("preemption", _preemption(pods=lambda why: why.pods + 1)),
    "the budget allows more": ("preemption", _preemption(allowed=lambda why: why.allowed + 1)),
}


@pytest.mark.parametrize("name", LIES)
def test_the_oracle_finds_a_planted_lie(name: str) -> None:
    """A fact that is changed by one is found in one of the cases."""
    situation, change = LIES[name]
    for seed in SEEDS[situation]:
        told = SITUATIONS[situation](seed)
        lie = change(told.refusal) if told is not None else None
        if told is not None and lie is not None and [*wrong(told, lie)]:
            return

    pytest.fail(f"nobody notices that {name}")
