"""Regions: the nodes of a domain, and its inner blocks, as steps of a packing.

Invariant: equal rooms give equal steps, whatever the nodes' names. Resources that suffice for all
pods on every node are left out, so nodes that differ only in these resources are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from gangsched.core.search.packing import Amounts, PackingProblem, Pattern, Piece, Step
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
    kept = np.flatnonzero((free < asked[:, None]).any(axis=1)) if free.size else np.arange(0)
    used = tuple(
        replace(kind, asks=tuple(kind.asks[r] for r in kept.tolist())) if kind.layer < 0 else kind
        for kind in kinds
    )
    most = np.array(
        [sum(count) for count in zip(*_pods_in(kinds, start), strict=True)][: len(room)],
        dtype=np.int64,
    )

    # Capped at what could be used, so that a node with 8 free GPUs equals one with 16 if 8 are
    # asked for.
    room = np.minimum(room, most[:, None])
    inside = room.any(axis=0)
    columns = np.concatenate((room, np.clip(free[kept], 0, asked[kept, None])))[:, inside]
    layers = [codes[inside] for codes in blocks]
    builder = _Builder(used, len(room), int(most.sum()))
    steps = builder.steps(columns, nodes[inside], layers)

    return PackingProblem(used, tuple(start), tuple(needs), tuple(steps))


def most_asked(kinds: Sequence[Piece], start: Pattern) -> list[int]:
    """Total requests of all available pieces, by resource."""
    width = max((len(kind.asks) for kind in kinds), default=0)
    total = [0] * width

    for counts in _pods_in(kinds, start):
        for t, count in enumerate(counts):
            if count:
                total = [have + count * ask for have, ask in zip(total, kinds[t].asks, strict=True)]

    return total


def _pods_in(kinds: Sequence[Piece], start: Pattern) -> Iterator[list[int]]:
    """Of each kind at hand the pods that it consists of, by kind."""
    for t, count in enumerate(start):
        if count:
            found = [0] * len(kinds)
            for pod, number in pods_of(kinds, t):
                found[pod] += number * count

            yield found


def pods_of(kinds: Sequence[Piece], t: int) -> Iterator[tuple[int, int]]:
    """Yield the kinds of pods in one piece of kind `t`, with their numbers."""
    open_parts = [(t, 1)]
    while open_parts:
        part, count = open_parts.pop()
        if kinds[part].layer < 0:
            yield part, count

        for each, number in kinds[part].parts:
            open_parts.append((each, number * count))


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
        inner = [codes[order] for codes in blocks]
        codes, starts = np.unique(inner[layer], return_index=True)
        made: list[tuple[list[Amounts], bool, list[Step]]] = []

        for code, first, end in zip(
            codes.tolist(),
            starts.tolist(),
            [*starts.tolist()[1:], nodes.size],
            strict=True,
        ):
            part = slice(first, end)
            steps = self.steps(
                columns[:, part],
                nodes[part],
                [each[part] for each in inner],
                layer + 1,
            )
            made.append(([step.room + step.free for step in steps], code < 0, steps))

        # The roomiest blocks first, nodes outside of every block last: most problems are solved in
        # the first ones.
        made.sort(key=lambda each: (not each[1], each[0]), reverse=True)
        found: list[Step] = []

        for (_, is_outside), alike in groupby(made, key=lambda each: each[:2]):
            self.number += 1
            like = self.number

            for _, _, steps in alike:
                room = (0,) * len(self.kinds) if is_outside else self._room(layer, steps)
                found += [Step(layer, like, room), *steps]

        return found

    def _nodes(self, columns: Ints, nodes: Ints) -> list[Step]:
        """One step a node, equal ones side by side and no more of them than could be used."""
        found: list[Step] = []
        rest = (0,) * (len(self.kinds) - self.pods)

        for column, alike in _alike(columns, nodes):
            self.number += 1
            room = column[: self.pods] + rest
            free = column[self.pods :]

            # Of equal nodes no more than there are pods can be used.
            for node in alike[: self.needed]:
                found.append(Step(-1, self.number, room, free, node))

        return found

    def _room(self, layer: int, steps: Sequence[Step]) -> Amounts:
        """How many slices of each kind the block takes at most, each kind alone."""
        room = []
        for t, kind in enumerate(self.kinds):
            if kind.layer != layer:
                room.append(0)
                continue

            limits = []
            for part, count in kind.parts:
                limits.append(sum(step.room[part] for step in steps) // count)

            asked = list(pods_of(self.kinds, t))

            for r, _ in enumerate(self.kinds[0].asks):
                amount = 0
                for pod, count in asked:
                    amount += self.kinds[pod].asks[r] * count

                if amount:
                    limits.append(sum(step.free[r] for step in steps if step.layer < 0) // amount)

            room.append(min([*limits, 1] if kind.alone else limits, default=0))

        return tuple(room)


def _alike(columns: Ints, nodes: Ints) -> Iterator[tuple[Amounts, list[int]]]:
    """Equal nodes by what they have, the roomiest first."""
    if nodes.size <= FEW_NODES:
        ordered = sorted(
            zip(map(tuple, columns.T.tolist()), nodes.tolist(), strict=True),
            key=lambda each: each[0],
        )
        by_column = groupby(reversed(ordered), key=lambda each: each[0])
        yield from ((column, sorted(node for _, node in alike)) for column, alike in by_column)

        return

    distinct, like, sizes = np.unique(columns.T, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(like.reshape(-1), kind="stable")
    starts = np.concatenate(([0], np.cumsum(sizes)))

    # np.unique sorts ascending; the roomiest comes first here.
    for number in range(len(distinct) - 1, -1, -1):
        yield (
            tuple(distinct[number].tolist()),
            nodes[order[starts[number] : starts[number + 1]]].tolist(),
        )
