"""Openings: the numbers of slices of each kind that start in one block, tried in descending lexicographic order.

Invariant: every combination within the limits is tried once. A block has at most one piece of the kinds that are
`alone`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

Counts: TypeAlias = tuple[int, ...]


def first_opening(limits: Counts, alone: Sequence[bool], above: Counts) -> Counts:
    """The largest counts within the limits that do not exceed `above`."""
    return _completed((), limits, alone, above)


def next_opening(counts: Counts, limits: Counts, alone: Sequence[bool]) -> Counts | None:
    """The largest counts below these; None after the last."""
    for index in range(len(counts) - 1, -1, -1):
        if counts[index]:
            return _completed((*counts[:index], counts[index] - 1), limits, alone)
    return None


def _completed(begun: Counts, limits: Counts, alone: Sequence[bool], above: Counts = ()) -> Counts:
    """The largest counts that begin so."""
    counts, bound = list(begun), above
    is_taken = any(count for count, each in zip(begun, alone, strict=False) if each)
    for index in range(len(begun), len(limits)):
        limit = limits[index]
        if alone[index]:
            limit = 0 if is_taken else min(limit, 1)
        counts.append(min(limit, bound[index]) if bound else limit)
        is_taken = is_taken or (alone[index] and counts[index] > 0)
        # Below the bound in one place, everything behind it is free.
        if bound and counts[index] < bound[index]:
            bound = ()
    return tuple(counts)


def ways(sizes: Sequence[int], total: int) -> Iterator[Counts]:
    """All ways to take `total` pieces, at most `sizes[kind]` of each kind; ways with more pieces of the first kinds
    come first.
    """
    behind = [0]  # pieces of all later kinds, by the number of kinds that are left
    for size in reversed(sizes):
        behind.append(behind[-1] + size)
    counts: list[int] = []

    def choices(left: int) -> Iterator[int]:
        at = len(counts)
        return iter(range(min(sizes[at], left), max(0, left - behind[len(sizes) - at - 1]) - 1, -1))

    if not sizes:
        yield from () if total else ((),)
        return
    open_ = [choices(total)]  # a list, for there may be more kinds than Python may call functions inside each other
    while open_:
        count = next(open_[-1], None)
        if count is None:
            open_.pop()
            total += counts.pop() if counts else 0
        elif len(open_) == len(sizes):
            yield (*counts, count)
        else:
            counts.append(count)
            total -= count
            open_.append(choices(total))
