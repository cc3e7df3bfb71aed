"""Parts of groups: a part is a gang, by its id, or a composite of other parts (I4, I9).

Invariant: no part is in two composites, and no gang of a tree has the id of one of its composites.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Final, TypeAlias, TypeGuard

import msgspec
from msgspec import structs

MAX_LEVELS: Final = 4
"""Levels of parts in a tree, gangs included, as for CompositePodGroups of Kubernetes."""


class Composite(msgspec.Struct, frozen=True, gc=False):
    """A part that consists of other parts, sorted by id; `id` is the name that its children give as
    their parent.

    At least `min_children` of them start together; if it is 0, each child starts by itself. For
    each node label in `topology`, the whole part must be in one domain. An `indivisible` part is
    evicted whole or not at all (V6). If any part of a tree `never_preempts`, the tree preempts no
    pods (V2). `note` is said beside the number of children that it lacks.

    The gangs of a `joint` part start in one round, and in one domain of each level that any of them
    requires: a gang group (I4), or what the minimum of a tree needs.
    """

    id: str
    children: tuple[Part, ...]
    min_children: int
    topology: tuple[str, ...] = ()
    indivisible: bool = False
    never_preempts: bool = False
    joint: bool = False
    note: str = ""


Part: TypeAlias = Composite | str


def root_part(gangs: Sequence[str], tree: Composite | None = None) -> Part:
    """The outermost part of a group: its declared `tree`; without one, all of its gangs are one
    joint part.
    """
    if tree is not None:
        return tree
    if len(gangs) == 1:
        return gangs[0]

    # No object declares it, so it has no name; that of a gang could be another composite's.
    return Composite(
        id="",
        children=tuple(gangs),
        min_children=len(gangs),
        joint=True,
    )


def starts_in_parts(part: Part) -> TypeGuard[Composite]:
    """Whether parts inside it may start without the others; a gang and a joint part start in one
    round.
    """
    return not isinstance(part, str) and not part.joint


def spares_children(part: Part) -> bool:
    """Whether a composite in this part needs fewer children than it has."""
    if not starts_in_parts(part):
        return False

    for composite in composites_of(part):
        if composite.min_children < len(composite.children):
            return True

    return False


def required_levels(
    part: Part,
    of_gang: Callable[[str], Iterable[str]],
) -> Iterator[tuple[tuple[str, ...], Sequence[str]]]:
    """The node labels for which each part inside this one must be in one domain, with the gangs of
    that part; `of_gang` returns those of a gang.
    """
    if isinstance(part, str):
        yield tuple(of_gang(part)), (part,)
        return

    gangs = gangs_of(part)
    if part.joint:
        # A domain that one of them requires is that of all.
        labels = dict.fromkeys(label for gang in gangs for label in of_gang(gang))
        yield tuple(labels), gangs
        return

    yield part.topology, gangs
    for child in part.children:
        yield from required_levels(child, of_gang)


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
        return structs.replace(part, children=tuple(children), min_children=len(children))

    return None
