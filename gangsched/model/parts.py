"""Parts: every group is a tree of parts, and one question is asked of it: has it started whole?

A plain pod or a gang is a leaf. A gang group (I4) is a composite that needs all of its gangs. A
tree (I9) is a composite of other parts. A part is *whole* if it has its minimum: a leaf its
members, a composite enough children that are whole. It is *broken* if it has something, and is not
whole.

Invariant: pure functions; only this module compares what a group has with what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gangsched.model.gang import Gang
from gangsched.model.tree import Composite, Part, gangs_of, root_part

NOTHING: Final[Mapping[str, int]] = {}
"""Counts of a group of which no member has a node."""


@dataclass(frozen=True, slots=True)
class Root:
    """The whole of a group: its outermost part, and by leaf how many members it needs.

    A leaf with a minimum of 0 is whole without members, as a composite with a minimum of 0 is
    without children. So neither holds up the parts around it, but its members still count as
    something that those have.
    """

    part: Part
    least: Mapping[str, int]


def root_of(part: Part, gangs: Iterable[Gang]) -> Root:
    """The outermost part of a group, with what its gangs need.

    The minimum of a gang that has started is the one that it started with, unless the present one
    is smaller: raising it breaks no gang (B5).
    """
    return Root(part, {gang.id: least_of(gang) for gang in gangs})


def all_of(least: Mapping[str, int]) -> Root:
    """The part of all gangs that have these minimums, and which are all needed."""
    return Root(root_part(tuple(least)), least)


def least_of(gang: Gang) -> int:
    """The number of members with which a gang is whole."""
    if gang.satisfied:
        return min(gang.permitted_min, gang.min_member)

    return gang.min_member


def is_whole(root: Root, counts: Mapping[str, int]) -> bool:
    """Whether the group has its minimum. `counts` says for each leaf how many members have
    a node.
    """
    return _is_whole(root, root.part, counts)


def broken_part(
    root: Root,
    counts: Mapping[str, int],
    begun: Mapping[str, int] = NOTHING,
) -> Part | None:
    """The first part that has something and is not whole, the innermost first; None if there is
    none.

    `counts` says for each leaf how many members have a node, or are about to. A part that had
    something in `begun` is not asked itself, only the parts inside it: it has started before, so it
    is completed one by one.
    """
    return next(_broken(root, root.part, counts, begun), None)


def broken_parts(
    root: Root,
    counts: Mapping[str, int],
) -> list[Part]:
    """All parts that have something and are not whole, each after the parts inside it."""
    return [*_broken(root, root.part, counts, NOTHING)]


def without_broken(
    root: Root,
    counts: Mapping[str, int],
    begun: Mapping[str, int] = NOTHING,
) -> dict[str, int]:
    """The most of `counts` that leaves no part broken: broken parts are reduced to what they had in
    `begun`.
    """
    left = dict(counts)
    while (part := broken_part(root, left, begun)) is not None:
        # Such a part had nothing before; without it the parts around it may be broken in turn.
        left.update(dict.fromkeys(gangs_of(part), 0))

    return left


def in_gangs(
    part: Part,
    is_started: Callable[[str], bool],
) -> tuple[Root, dict[str, int]]:
    """The parts and counts of a group of which it is only known which of its gangs have started
    (`is_started`), and not with how many members.
    """
    gangs = gangs_of(part)
    root = Root(part, dict.fromkeys(gangs, 1))
    counts = {gang: int(is_started(gang)) for gang in gangs}
    return root, counts


def whole_children(
    root: Root,
    composite: Composite,
    counts: Mapping[str, int],
) -> list[Part]:
    """The children of a composite that have something and are whole."""
    result: list[Part] = []
    for child in composite.children:
        if _has_something(child, counts) and _is_whole(root, child, counts):
            result.append(child)

    return result


def _broken(
    root: Root,
    part: Part,
    counts: Mapping[str, int],
    begun: Mapping[str, int],
) -> Iterator[Part]:
    if not _has_something(part, counts):
        return

    if not isinstance(part, str):
        for child in part.children:
            yield from _broken(root, child, counts, begun)

    if not _has_something(part, begun) and not _is_whole(root, part, counts):
        yield part


def _has_something(part: Part, counts: Mapping[str, int]) -> bool:
    return any(counts.get(gang, 0) > 0 for gang in gangs_of(part))


def _is_whole(
    root: Root,
    part: Part,
    counts: Mapping[str, int],
) -> bool:
    if isinstance(part, str):
        return counts.get(part, 0) >= root.least[part]

    number = sum(_is_whole(root, child, counts) for child in part.children)
    return number >= part.min_children
