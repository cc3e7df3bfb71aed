"""Oracles of facts: what a refusal says, compared with all choices on small random clusters.

The oracles know the rules and nothing of core. `SITUATIONS` has for each the function of a seed
that makes a random case: its refusal, and what is false in a refusal of that case; None if the case
says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from gangsched.model.gang import Refusal
from tests.properties.facts_of import (
    claims,
    devices,
    preemptions,
    reservations,
    rooms,
    slices,
    trees,
)
from tests.properties.facts_of.parsing import unparsed
from tests.properties.facts_of.told import Told

SITUATIONS: Final[Mapping[str, Callable[[int], Told | None]]] = {
    module.SITUATION: module.told
    for module in (rooms, slices, devices, claims, trees, preemptions, reservations)
}


def wrong(told: Told, refusal: Refusal) -> Iterator[str]:
    """What is false in a refusal of a case, and what is wrong with its headline."""
    yield from told.lies(refusal)
    yield from unparsed(refusal)
