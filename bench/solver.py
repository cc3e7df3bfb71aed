"""A constraint solver's answer, beside `plan` and the packing search: is there a place, and is
every placement right?

`python -m bench.solver [--cases 5000] [--seed 1] [--only trees]` draws small clusters with racks
and zones. Groups of one required level, of two, of gangs whose minimum is below their size, and
trees, whose children may require racks or zones and which may require a zone themselves, go through
`plan`; slices, in one and two layers, through `core.search`. Every answer is held against OR-tools'
CP-SAT, and whatever is placed is read by a reader that knows neither. It fails if one answer
differs.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from ortools.sat.python import cp_model

from bench.completeness import (
    RACK,
    ZONE,
    Case,
    cases,
    decided,
    in_domains,
    sound,
    sound_in_domains,
    tree_in_domains,
)
from gangsched.core.search.packing import Packing
from gangsched.core.search.packing_problem import Piece, Step
from gangsched.core.search.region import problem
from gangsched.core.work import OutOfWork, Work
from gangsched.model.reasons import Reason
from gangsched.model.tree import composites_of, gangs_of, part_id
from tests import builders

Amounts = tuple[int, ...]


def main(argv: Sequence[str] | None = None) -> None:
    """Print a line for each family of cases."""
    parser = argparse.ArgumentParser(
        description="Does the search find exactly what a constraint solver finds?"
    )
    parser.add_argument(
        "--cases", type=int, default=5_000, help="cases of each family (default 5000)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="families whose name has this text")
    arguments = parser.parse_args(argv)
    print(
        f"seed {arguments.seed}\n{'family':24} {'cases':>6} {'fit':>6} {'differ':>7}"
        f" {'milliseconds each':>18}"
    )
    families: dict[str, Callable[[random.Random], tuple[bool, bool, float]]] = {
        "one required level": lambda rng: by_plan(rng, (RACK,), is_partial=False),
        "two required levels": lambda rng: by_plan(rng, (ZONE, RACK), is_partial=False),
        "minimum below the size": lambda rng: by_plan(rng, (RACK,), is_partial=True),
        "trees": lambda rng: by_tree(rng, ()),
        "trees, children in racks": lambda rng: by_tree(rng, (RACK,)),
        "trees, racks and zones": lambda rng: by_tree(rng, (RACK, ZONE)),
        "trees in one zone": lambda rng: by_tree(rng, (RACK, ZONE), is_whole=True),
        "deep trees": lambda rng: by_tree(rng, (), is_deep=True),
        "deep trees, in racks": lambda rng: by_tree(rng, (RACK,), is_deep=True),
        "deep trees, racks, zones": lambda rng: by_tree(rng, (RACK, ZONE), is_deep=True),
        "deep trees in one zone": lambda rng: by_tree(
            rng, (RACK, ZONE), is_whole=True, is_deep=True
        ),
        "slices": lambda rng: by_packing(rng, 1),
        "slices in two layers": lambda rng: by_packing(rng, 2),
    }
    differ = 0
    for name, answered in families.items():
        if arguments.only not in name:
            continue
        rng = random.Random(arguments.seed)
        answers = [answered(rng) for _ in range(arguments.cases)]
        wrong = sum(wanted != found for wanted, found, _ in answers)
        took_ms = sum(took for *_, took in answers) / len(answers) * 1e3
        fit = sum(wanted for wanted, *_ in answers)
        print(f"{name:24} {len(answers):6} {fit:6} {wrong:7} {took_ms:18.2f}", flush=True)
        differ += wrong
    sys.exit(1 if differ else 0)


# --- required levels, through plan --------------------------------------------------------------


def by_plan(
    rng: random.Random, labels: Sequence[str], *, is_partial: bool
) -> tuple[bool, bool, float]:
    """Whether the solver places a group, whether plan does, and how long plan took."""
    for drawn in cases(rng):
        if is_partial == any(least < len(asks) for least, asks in drawn.gangs):
            break
    case = in_domains(drawn, rng, labels)
    snapshot = builders.snapshot(case.nodes)
    started = time.process_time()
    verdict = decided(snapshot, case)
    took = time.process_time() - started
    found = verdict.reason is Reason.SCHEDULED
    assert not found or sound(case, verdict), case
    return _fits(case, labels), found, took


def by_tree(
    rng: random.Random, labels: Sequence[str], *, is_whole: bool = False, is_deep: bool = False
) -> tuple[bool, bool, float]:
    """As `by_plan`, of a tree whose parts require some of these labels, and which `is_whole` in one
    zone.
    """
    case = tree_in_domains(rng, labels, is_whole=is_whole, is_deep=is_deep)
    snapshot = builders.snapshot(case.nodes)
    started = time.process_time()
    verdict = decided(snapshot, case)
    took = time.process_time() - started
    found = verdict.reason is Reason.SCHEDULED
    assert not found or sound_in_domains(case, verdict), case
    return _fits(case, case.group.topology), found, took


def _fits(case: Case, labels: Sequence[str]) -> bool:
    """The solver's answer: pods are placed one by one, all in one domain of the labels, a part's
    also of its own.

    Of a part of a tree so many children start as it needs, of any other group all gangs.
    """
    model = cp_model.CpModel()
    whole = _domain(model, case, labels)
    used: dict[tuple[int, int], list[cp_model.LinearExpr]] = {}
    starts: dict[str, cp_model.IntVar] = {}
    tree = case.group.tree
    around: dict[str, list[list[cp_model.LinearExpr]]] = {}
    for part in composites_of(tree) if tree is not None else ():
        own = _domain(model, case, part.topology)
        for each in gangs_of(part):
            around.setdefault(each, []).append(own)
    for (least, asks), gang in zip(case.gangs, case.group.gangs, strict=True):
        own = _domain(model, case, gang.constraints.topology)
        begins, placed = model.new_bool_var(""), list[cp_model.LinearExpr]()
        starts[gang.id] = begins
        for ask in asks:
            here = {place: model.new_bool_var("") for place in range(len(case.nodes))}
            for place, is_here in here.items():
                for domain in (whole, own, *around.get(gang.id, ())):
                    model.add(is_here <= domain[place])
                for r, amount in enumerate(ask):
                    used.setdefault((place, r), []).append(amount * is_here)
            model.add_at_most_one(here.values())
            placed += here.values()
        model.add(sum(placed) >= least).only_enforce_if(begins)
    for part in [*composites_of(tree)][::-1] if tree is not None else ():
        starts[part.id] = begins = model.new_bool_var("")
        model.add(
            sum(starts[part_id(each)] for each in part.children) >= part.min_children
        ).only_enforce_if(begins)
    needed = [starts[tree.id]] if tree is not None else [*starts.values()]
    model.add(sum(needed) == len(needed))
    for (place, r), amounts in used.items():
        model.add(sum(amounts) <= case.free[place][r])
    return _solved(model)


def _domain(
    model: cp_model.CpModel, case: Case, labels: Sequence[str]
) -> list[cp_model.LinearExpr]:
    """By node whether it is in the one domain that is chosen; nodes without a label are in none."""
    codes = [tuple(node.labels.get(key) for key in labels) for node in case.nodes]
    chosen = {
        code: model.new_bool_var("")
        for code in sorted({each for each in codes if None not in each})
    }
    model.add_at_most_one(chosen.values())
    return [chosen.get(code, 0) for code in codes]


def _solved(model: cp_model.CpModel) -> bool:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    answer = solver.solve(model)
    assert answer in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.INFEASIBLE)
    return bool(answer != cp_model.INFEASIBLE)


# --- slices, through the packing search ---------------------------------------------------------


@dataclass
class Sliced:
    """Gangs as pieces (`core.search.packing`) on nodes in blocks: `free`, `room` of each kind of
    pod, and `blocks`.
    """

    pieces: list[Piece] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    needs: list[int] = field(default_factory=list)
    free: list[Amounts] = field(default_factory=list)
    room: list[Amounts] = field(default_factory=list)
    blocks: list[Amounts] = field(default_factory=list)

    def add(self, piece: Piece, count: int) -> int:
        """The index of one more kind."""
        self.pieces.append(piece)
        self.start.append(count)
        return len(self.pieces) - 1


def by_packing(rng: random.Random, layers: int) -> tuple[bool, bool, float]:
    """Whether the solver places slices, whether the search does, and how long it took; half are cut
    short at times.
    """
    case = sliced(rng, layers)
    pods = sum(1 for piece in case.pieces if piece.layer < 0)
    nodes, free = np.arange(len(case.free)), np.array(case.free).T
    room = np.array(case.room).T.reshape(pods, -1)
    blocks = [np.array([each[layer] for each in case.blocks]) for layer in range(layers)]
    is_cut = rng.random() < 0.5
    started = time.process_time()
    packing = Packing(
        problem(case.pieces, tuple(case.start), case.needs, nodes, free, room, blocks)
    )
    while packing.found is None:
        try:
            packing.run(Work(most=rng.randint(1, 60)) if is_cut else Work())
        except OutOfWork:
            continue
    took = time.process_time() - started
    if packing.found:
        _read(case, packing)
    return _fits_sliced(case), packing.found, took


def sliced(rng: random.Random, layers: int) -> Sliced:
    """One or two gangs: slices in up to so many layers, of up to two kinds of pods, and pods beside
    them.
    """
    case, width = Sliced(), rng.randint(1, 3)
    asks = [
        (rng.randint(1, 5), *(rng.choice((0, 1, 1, 2, 3, 4)) for _ in range(width - 1)))
        for _ in range(2)
    ]
    tops: list[tuple[int, int, int, list[tuple[Amounts, int]], int]] = []
    for gang in range(rng.randint(1, 2)):
        if gang:
            count = rng.randint(1, 4)
            case.add(Piece(gang, rng.choice(asks)), count)
            case.needs.append(rng.randint(1, count))
            continue
        total = 0
        for _ in range(rng.randint(1, 2)):
            inside = [(ask, rng.randint(1, 2)) for ask in rng.sample(asks, rng.randint(1, 2))]
            count = rng.randint(1, 3)
            inner = rng.randint(1, 2) if layers == 2 and rng.random() < 0.7 else 0
            tops.append((gang, count, inner, inside, rng.randrange(layers) if not inner else 0))
            total += count
        case.needs.append(total if rng.random() < 0.6 else rng.randint(1, total))
    homes = [[case.add(Piece(gang, ask, home=1 if inner else layer), 0) for ask, _ in inside]
             for gang, _, inner, inside, layer in tops]  # fmt: skip
    for (gang, count, inner, inside, layer), pods in zip(tops, homes, strict=True):
        parts = tuple((pod, number) for pod, (_, number) in zip(pods, inside, strict=True))
        if inner:
            parts = ((case.add(Piece(gang, home=0, layer=1, parts=parts), 0), inner),)
        case.add(Piece(gang, layer=layer, parts=parts), count)
    for _ in range(rng.randint(2, 8)):
        outer = rng.randrange(3)
        inner_block = -1 if rng.random() < 0.1 else 3 * outer + rng.randrange(3)
        free = tuple(rng.randint(0, 8) for _ in range(width))
        case.free.append(case.free[-1] if case.free and rng.random() < 0.3 else free)
        case.blocks.append((outer, inner_block) if layers == 2 else (inner_block,))
        case.room.append(
            tuple(_room(piece.asks, case.free[-1], rng) for piece in case.pieces if piece.layer < 0)
        )
    return case


def _room(ask: Amounts, free: Amounts, rng: random.Random) -> int:
    return (
        min([9, *(f // a for f, a in zip(free, ask, strict=True) if a)])
        if rng.random() < 0.92
        else 0
    )


def _fits_sliced(case: Sliced) -> bool:
    """The solver's answer: every slice is opened by itself in one block."""
    made = _SlicedModel(case)
    counted: list[list[cp_model.LinearExpr]] = [[] for _ in case.needs]

    for kind, (piece, count) in enumerate(zip(case.pieces, case.start, strict=True)):
        if piece.home < 0 and piece.layer < 0:
            total = made.model.new_int_var(0, count, "")
            made.model.add(sum(made.on_nodes(kind)) == total)
            counted[piece.gang].append(total)
        elif piece.home < 0:
            counted[piece.gang] += [made.opened(kind, None, 0) for _ in range(count)]

    for own, need in zip(counted, case.needs, strict=True):
        made.model.add(sum(own) >= need)
    for (node, r), amounts in made.here.items():
        made.model.add(sum(amounts) <= case.free[node][r])

    return _solved(made.model)


class _SlicedModel:
    """The variables of a case with slices; `here` has what is put on a node, by resource."""

    def __init__(self, case: Sliced) -> None:
        self.model = cp_model.CpModel()
        self.here: dict[tuple[int, int], list[cp_model.LinearExpr]] = {}
        self._case = case

    def on_nodes(self, kind: int) -> list[cp_model.IntVar]:
        """The number of pieces of a kind on each node."""
        case = self._case
        found = [self.model.new_int_var(0, room[kind], "") for room in case.room]
        for node, count in enumerate(found):
            for r, amount in enumerate(case.pieces[kind].asks):
                self.here.setdefault((node, r), []).append(amount * count)

        return found

    def opened(
        self, kind: int, outer: Mapping[int, cp_model.IntVar] | None, outer_layer: int
    ) -> cp_model.IntVar:
        """Whether one slice of a kind is opened, inside a block of `outer` if there are some."""
        model = self.model
        piece = self._case.pieces[kind]
        used = model.new_bool_var("")
        codes = [block[piece.layer] for block in self._case.blocks]
        at = {code: model.new_bool_var("") for code in sorted(set(codes)) if code >= 0}
        model.add(sum(at.values()) == used)

        if outer is not None:
            self._put_inside(outer, outer_layer, at, codes)

        for part, number in piece.parts:
            if self._case.pieces[part].layer >= 0:
                for _ in range(number):
                    model.add(self.opened(part, at, piece.layer) == used)
                continue

            counts = self.on_nodes(part)
            for code in {-1, *at}:
                inside = [count for count, own in zip(counts, codes, strict=True) if own == code]
                model.add(sum(inside) == (number * at[code] if code in at else 0))

        return used

    def _put_inside(
        self,
        outer: Mapping[int, cp_model.IntVar],
        outer_layer: int,
        at: Mapping[int, cp_model.IntVar],
        codes: Sequence[int],
    ) -> None:
        """A block is used only if the outer one around it is."""
        for code, is_here in at.items():
            (around,) = {
                block[outer_layer]
                for block, own in zip(self._case.blocks, codes, strict=True)
                if own == code
            }
            self.model.add(is_here <= outer.get(around, 0))


def _read(case: Sliced, packing: Packing) -> None:
    """Fail unless the choices keep to room, blocks and needs."""
    free, left = [list(each) for each in case.free], list(case.start)
    placed, open_in = [0] * len(case.needs), dict[tuple[int, int], int]()
    for step, counts, block in _with_blocks(case, packing):
        opening = [t for t, piece in enumerate(case.pieces) if piece.layer == step.layer]
        for kind, count in zip(
            opening if step.layer >= 0 else range(len(counts)), counts, strict=True
        ):
            piece = case.pieces[kind]
            if not count:
                continue
            if piece.home < 0:
                left[kind] -= count
                placed[piece.gang] += count
            else:
                open_in[kind, block[piece.home]] = open_in.get((kind, block[piece.home]), 0) - count
            for part, number in piece.parts:
                assert block[step.layer] >= 0
                open_in[part, block[step.layer]] = (
                    open_in.get((part, block[step.layer]), 0) + count * number
                )
            if step.layer < 0:
                assert count <= case.room[step.node][kind]
                for r, amount in enumerate(piece.asks):
                    free[step.node][r] -= count * amount
    assert min([*left, *(amount for node in free for amount in node)]) >= 0, case
    assert not any(open_in.values()), case
    assert all(count >= need for count, need in zip(placed, case.needs, strict=True)), case


def _with_blocks(case: Sliced, packing: Packing) -> Iterator[tuple[Step, Sequence[int], Amounts]]:
    """The choices with the blocks of their nodes, those of a block with the blocks of its first
    node.
    """
    steps = packing.problem.steps
    for step, counts in packing.chosen:
        place = next(number for number, each in enumerate(steps) if each is step)
        node = next(each.node for each in steps[place:] if each.layer < 0)
        yield step, counts, case.blocks[node]


if __name__ == "__main__":
    main()
