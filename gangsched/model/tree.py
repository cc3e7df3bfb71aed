"""Trees of gangs (I9): a part is a gang, by its id, or a composite of other parts.

Invariant: no part is in two composites, and no gang of a tree has the id of one of its composites.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

MAX_LEVELS: Final = 4
"""Levels of parts in a tree, gangs included, as for CompositePodGroups of Kubernetes."""


@dataclass(frozen=True, slots=True)
class Composite:
    """A part that consists of other parts, sorted by id; `id` is the name that its children give as
    their parent.

    At least `min_children` of them start together; if it is 0, each child starts by itself. For
    each node label in `topology`, the whole part must be in one domain. An `indivisible` part is
    evicted whole or not at all (V6). If any part of a tree `never_preempts`, the tree preempts no
    pods (V2).
    """

    id: str
    children: tuple[Part, ...]
    min_children: int
    topology: tuple[str, ...] = ()
    indivisible: bool = False
    never_preempts: bool = False


Part: TypeAlias = Composite | str


def part_id(part: Part) -> str:
    """The id of a part."""
    return part if isinstance(part, str) else part.id


def gangs_of(*parts: Part) -> list[str]:
    """The ids of the gangs in these parts."""
    gangs: list[str] = []
    open_parts = [*reversed(parts)]
    while open_parts:
        part = open_parts.pop()
        if isinstance(part, str):
            gangs.append(part)
        else:
            open_parts += reversed(part.children)

    return gangs


def composites_of(*parts: Part) -> Iterator[Composite]:
    """The composites among these parts and inside them; each composite comes before the composites
    inside it.
    """
    open_parts = [*reversed(parts)]
    while open_parts:
        part = open_parts.pop()
        if not isinstance(part, str):
            yield part
            open_parts += reversed(part.children)


def parents_of(tree: Composite) -> dict[str, Composite]:
    """The parent of each part below the root, by the part's id."""
    result: dict[str, Composite] = {}
    for composite in composites_of(tree):
        for child in composite.children:
            result[part_id(child)] = composite

    return result


def least_members(part: Part, minimum: Callable[[str], int]) -> int:
    """The smallest number of pods with which a part has its minimum; `minimum` returns that number
    for a gang.
    """
    if isinstance(part, str):
        return minimum(part)

    # The children that start together may be any, so the smallest are the fewest pods.
    least = sorted(least_members(child, minimum) for child in part.children)
    return sum(least[: part.min_children])


def limited(part: Part, gangs: Container[str]) -> Part | None:
    """The part reduced to these gangs, all of which are then needed; None if the part has none of
    them.
    """
    if isinstance(part, str):
        return part if part in gangs else None

    children: Sequence[Part] = [
        limited_child
        for child in part.children
        if (limited_child := limited(child, gangs)) is not None
    ]
    if children:
        return replace(part, children=tuple(children), min_children=len(children))

    return None
