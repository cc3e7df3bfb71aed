"""Openings: the numbers of slices of each kind that start in one block, tried in descending
lexicographic order.

Invariant: every combination within the limits is tried once. The limits are closed downwards: fewer
slices of any kind are always allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Counts: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpeningLimits:
    """What may start in one block: at most `most[kind]` slices of each kind, at most one of those
    that are `alone`.

    At most `lack[need]` slices count towards a need, `needs[kind]`, -1 for a kind that counts
    towards none. Several kinds may be alternatives for one need, made of the same pods, so one more
    than it lacks would place a pod twice.
    """

    most: Counts
    alone: Sequence[bool]
    needs: Sequence[int]
    lack: Sequence[int]


def first_opening(limits: OpeningLimits, above: Counts) -> Counts:
    """The largest counts within the limits that do not exceed `above`."""
    return _completed((), limits, above)


def next_opening(counts: Counts, limits: OpeningLimits) -> Counts | None:
    """The largest counts below these; None after the last."""
    for index in range(len(counts) - 1, -1, -1):
        if counts[index]:
            begun = (*counts[:index], counts[index] - 1)
            return _completed(begun, limits)

    return None


def _completed(begun: Counts, limits: OpeningLimits, above: Counts = ()) -> Counts:
    """The largest counts that begin so."""
    counts = [*begun]
    bound = above
    is_taken = any(count for count, is_alone in zip(begun, limits.alone, strict=False) if is_alone)

    lack = [*limits.lack]
    for need, count in zip(limits.needs, begun, strict=False):
        if need >= 0:
            lack[need] -= count

    for index in range(len(begun), len(limits.most)):
        most = limits.most[index]
        need = limits.needs[index]

        if limits.alone[index]:
            most = 0 if is_taken else min(most, 1)

        if need >= 0:
            most = max(0, min(most, lack[need]))

        if bound:
            most = min(most, bound[index])

        counts.append(most)
        if need >= 0:
            lack[need] -= most

        is_taken = is_taken or (limits.alone[index] and most > 0)
        # Below the bound in one place, everything behind it is free.
        if bound and most < bound[index]:
            bound = ()

    return tuple(counts)


def ways(sizes: Sequence[int], total: int) -> Iterator[Counts]:
    """All ways to take `total` pieces, at most `sizes[kind]` of each kind; ways with more pieces of
    the first kinds come first.
    """
    of_later = [0]  # pieces of all later kinds, by the number of kinds that are left
    for size in reversed(sizes):
        of_later.append(of_later[-1] + size)

    counts: list[int] = []

    def choices(left: int) -> Iterator[int]:
        at = len(counts)
        most = min(sizes[at], left)
        # Fewer than that, and all later kinds together could not make up for it.
        least = max(0, left - of_later[len(sizes) - at - 1])
        return iter(range(most, least - 1, -1))

    if not sizes:
        yield from () if total else ((),)
        return

    # a list, for there may be more kinds than Python may call functions inside each other
    open_ = [choices(total)]
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
