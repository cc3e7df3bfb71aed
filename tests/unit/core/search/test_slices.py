"""Slices: each is placed whole in one domain of its level, exactly where there is room for enough
of them (L6, L8).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from gangsched.core.cycle import Limits, plan
from gangsched.core.reserve import Ledger
from gangsched.core.search import demand
from gangsched.core.search.domains import DomainRoom, best_domains
from gangsched.core.search.slices import Unit, needed, units
from gangsched.model.gang import Gang
from gangsched.model.gpu_policy import PlacementConstraints, SliceLayer
from gangsched.model.inter_pod import HostPort, InterPodConstraints
from gangsched.model.objects import Node, Pod, Shape
from gangsched.model.plan import Verdict
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import NodeTable
from gangsched.sentences import say
from tests import builders
from tests.sizes import of_size

SEED = 33
BLOCK, RACK = "example.com/block", "example.com/rack"
TWO, FOUR = SliceLayer(2, RACK), SliceLayer(4, RACK)


def node(name: str, rack: str = "", block: str = "", *, gpus: int = 8) -> Node:
    """A node in a rack and a block; without either where none is given."""
    labels = {key: value for key, value in ((RACK, rack), (BLOCK, block)) if value}
    return builders.node(name, gpus=gpus, cpu_milli=10_000, labels=labels)


def members(*shapes: Shape) -> list[Pod]:
    """Members m-0, m-1, … of these shapes."""
    return [builders.pod(f"m-{index}", of=shape, index=index) for index, shape in enumerate(shapes)]


def gang(
    pods: Sequence[Pod], *layers: SliceLayer, topology: tuple[str, ...] = (), **fields: Any
) -> Gang:
    """A gang with slices, whose members have indexes unless said."""
    constraints = PlacementConstraints(topology=topology, slices=layers)
    return builders.gang("ns/g", pods, **{"indexed": True, "constraints": constraints, **fields})


def decided(nodes: Sequence[Node], of: Gang, placed: Sequence[tuple[Pod, str]] = ()) -> Verdict:
    """The verdict of as many plans as it takes."""
    unfinished, snapshot = None, builders.snapshot(nodes, placed)
    while True:
        planned = plan(snapshot, [builders.group(of)], now_s=0.0, unfinished=unfinished)
        if planned.verdicts:
            return planned.verdicts[0]
        unfinished = planned.unfinished


def one(gpus: int = 1) -> Shape:
    """A pod of so many GPUs."""
    return builders.shape(gpus=gpus)


# --- against an exhaustive search ---------------------------------------------------------------


@dataclass(frozen=True)
class Drawn:
    """A gang with slices on a few nodes: `asks` by member, `free` and `labels` (block, rack) by
    node.
    """

    asks: tuple[tuple[int, int], ...]
    layers: tuple[SliceLayer, ...]
    min_member: int
    free: tuple[tuple[int, int], ...]
    labels: tuple[tuple[str, str], ...]
    topology: tuple[str, ...]

    @property
    def nodes(self) -> list[Node]:
        return [
            builders.node(
                f"n{number}",
                gpus=gpus,
                cpu_milli=cpu,
                labels={
                    key: value for key, value in zip((BLOCK, RACK), labels, strict=True) if value
                },
            )
            for number, ((gpus, cpu), labels) in enumerate(zip(self.free, self.labels, strict=True))
        ]

    @property
    def gang(self) -> Gang:
        pods = members(*(builders.shape(gpus=gpus, cpu_milli=cpu) for gpus, cpu in self.asks))
        return gang(pods, *self.layers, topology=self.topology, min_member=self.min_member)

    def fits(self) -> bool:
        """Whether some choice of slices and of a node for each of their pods does: all
        are tried.
        """
        return any(self._place(chosen, ()) for chosen in self._enough())

    def keeps(self, at: dict[int, int]) -> bool:
        """Whether nodes by member are a start: whole slices, in one domain each, enough of them,
        and room for all.
        """
        chosen = {index // self.layers[0].size for index in at}
        is_whole = all(
            index in at for index in range(len(self.asks)) if index // self.layers[0].size in chosen
        )
        used = [
            [sum(self.asks[index][r] for index in at if at[index] == n) for r in (0, 1)]
            for n in range(len(self.free))
        ]
        has_room = all(
            use[r] <= free[r] for use, free in zip(used, self.free, strict=True) for r in (0, 1)
        )
        return (
            is_whole and has_room and len(at) >= self.min_member and self._apart(list(at.items()))
        )

    def _enough(self) -> Iterator[list[int]]:
        """The members of each choice of slices that is enough: full ones, and a smaller one if
        these are too few.
        """
        size, number = self.layers[0].size, len(self.asks)
        full = number // size
        least = -(-self.min_member // size)
        if least > full:
            yield list(range(number))
            return
        for chosen in itertools.combinations(range(full), least):
            yield [each * size + k for each in chosen for k in range(size)]

    def _place(self, rest: Sequence[int], placed: tuple[tuple[int, int], ...]) -> bool:
        if not rest:
            return True
        for n in range(len(self.free)):
            made = (*placed, (rest[0], n))
            used = [sum(self.asks[index][r] for index, at in made if at == n) for r in (0, 1)]
            has_room = used[0] <= self.free[n][0] and used[1] <= self.free[n][1]
            if has_room and self._apart(made) and self._place(rest[1:], made):
                return True
        return False

    def _apart(self, placed: Sequence[tuple[int, int]]) -> bool:
        """Whether members of one slice are in one domain, and all in one of each required level."""
        for size, key in (*self.layers, *((10**6, key) for key in self.topology)):
            seen: dict[int, str] = {}
            for index, n in placed:
                value = self.labels[n][(BLOCK, RACK).index(key)]
                if not value or seen.setdefault(index // size, value) != value:
                    return False
        return True


def drawn(rng: random.Random) -> Drawn:
    """Up to six members in slices of one or two layers, on up to five nodes."""
    asks = [(rng.randint(0, 3), rng.choice((0, 100, 200))) for _ in range(2)]
    shapes = rng.randint(1, 2)
    number = rng.randint(1, 6)
    layers = rng.choice(
        [(TWO,), (SliceLayer(3, RACK),), (SliceLayer(2, BLOCK),), (SliceLayer(4, BLOCK), TWO)]
    )
    crossing = rng.random() < 0.2
    labels = []
    for _ in range(rng.randint(2, 5)):
        block = rng.choice("ab")
        rack = rng.choice(
            ("", "r1", "r2") if crossing else ("", f"{block}1", f"{block}2", f"{block}2")
        )
        labels.append((block if rng.random() < 0.9 else "", rack))
    return Drawn(
        asks=tuple(asks[rng.randrange(shapes)] for _ in range(number)),
        layers=layers,
        min_member=rng.randint(1, number),
        free=tuple((rng.randint(0, 6), rng.choice((100, 200, 400, 900))) for _ in labels),
        labels=tuple(labels),
        topology=(BLOCK,) if rng.random() < 0.2 else (),
    )


@pytest.mark.long
def test_slices_start_exactly_where_there_is_room() -> None:
    """L6, L14: against every choice of slices and nodes; what starts keeps to slices, domains and
    room.
    """
    print(f"seed {SEED}")
    rng, fitting, number = random.Random(SEED), 0, of_size(150, 4_000)
    for _ in range(number):
        case = drawn(rng)
        verdict = decided(case.nodes, case.gang)
        at = {placement.pod.index: int(placement.node[1:]) for placement in verdict.binds}
        fits = case.fits()
        assert bool(at) == fits, (case, say(verdict.told).text)
        assert not at or case.keeps(at), (case, at)
        fitting += fits
    assert number // 5 < fitting < number * 4 // 5, fitting


# --- which members make a slice -----------------------------------------------------------------


def test_members_without_indexes_fill_slices_in_their_order() -> None:
    """G8: where two members have one index, or one has none, members are interchangeable; open
    slices come first.
    """
    table = builders.snapshot([node("a", "r1"), node("b", "r2")]).table
    pods = members(*[one()] * 6)
    of = gang(pods, TWO, indexed=False, standing=((-1, "a"), (-1, "b"), (-1, "b")))
    found = units(of, pods, table)
    assert [[pod.name for pod in unit.pods] for unit in found] == [
        ["m-0"],
        ["m-1", "m-2"],
        ["m-3", "m-4"],
        ["m-5"],
    ]
    assert [unit.pins for unit in found] == [((RACK, 0),), (), (), ()]


def test_a_slice_that_lacks_members_is_needed_last() -> None:
    """L6: the minimum is rounded up to whole slices; one that lacks members counts where others are
    too few.
    """
    table = builders.snapshot([node("a", "r1")]).table
    pods = members(*[one()] * 7)
    found = units(gang(pods, FOUR), pods, table)
    assert [pod.index for pod in needed(found, 3).waiting] == [0, 1, 2, 3]
    assert [pod.index for pod in needed(found, 5).waiting] == list(range(7))


def test_a_slice_that_lacks_members_leaves_them_room() -> None:
    """L6: its other members are created later and must join it, so it does not take the tightest
    rack.
    """
    nodes = [node("a", "r1", gpus=2), node("b", "r2", gpus=4), node("c", "r3")]
    verdict = decided(nodes, gang(members(*[one()] * 2), FOUR))
    assert {placement.node for placement in verdict.binds} == {"b"}
    assert {
        placement.node for placement in decided(nodes[:1], gang(members(*[one()] * 2), FOUR)).binds
    } == {"a"}


# --- starting -----------------------------------------------------------------------------------


def test_members_above_the_minimum_join_by_whole_slices() -> None:
    """L6: of three slices the third has no place: two start, and none of its members does."""
    nodes = [node("a", "r1", gpus=4), node("b", "r2", gpus=4), node("c", "r3", gpus=3)]
    pods = members(*[one()] * 12)
    verdict = decided(nodes, gang(pods, FOUR, min_member=6))
    assert {placement.pod.index for placement in verdict.binds} == set(range(8))
    assert {refusal.reason for _, refusal in verdict.notes} == {Reason.UNSCHEDULABLE}
    text = "no example.com/rack takes a slice of 4 pods; the best, example.com/rack=r3, takes 3"
    assert {uid: say(refusal).text for uid, refusal in verdict.notes} == {
        pod.uid: text for pod in pods[8:]
    }


def test_what_slices_lack_is_told() -> None:
    """M2: how many slices find a place, what the best domain lacks, and that none is ever large
    enough.
    """
    wanted = (
        "gang ns/g needs 4 pods of 1 nvidia.com/gpu in slices of 2, each in one example.com/rack"
    )
    four = members(*[one()] * 4)
    few = decided([node("a", "r1", gpus=3), node("b", "r2", gpus=1)], gang(four, TWO))
    assert say(few.told).text == f"{wanted}; 1 of 2 slices fits"
    nodes = [node("a", "r1", gpus=1), node("b", "r2", gpus=1), node("c", gpus=8)]
    never = decided(nodes, gang(four, TWO))
    assert never.told.never
    assert (
        say(never.told).stable
        == "gang ns/g can never start: the largest domain for a slice, example.com/rack=r1, holds"
        f" 1 of its pods when empty, for lack of nvidia.com/gpu. {wanted[0].upper()}{wanted[1:]}"
    )
    nowhere = decided([node("a")], gang(four, TWO))
    assert say(nowhere.told).text == f"{wanted}; no node has the label example.com/rack"
    torn = [builders.node(f"n{i}", gpus=6, labels={RACK: "r"}) for i in range(2)]
    broken = decided(torn, gang(members(one(4), one(4), one(3), one(1)), FOUR))
    assert say(broken.told).now == "room is too scattered over the domains of example.com/rack"


def test_slices_in_a_required_domain() -> None:
    """L4, L6: all slices are in one block; which block lacks least is told as for any gang."""
    nodes = [
        node("a", "r1", "x", gpus=2),
        node("b", "r2", "x", gpus=2),
        node("c", "r3", "y", gpus=3),
    ]
    pods = members(*[one()] * 4)
    verdict = decided(nodes, gang(pods, TWO, topology=(BLOCK,)))
    assert {placement.node for placement in verdict.binds} == {"a", "b"}
    refused = decided(nodes[1:], gang(pods, TWO, topology=(BLOCK,)))
    assert "2 of 2 domains of example.com/block lack room" in say(refused.told).text


def test_members_with_ports_are_placed_whole_as_well() -> None:
    """L16: where more than room decides, each slice goes to a domain that takes it."""
    apart = builders.shape(gpus=1, inter_pod=InterPodConstraints(ports=(HostPort("TCP", 80),)))
    nodes = [node("a", "r1"), node("b", "r2"), node("c", "r2"), node("d", "r3"), node("e", "r3")]
    pods = members(*[apart] * 4)
    verdict = decided(nodes, gang(pods, TWO))
    assert {placement.pod.index: placement.node for placement in verdict.binds}.keys() == {
        0,
        1,
        2,
        3,
    }
    assert {placement.node for placement in verdict.binds} == {"b", "c", "d", "e"}
    assert not decided(nodes[:4], gang(pods, TWO)).binds


def test_gangs_of_one_group_have_slices_of_different_levels() -> None:
    """L6, L13: a gang in blocks and one in racks start together, beside one without slices."""
    nodes = [node(f"n{i}", f"r{i}", "xy"[i // 2], gpus=2) for i in range(4)]
    first, second = members(*[one()] * 3), members(*[one()] * 4)
    group = builders.group(
        builders.gang(
            "ns/a",
            first,
            constraints=PlacementConstraints(slices=(SliceLayer(3, BLOCK),)),
            indexed=True,
        ),
        builders.gang(
            "ns/b", second, constraints=PlacementConstraints(slices=(TWO,)), indexed=True
        ),
        builders.gang("ns/c", members(one())),
    )
    (verdict,) = plan(builders.snapshot(nodes), [group], now_s=0.0).verdicts
    assert len(verdict.binds) == 8


def test_a_gang_without_slices_may_be_the_one_that_fails() -> None:
    """R2: where all members of its sibling with slices have nodes, it is told what it
    lacks itself.
    """
    there = members(one(), one())
    group = builders.group(
        gang([], TWO, min_member=2, bound=2, nodes=("a",), standing=((0, "a"), (1, "a"))),
        builders.gang("ns/other", builders.pods("o", one(2), 1) + builders.pods("p", one(3), 1)),
    )
    nodes = [node("a", "r1", gpus=5), node("b", "r2", gpus=2)]
    placed = [(pod, "a") for pod in there]
    (verdict,) = plan(builders.snapshot(nodes, placed), [group], now_s=0.0).verdicts
    assert len(verdict.binds) == 2
    (refused,) = plan(builders.snapshot(nodes[:1], placed), [group], now_s=0.0).verdicts
    assert refused.reason is Reason.UNSCHEDULABLE
    assert "gang ns/other needs 2 pods" in say(refused.told).text


def test_a_gang_of_minimum_0_starts_by_whole_slices() -> None:
    """I3, L6: nothing is needed, and each slice comes by itself, in a required domain as well."""
    nodes = [node("a", "r1", "x", gpus=3), node("b", "r2", "x", gpus=1)]
    pods = members(one(), one(), one(2), one())
    for topology in ((), (BLOCK,)):
        of = gang(pods, TWO, topology=topology, min_member=0)
        assert {placement.pod.index for placement in decided(nodes, of).binds} in ({0, 1}, {2, 3})
        assert best_domains(builders.group(of), Ledger(builders.snapshot(nodes))) == [
            DomainRoom("example.com/block=x", 0, 0, "") for _ in topology
        ]


# --- members that come later --------------------------------------------------------------------


def started(
    pods: Sequence[Pod], waiting: Sequence[Pod], at: dict[int, str], *layers: SliceLayer
) -> tuple[Gang, list[tuple[Pod, str]]]:
    """A gang of which the members of `at` run on these nodes, and those."""
    placed = [(pods[index], name) for index, name in at.items()]
    fields: dict[str, Any] = {
        "bound": len(at),
        "nodes": tuple(sorted({*at.values()})),
        "satisfied": True,
        "permitted_min": len(at),
    }
    return gang(waiting, *layers, min_member=len(at), standing=tuple(at.items()), **fields), placed


def test_a_late_member_joins_the_domain_of_its_slice() -> None:
    """L8: though another rack has more room; where its own has none it waits, and is told so."""
    pods = members(*[one()] * 4)
    of, placed = started(pods, pods[3:], {0: "a", 1: "a", 2: "b"}, TWO)
    nodes = [node("a", "r1"), node("b", "r2", gpus=2), node("c", "r3")]
    assert builders.where(decided(nodes, of, placed)) == {"m-3": "b"}
    refused = decided([nodes[0], node("b", "r2", gpus=1), nodes[2]], of, placed)
    assert not refused.binds
    assert "m-3 waits for room in example.com/rack=r2 since" in say(refused.told).text


def test_a_whole_slice_that_comes_later_starts_whole() -> None:
    """L6: it may go anywhere, but only as a whole, in nested layers inside the block of its outer
    slice.
    """
    pods = members(*[one()] * 8)
    nodes = [
        node("a", "r1", "x", gpus=2),
        node("b", "r2", "x", gpus=1),
        node("c", "r3", "x", gpus=2),
        node("d", "r4", "y"),
    ]
    of, placed = started(pods, pods[2:], {0: "a", 1: "a"}, SliceLayer(4, BLOCK), TWO)
    verdict = decided(nodes, of, placed)
    assert builders.where(verdict) == {
        "m-2": "c",
        "m-3": "c",
        "m-4": "d",
        "m-5": "d",
        "m-6": "d",
        "m-7": "d",
    }
    of, placed = started(pods, pods[2:4], {0: "a", 1: "a"}, SliceLayer(4, BLOCK), TWO)
    assert not decided([*nodes[:2], nodes[3]], of, placed).binds


# --- work ---------------------------------------------------------------------------------------


def test_slices_of_mixed_shapes_stay_within_the_work_of_a_plan() -> None:
    """L12, L17: no sum counts copies of mixed slices exactly: a hard case takes several plans, each
    within its work.
    """
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    kinds = [(rng.randint(900, 4000), rng.randint(900, 4000)) for _ in range(6)]
    shapes = [builders.shape(gpus=0, cpu_milli=cpu, memory_bytes=memory) for cpu, memory in kinds]
    chosen, nodes = [], []
    for n in range(24):  # cut to measure for three members each, with one unit on another node
        own = [rng.randrange(6) for _ in range(3)]
        chosen += own
        cpu, memory = (sum(kinds[each][r] for each in own) for r in (0, 1))
        moved, labels = (n == 0) - (n == 1), {RACK: f"r{n // 4}"}
        nodes.append(
            builders.node(
                f"n{n}", gpus=0, cpu_milli=cpu - moved, memory_bytes=memory, labels=labels
            )
        )
    group = builders.group(gang(members(*(shapes[each] for each in chosen)), SliceLayer(3, RACK)))
    snapshot, limits, unfinished = builders.snapshot(nodes), Limits(), None
    for number in range(1, 6):
        planned = plan(snapshot, [group], now_s=0.0, unfinished=unfinished, limits=limits)
        unfinished = planned.unfinished
        assert unfinished is not None
        assert unfinished.plans == number
        assert unfinished.in_vain == 0
        assert limits.work / 2 < planned.work <= limits.work + 500


def test_what_belongs_together_is_collected_once_for_all_scopes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Q4: for each scope and the sentence it was collected again, uncharged: 2,000 members took a
    plan of 150 ms.
    """
    collected: list[Sequence[Pod]] = []

    def counted(of: Gang, pods: Sequence[Pod], table: NodeTable) -> list[Unit]:
        collected.append(pods)
        return units(of, pods, table)

    monkeypatch.setattr(demand, "units", counted)
    nodes = [node(f"n{n}", rack=f"r{n // 2}", block=f"b{n // 4}") for n in range(16)]
    pods = members(*[one(8)] * 16)  # as many as nodes, and no rack takes a slice
    constraints = PlacementConstraints(preferred=BLOCK, slices=(FOUR,))
    group = builders.group(gang(pods, constraints=constraints))
    made = plan(builders.snapshot(nodes), [group], now_s=0.0)
    assert made.verdicts[0].reason is Reason.UNSCHEDULABLE
    assert len(collected) == 1
    assert made.work >= 3 * len(pods)
