"""Facts about slices: each stands in one rack (E1, I3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from random import Random

from gangsched.core.cycle import plan
from gangsched.model.gang import Refusal
from gangsched.model.gpu_policy import PlacementConstraints, SliceLayer
from gangsched.model.verdict_facts import (
    FewSlices,
    NoDomainForSlice,
    NoNodeHas,
    SlicesFail,
    SlicesScattered,
)
from tests.builders import gang, group, node, pod, snapshot, verdict_on
from tests.properties.facts_of.told import Told

SITUATION = "slices"
RACK = "example.com/rack"


@dataclass(frozen=True)
class Case:
    """GPUs of nodes, what others use there, their racks, and the GPUs of the members of slices."""

    gpus: tuple[int, ...]
    used: tuple[int, ...]
    racks: tuple[str, ...]
    size: int
    asks: tuple[int, ...]

    def free(self, rack: str, *, empty: bool) -> tuple[int, ...]:
        """Free GPUs of the nodes of a rack."""
        return tuple(
            gpus - (0 if empty else used)
            for gpus, used, at in zip(self.gpus, self.used, self.racks, strict=True)
            if at == rack
        )

    def named(self) -> list[str]:
        """The racks, without that of nodes without a label."""
        return sorted({*self.racks} - {""})

    def slices(self) -> list[tuple[int, ...]]:
        """The GPUs of the members of each slice."""
        return [
            self.asks[first : first + self.size] for first in range(0, len(self.asks), self.size)
        ]

    def holds(self, rack: str, *, empty: bool) -> int:
        """The largest number of pods of the first slice that the rack takes together."""
        return _most(self.slices()[0], self.free(rack, empty=empty))

    def whole(self, rack: str) -> int:
        """The largest number of slices like the first one that the rack takes together."""
        number = 0
        while _most(self.slices()[0] * (number + 1), self.free(rack, empty=False)) == self.size * (
            number + 1
        ):
            number += 1

        return number

    def fits(self, *, empty: bool) -> bool:
        """Whether some choice of a rack for each slice takes all of them."""
        slices = self.slices()
        racks = self.named()
        return any(
            all(
                _takes_all(
                    [asks for asks, at in zip(slices, order, strict=True) if at == rack],
                    self.free(rack, empty=empty),
                )
                for rack in racks
            )
            for choice in combinations_with_replacement(racks, len(slices))
            for order in _orders(choice)
        )


def _orders(choice: Sequence[str]) -> set[tuple[str, ...]]:
    if len(choice) < 2:
        return {tuple(choice)}

    return {
        (choice[at], *rest)
        for at in range(len(choice))
        for rest in _orders([*choice[:at], *choice[at + 1 :]])
    }


def _takes_all(slices: list[tuple[int, ...]], free: tuple[int, ...]) -> bool:
    asks = tuple(gpus for of_slice in slices for gpus in of_slice)
    return _most(asks, free) == len(asks)


def _most(asks: Sequence[int], free: tuple[int, ...]) -> int:
    """The largest number of these pods that have a node together."""
    if not asks:
        return 0

    most = _most(asks[1:], free)
    for at, gpus in enumerate(free):
        if gpus >= asks[0]:
            left = (*free[:at], gpus - asks[0], *free[at + 1 :])
            most = max(most, 1 + _most(asks[1:], left))

    return most


def case_of(seed: int) -> Case:
    """Two or three slices of two or three pods on up to five nodes in two racks."""
    rng = Random(seed)
    number = rng.randint(1, 5)
    gpus = tuple(rng.randint(1, 4) for _ in range(number))
    size = rng.choice((2, 2, 3))
    slices = 2 if size == 3 else rng.randint(1, 3)
    kinds = (rng.choice((1, 1, 2)),) if rng.random() < 0.7 else (1, 2)
    of_slice = tuple(rng.choice(kinds) for _ in range(size))

    return Case(
        gpus=gpus,
        used=tuple(rng.randint(0, most) for most in gpus),
        racks=tuple(rng.choice(("r0", "r1", "r1", "")) for _ in gpus),
        size=size,
        asks=of_slice * slices,
    )


def told(seed: int) -> Told | None:
    """A gang in slices, whose pods are numbered."""
    case = case_of(seed)
    nodes = [
        node(f"n{at}", gpus, labels={RACK: rack} if rack else {})
        for at, (gpus, rack) in enumerate(zip(case.gpus, case.racks, strict=True))
    ]
    others = [
        (pod(f"other-{at}", gpus=used), f"n{at}") for at, used in enumerate(case.used) if used
    ]
    pods = [pod(f"g-{at}", gpus=gpus, index=at) for at, gpus in enumerate(case.asks)]
    constraints = PlacementConstraints(slices=(SliceLayer(case.size, RACK),))
    of = group(gang("ns/g", pods, constraints=constraints, indexed=True))
    verdict = verdict_on(plan(snapshot(nodes, others), [of], now_s=0.0), of.id)
    if verdict.binds:
        return None

    return Told(verdict.told, lambda refusal: _lies(case, refusal))


def _lies(case: Case, refusal: Refusal) -> Iterator[str]:
    if case.fits(empty=False):
        yield "it fits"
    if refusal.never and case.fits(empty=True):
        yield "it is said to start never, and would on the empty cluster"

    fact = refusal.fact
    if not isinstance(fact, SlicesFail):
        return
    if fact.need.pods != len(case.asks):
        yield f"{fact.need.pods} pods are needed, not {len(case.asks)}"
    if fact.when_empty is not None:
        number = fact.when_empty.number
        if fact.when_empty.limits != ("nvidia.com/gpu",):
            yield f"GPUs alone limit a rack, not {fact.when_empty.limits}"

        empty = max(case.holds(rack, empty=True) for rack in case.named())
        is_exact = len(set(case.asks)) == 1
        if number < empty or (is_exact and number != empty):
            yield f"the largest empty rack holds {empty}, not {number}"

    yield from _of_lack(case, fact)


def _of_lack(case: Case, fact: SlicesFail) -> Iterator[str]:
    lack = fact.lack
    racks = case.named()
    match lack:
        case NoNodeHas() if racks:
            yield f"there are racks: {racks}"
        case SlicesScattered() if not racks:
            yield "there is no rack"
        case NoDomainForSlice():
            yield from _of_slice(case, lack)
        case FewSlices():
            yield from _of_slices(case, lack)
        case NoNodeHas() | SlicesScattered() | None:
            pass
        case _:
            yield f"no check for {type(lack).__name__}"


def _of_slice(case: Case, lack: NoDomainForSlice) -> Iterator[str]:
    best = max(case.holds(rack, empty=False) for rack in case.named())
    if lack.size != case.size or lack.takes >= case.size:
        yield f"a slice of {lack.size} with room for {lack.takes}"
    if lack.takes < best or (not lack.at_most and lack.takes != best):
        yield f"the best rack takes {best}, not {lack.takes}"

    of_named = case.holds(lack.best.split("=")[-1], empty=False)
    if not lack.at_most and of_named != best:
        yield f"{lack.best} is not the best"


def _of_slices(case: Case, lack: FewSlices) -> Iterator[str]:
    room = sum(case.whole(rack) for rack in case.named())
    if lack.needed != len(case.slices()) or lack.room >= lack.needed:
        yield f"{len(case.slices())} slices are needed, not {lack.needed}"
    if lack.room < room or (not lack.at_most and lack.room != room):
        yield f"there is room for {room} slices, not {lack.room}"
