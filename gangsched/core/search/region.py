"""Regions: the nodes of a domain, and its inner blocks, as steps of a packing.

Invariant: equal rooms give equal steps, whatever the nodes' names. Resources that suffice for all
pods on every node are left out, so nodes that differ only in these resources are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

import numpy as np

from gangsched.core.search.packing_problem import Amounts, PackingProblem, Pattern, Piece, Step
from gangsched.model.snapshot import Ints

FEW_NODES = 48
"""Nodes of a block up to which sorting them one by one is quicker than numpy."""


def problem(
    kinds: Sequence[Piece],
    start: Pattern,
    needs: Sequence[int],
    nodes: Ints,
    free: Ints,
    room: Ints,
    blocks: Sequence[Ints] = (),
) -> PackingProblem:
    """The problem of placing the kinds on `nodes`, given by index, with `free[r][n]` and room for
    `room[kind][n]` pods of each kind.

    `blocks[layer][n]` is the node's block in each layer of slices, -1 if it is in none.
    """
    asked = np.array(most_asked(kinds, start), dtype=np.int64)
    # A resource that every node has enough of refutes nothing, but would make equal nodes differ.
    kept = np.arange(0)
    if free.size:
        scarce = (free < asked[:, None]).any(axis=1)
        kept = np.flatnonzero(scarce)

    used = _with_resources(kinds, kept.tolist())
    most = _most_pods(kinds, start, len(room))

    # Capped at what could be used, so that a node with 8 free GPUs equals one with 16 if 8 are
    # asked for.
    room = np.minimum(room, most[:, None])
    free = np.clip(free[kept], 0, asked[kept, None])

    inside = room.any(axis=0)
    columns = np.concatenate((room, free))[:, inside]
    layers = [codes[inside] for codes in blocks]

    needed = int(most.sum())
    builder = _Builder(used, len(room), needed)
    steps = builder.steps(columns, nodes[inside], layers)

    return PackingProblem(used, tuple(start), tuple(needs), tuple(steps))


def _with_resources(
    kinds: Sequence[Piece],
    rows: Sequence[int],
) -> tuple[Piece, ...]:
    """The kinds, of which pods ask for the resources in these rows only."""
    used = []
    for kind in kinds:
        if kind.layer < 0:
            asks = tuple(kind.asks[row] for row in rows)
            used.append(replace(kind, asks=asks))
        else:
            used.append(kind)

    return tuple(used)


def _most_pods(
    kinds: Sequence[Piece],
    start: Pattern,
    pods: int,
) -> Ints:
    """How many pods of each of the first `pods` kinds all pieces have together."""
    most = np.zeros(len(kinds), dtype=np.int64)
    for counts in _pods_in(kinds, start):
        most += counts

    return most[:pods]


def most_asked(kinds: Sequence[Piece], start: Pattern) -> list[int]:
    """Total requests of all available pieces, by resource."""
    width = max((len(kind.asks) for kind in kinds), default=0)
    total = [0] * width

    for counts in _pods_in(kinds, start):
        for kind, count in zip(kinds, counts, strict=True):
            if not count:
                continue

            for row, ask in enumerate(kind.asks):
                total[row] += count * ask

    return total


def _pods_in(
    kinds: Sequence[Piece],
    start: Pattern,
) -> Iterator[list[int]]:
    """Of each kind at hand the pods that it consists of, by kind."""
    for piece, count in enumerate(start):
        if not count:
            continue

        counts = [0] * len(kinds)
        for pod, number in pods_of(kinds, piece):
            counts[pod] += number * count

        yield counts


def pods_of(
    kinds: Sequence[Piece],
    t: int,
) -> Iterator[tuple[int, int]]:
    """Yield the kinds of pods in one piece of kind `t`, with their numbers."""
    open_parts = [(t, 1)]
    while open_parts:
        part, count = open_parts.pop()
        kind = kinds[part]
        if kind.layer < 0:
            yield part, count

        for inner, number in kind.parts:
            open_parts.append((inner, number * count))


class _Block(NamedTuple):
    """The steps of a block, and what each has: equal in blocks that are alike. The nodes that are
    in no block are one as well, `is_outside`.
    """

    room: list[Amounts]
    is_outside: bool
    steps: list[Step]

    @property
    def key(self) -> tuple[bool, list[Amounts]]:
        """Equal for blocks that are alike, greater for more room; least outside of every block."""
        return not self.is_outside, self.room


@dataclass(slots=True)
class _Builder:
    """Makes steps of nodes, block by block; equal neighbours get one number. The first `pods` kinds
    are pods.
    """

    kinds: Sequence[Piece]
    pods: int
    needed: int
    number: int = 0

    def steps(
        self,
        columns: Ints,
        nodes: Ints,
        blocks: Sequence[Ints],
        layer: int = 0,
    ) -> list[Step]:
        """The steps for these nodes; the nodes and blocks with most room come first."""
        if layer == len(blocks) or not nodes.size:
            return self._nodes(columns, nodes)

        order = np.argsort(blocks[layer], kind="stable")
        columns = columns[:, order]
        nodes = nodes[order]
        blocks = [codes[order] for codes in blocks]

        block_codes, first_nodes = np.unique(blocks[layer], return_index=True)
        starts = first_nodes.tolist()
        ends = [*starts[1:], nodes.size]
        built = []

        for code, start, end in zip(block_codes.tolist(), starts, ends, strict=True):
            part = slice(start, end)
            inner = [codes[part] for codes in blocks]
            steps = self.steps(columns[:, part], nodes[part], inner, layer + 1)

            room = [step.room + step.free for step in steps]
            block = _Block(room, code < 0, steps)
            built.append(block)

        # The roomiest blocks first, nodes outside of every block last: most problems are solved in
        # the first ones.
        built.sort(key=lambda block: block.key, reverse=True)
        no_slices = (0,) * len(self.kinds)
        result = []

        for _, alike in groupby(built, key=lambda block: block.key):
            self.number += 1
            number = self.number

            for block in alike:
                slices = no_slices
                if not block.is_outside:
                    slices = self._room(layer, block.steps)

                result.append(Step(layer, number, slices))
                result += block.steps

        return result

    def _nodes(self, columns: Ints, nodes: Ints) -> list[Step]:
        """One step a node, equal ones side by side and no more of them than could be used."""
        steps: list[Step] = []
        no_slices = (0,) * (len(self.kinds) - self.pods)

        for column, alike in _alike(columns, nodes):
            self.number += 1
            room = column[: self.pods] + no_slices
            free = column[self.pods :]

            # Of equal nodes no more than there are pods can be used.
            for node in alike[: self.needed]:
                steps.append(Step(-1, self.number, room, free, node))

        return steps

    def _room(self, layer: int, steps: Sequence[Step]) -> Amounts:
        """How many slices of each kind the block takes at most, each kind alone."""
        room = []
        for number, kind in enumerate(self.kinds):
            if kind.layer == layer:
                room.append(self._slices(number, steps))
            else:
                room.append(0)

        return tuple(room)

    def _slices(self, number: int, steps: Sequence[Step]) -> int:
        """How many slices of a kind the block takes at most, by each of its parts and resources."""
        kind = self.kinds[number]
        limits = []
        if kind.alone:
            limits.append(1)

        for part, count in kind.parts:
            room = sum(step.room[part] for step in steps)
            limits.append(room // count)

        pods = list(pods_of(self.kinds, number))
        for row, _ in enumerate(self.kinds[0].asks):
            asked = 0
            for pod, count in pods:
                asked += self.kinds[pod].asks[row] * count

            if asked:
                free = sum(step.free[row] for step in steps if step.layer < 0)
                limits.append(free // asked)

        return min(limits, default=0)


def _alike(
    columns: Ints,
    nodes: Ints,
) -> Iterator[tuple[Amounts, list[int]]]:
    """Equal nodes by what they have, the roomiest first."""
    if nodes.size <= FEW_NODES:
        yield from _alike_of_few(columns, nodes)
        return

    distinct, numbers, sizes = np.unique(
        columns.T,
        axis=0,
        return_inverse=True,
        return_counts=True,
    )
    order = np.argsort(numbers.reshape(-1), kind="stable")
    ends = np.cumsum(sizes)
    starts = ends - sizes

    # np.unique sorts ascending; the roomiest comes first here.
    for number in reversed(range(len(distinct))):
        column = tuple(distinct[number].tolist())
        alike = order[starts[number] : ends[number]]
        yield column, nodes[alike].tolist()


def _alike_of_few(
    columns: Ints,
    nodes: Ints,
) -> Iterator[tuple[Amounts, list[int]]]:
    """The same by sorting, which is quicker for a few nodes."""
    by_column: dict[Amounts, list[int]] = {}
    for column, node in zip(columns.T.tolist(), nodes.tolist(), strict=True):
        alike = by_column.setdefault(tuple(column), [])
        alike.append(node)

    for column in sorted(by_column, reverse=True):
        yield column, sorted(by_column[column])
