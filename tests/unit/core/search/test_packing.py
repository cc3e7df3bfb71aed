"""Packing: what fits over nodes and blocks is found, what does not is refuted, also where the
search is cut short.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from gangsched.core.search.packing import Packing
from gangsched.core.search.packing_problem import PackingProblem, Piece
from gangsched.core.search.region import problem
from gangsched.core.work import OutOfWork, Work

SEED = 12
Amounts = tuple[int, ...]


@dataclass(frozen=True)
class Drawn:
    """Pods of one gang and slices of another: `slices` are the asks of each one's pods; `free` and
    `block` by node.
    """

    pods: tuple[Amounts, ...]
    slices: tuple[tuple[Amounts, ...], ...]
    needs: tuple[int, int]
    free: tuple[Amounts, ...]
    block: tuple[int, ...]

    def problem(self) -> PackingProblem:
        """The same as kinds and steps: equal pods and equal slices are one kind."""
        pieces: list[Piece] = []
        start: list[int] = []
        for ask in sorted(set(self.pods)):
            pieces.append(Piece(0, ask))
            start.append(self.pods.count(ask))
        kinds = sorted(set(self.slices))
        parts = []
        for kind in kinds:
            asks = sorted(set(kind))
            parts.append(
                tuple((len(pieces) + number, kind.count(ask)) for number, ask in enumerate(asks))
            )
            pieces += [Piece(1, ask, home=0) for ask in asks]
            start += [0] * len(asks)
        room = [
            [
                min([9, *(f // a for f, a in zip(free, piece.asks, strict=True) if a)])
                for free in self.free
            ]
            for piece in pieces
        ]
        pieces += [Piece(1, layer=0, parts=each) for each in parts]
        start += [self.slices.count(kind) for kind in kinds]
        nodes, free = np.arange(len(self.free)), np.array(self.free).T
        return problem(
            pieces, tuple(start), self.needs, nodes, free, np.array(room), [np.array(self.block)]
        )

    def fits(self) -> bool:
        """Whether some choice of blocks for slices and of nodes for pods does: all are tried."""
        blocks: list[int | None] = [None, *sorted({each for each in self.block if each >= 0})]
        for chosen in itertools.product(blocks, repeat=len(self.slices)):
            if sum(each is not None for each in chosen) >= self.needs[1] and self._fits(chosen):
                return True
        return False

    def _fits(self, chosen: Sequence[int | None]) -> bool:
        bound = [
            (ask, at)
            for asks, at in zip(self.slices, chosen, strict=True)
            if at is not None
            for ask in asks
        ]
        return self._place(
            0, sorted(bound, reverse=True), self.free, len(self.pods) - self.needs[0]
        )

    def _place(
        self,
        number: int,
        bound: Sequence[tuple[Amounts, int]],
        free: tuple[Amounts, ...],
        spare: int,
    ) -> bool:
        if number == len(bound) + len(self.pods):
            return True
        ask, at = bound[number] if number < len(bound) else (self.pods[number - len(bound)], None)
        for node, rest in self._rests(ask, at, free):
            if self._place(number + 1, bound, (*free[:node], rest, *free[node + 1 :]), spare):
                return True
        return at is None and spare > 0 and self._place(number + 1, bound, free, spare - 1)

    def _rests(
        self, ask: Amounts, at: int | None, free: Sequence[Amounts]
    ) -> Iterator[tuple[int, Amounts]]:
        for node, have in enumerate(free):
            rest = tuple(h - a for h, a in zip(have, ask, strict=True))
            if min(rest) >= 0 and (at is None or self.block[node] == at):
                yield node, rest


def drawn(rng: random.Random) -> Drawn:
    """A few pods and slices on up to five nodes in up to three blocks; a node may be in none."""
    asks = [(rng.randint(1, 4), rng.randint(0, 3)) for _ in range(2)]
    pods = tuple(rng.choice(asks) for _ in range(rng.randint(0, 2)))
    kinds = [tuple(rng.choice(asks) for _ in range(rng.randint(1, 2))) for _ in range(2)]
    slices = tuple(tuple(sorted(rng.choice(kinds))) for _ in range(rng.randint(1, 3)))
    needs = rng.randint(0, len(pods)), rng.randint(1, len(slices))
    number = rng.randint(2, 5)
    free = tuple((rng.randint(0, 8), rng.randint(0, 6)) for _ in range(number))
    return Drawn(pods, slices, needs, free, tuple(rng.randint(-1, 2) for _ in range(number)))


@pytest.mark.parametrize("is_cut", [False, True])
def test_places_are_found_exactly_where_there_are_any(is_cut: bool) -> None:
    """L6, L14, L17: against every choice of blocks and nodes, in one go and with a few choices at a
    time.
    """
    print(f"seed {SEED}")
    rng, fitting = random.Random(SEED), 0
    for _ in range(300):
        case = drawn(rng)
        packing = Packing(case.problem())
        while packing.found is None:
            try:
                packing.run(Work(most=rng.randint(1, 30) if is_cut else 10**9))
            except OutOfWork:
                continue
        assert packing.found == case.fits(), case
        fitting += packing.found
    assert 60 < fitting < 240


def test_many_equal_slices_end() -> None:
    """L12, L21: 400 slices where 300 racks take one each are refuted, 300 are placed; nothing
    recurses.
    """
    pieces = [Piece(0, (8,), home=0), Piece(0, layer=0, parts=((0, 4),))]
    nodes, block = np.arange(1_500), np.repeat(np.arange(300), 5)
    free, room = np.full((1, 1_500), 8), np.ones((1, 1_500), dtype=np.int64)
    for wanted in (300, 400):
        made = Packing(problem(pieces, (0, wanted), (wanted,), nodes, free, room, [block]))
        assert made.run(Work()) is (wanted == 300)
        assert made.choices < 2_500


def test_names_do_not_count() -> None:
    """L15: the same numbers on other nodes, in another order, are the same problem."""
    pieces = [Piece(0, (3,)), Piece(0, (2,))]

    def of(order: list[int], first: int) -> PackingProblem:
        free = np.array([[5, 4, 7]])[:, order]
        return problem(
            pieces, (2, 2), (4,), np.arange(3) + first, free, np.array([free[0] // 3, free[0] // 2])
        )

    assert of([0, 1, 2], 0).name == of([2, 0, 1], 40).name
    assert of([0, 1, 2], 0).name != problem(pieces, (2, 1), (3,), *_arrays([5, 4, 7])).name


def _arrays(free: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    have = np.array([free])
    return np.arange(len(free)), have, np.array([have[0] // 3, have[0] // 2])
