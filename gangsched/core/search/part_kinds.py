"""Parts of a tree as slices: gangs that require domains are packed exactly, together with gangs
that do not (I9).

Invariant: each gang of the parts is in exactly one entry. A part that requires a domain is one
slice, with an inner slice for each of its parts that requires a smaller domain. If members of the
part run, they pin it instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import TypeAlias

from gangsched.core.search.fixed_domains import indices, nodes_of
from gangsched.core.search.openings import ways
from gangsched.core.search.slices import NeededUnits, Slice, Unit
from gangsched.core.topology import by_refinement, level, lies_within
from gangsched.model.gang import Gang, MatchPolicy
from gangsched.model.objects import Pod
from gangsched.model.snapshot import NodeTable
from gangsched.model.tree import Part, gangs_of

MAX_SELECTIONS = 64
"""Ways to choose the members of a part's minimum, by shape, beyond which they are not packed as
slices.
"""

Pins: TypeAlias = tuple[tuple[str, int], ...]
Filling: TypeAlias = tuple[tuple[Slice, ...], tuple[Pod, ...]]
"""The slices in a part that require less than its domain, and its other pods."""


@dataclass(frozen=True, slots=True)
class PackedPart:
    """Some gangs of the parts, and the units that they need; `units` is None if the members may be
    placed anywhere.
    """

    gangs: Sequence[str]
    units: NeededUnits | None = None


def kinds_in_packing(
    part: Part,
    gangs: Mapping[str, Gang],
    table: NodeTable,
) -> int | None:
    """Number of kinds of pods and slices that a part adds to a packing; None if it cannot be
    packed.
    """
    own = [gangs[gang_id] for gang_id in gangs_of(part)]
    if any(gang.constraints.same_product for gang in own):
        return None

    minimums = {gang.id: gang.min_member for gang in own}
    entries = entries_of((part,), gangs, minimums, table)
    if entries is None:
        return None

    number = len({id(pod.shape) for gang in own for pod in gang.pending})
    for entry in entries:
        open_slices = list(entry.units.of) if entry.units is not None else []
        while open_slices:
            number += 1
            open_slices += open_slices.pop().parts

    return number


def entries_of(
    parts: Sequence[Part],
    gangs: Mapping[str, Gang],
    lacks: Mapping[str, int],
    table: NodeTable,
) -> list[PackedPart] | None:
    """The gangs of these parts as packed, each with as many members as it `lacks`. None if levels
    are not nested, or if there are too many ways to choose members.
    """
    entries: list[PackedPart] = []
    open_parts: list[tuple[Part, tuple[str, ...], Pins]] = []
    for part in reversed(parts):
        open_parts.append((part, (), ()))

    while open_parts:
        part, around, pins = open_parts.pop()
        own = gangs_of(part)
        if not own:  # none of its children is needed
            continue

        stated = _stated(part, gangs)
        if stated:
            keys = (*around, *stated)
            label = _label(keys, table)
            if label is None:
                return None

            # Members that run determine the domain; only without them the search chooses one.
            home = _home(label, own, gangs, table)
            if home is None:
                fillings = _fillings(part, around, "", gangs, lacks, table)
                if fillings is None:
                    return None

                slices = [slice_ for (slice_,), _ in fillings if slice_.pods]
                number = min(1, len(slices))
                entries.append(PackedPart(own, NeededUnits(of=slices, number=number)))
                continue

            around = keys
            pins = (*pins, (label, home))

        if not isinstance(part, str):
            for child in reversed(part.children):
                open_parts.append((child, around, pins))

        elif not pins:
            entries.append(PackedPart(own))
        elif not _is_simple(gangs[part]):
            return None
        else:
            unit = Unit(pins, alone=tuple(gangs[part].pending))
            needed = NeededUnits(fixed=[(unit, lacks[part])])
            entries.append(PackedPart(own, needed))

    return entries


def _home(
    label: str,
    own: Sequence[str],
    gangs: Mapping[str, Gang],
    table: NodeTable,
) -> int | None:
    """The domain of `label` that has most members of these gangs; None if none runs."""
    names: list[str] = []
    for gang_id in own:
        names += nodes_of(gangs[gang_id])

    return level((label,), table).common(indices(names, table))


def layers_in(slice_: Slice) -> Iterator[tuple[str, ...]]:
    """Yield the labels along each path from a slice to its innermost slices, outermost
    label first.
    """
    open_slices: list[tuple[Slice, tuple[str, ...]]] = [(slice_, ())]
    while open_slices:
        inner, outer = open_slices.pop()
        labels = (*outer, inner.key)
        for part in inner.parts:
            open_slices.append((part, labels))

        if not inner.parts:
            yield labels


def signature(slice_: Slice) -> Hashable:
    """A key that is equal for slices that are interchangeable in a packing."""
    parts = Counter(map(signature, slice_.parts))
    shapes = Counter(pod.shape for pod in slice_.own)
    return slice_.key, frozenset(parts.items()), frozenset(shapes.items())


def _fillings(
    part: Part,
    around: tuple[str, ...],
    label: str,
    gangs: Mapping[str, Gang],
    lacks: Mapping[str, int],
    table: NodeTable,
) -> list[Filling] | None:
    """Each way to fill a part by shapes of members, inside a domain of `label` that satisfies the
    levels `around`; None if there are too many.
    """
    stated = _stated(part, gangs)
    keys = (*around, *stated)

    own = _label(keys, table) if stated else label
    if own is None:
        return None

    inside: list[Filling] | None
    if isinstance(part, str):
        inside = _fillings_of_gang(gangs[part], lacks[part])
    else:
        of_children = [_fillings(child, keys, own, gangs, lacks, table) for child in part.children]
        inside = _combined(of_children)

    if inside is None or own == label:
        return inside

    fillings: list[Filling] = []
    for parts, loose in inside:
        slice_ = _slice(own, parts, loose)
        fillings.append(((slice_,), ()))

    return fillings


def _fillings_of_gang(gang: Gang, lack: int) -> list[Filling] | None:
    if not _is_simple(gang):
        return None

    selections = _selections(gang, lack)
    if selections is None:
        return None

    return [((), pods) for pods in selections]


def _combined(of_children: Sequence[list[Filling] | None]) -> list[Filling] | None:
    """Every way to fill one child with every way to fill the others; None if there are too many."""
    known = [fillings for fillings in of_children if fillings is not None]
    if len(known) < len(of_children):
        return None

    # islice: the product of many children has no bound.
    choices = list(islice(product(*known), MAX_SELECTIONS + 1))
    if len(choices) > MAX_SELECTIONS:
        return None

    combined: list[Filling] = []
    for choice in choices:
        slices: list[Slice] = []
        pods: list[Pod] = []
        for parts, loose in choice:
            slices += parts
            pods += loose

        combined.append((tuple(slices), tuple(pods)))

    return combined


def _slice(
    key: str,
    parts: tuple[Slice, ...],
    loose: tuple[Pod, ...],
) -> Slice:
    pods: list[Pod] = []
    for part in parts:
        pods += part.pods

    pods += loose
    return Slice(key, len(pods), tuple(pods), parts, loose=loose)


def _stated(
    part: Part,
    gangs: Mapping[str, Gang],
) -> tuple[str, ...]:
    if isinstance(part, str):
        return gangs[part].constraints.topology

    return part.topology


def _is_simple(gang: Gang) -> bool:
    """Whether a gang's members can be a slice, or part of one."""
    return not gang.constraints.slices and gang.match_policy is MatchPolicy.ONCE_SATISFIED


def _label(keys: Sequence[str], table: NodeTable) -> str | None:
    """The label of which one domain is in one of all these labels; None if there is none."""
    keys = tuple(sorted({*keys}))
    # Kept with the node table, since it depends on labels alone.
    memo = ("own label", *keys)
    if memo not in table.levels:
        table.levels[memo] = (_closest(keys, table),)

    label: str | None
    (label,) = table.levels[memo]
    return label


def _closest(keys: Sequence[str], table: NodeTable) -> str | None:
    """As `_label`, for these labels."""
    held = by_refinement(keys, table)
    if len(held) < len(keys):  # then no node will do
        return next(key for key in keys if key not in held)

    finest = held[0]
    coarser = held[1:]
    inside = level((finest,), table).codes >= 0

    for key in coarser:
        if not lies_within(finest, key, table):
            return None

        codes = level((key,), table).codes[inside]
        if (codes < 0).any():
            return None

    return finest


def _selections(
    gang: Gang,
    lack: int,
) -> list[tuple[Pod, ...]] | None:
    """The pods of each way to choose `lack` members by shape; None if there are too many ways."""
    pools: dict[int, list[Pod]] = {}
    for pod in gang.pending:
        # Shapes are interned, so their identity is enough.
        alike = pools.setdefault(id(pod.shape), [])
        alike.append(pod)

    number = min(len(gang.pending), lack)
    sizes = [len(pool) for pool in pools.values()]
    by_shape = list(islice(ways(sizes, number), MAX_SELECTIONS + 1))
    if len(by_shape) > MAX_SELECTIONS or len(pools) > MAX_SELECTIONS:
        return None

    selections: list[tuple[Pod, ...]] = []
    for counts in by_shape:
        pods: list[Pod] = []
        for pool, count in zip(pools.values(), counts, strict=True):
            pods += pool[:count]

        selections.append(tuple(pods))

    return selections
