"""What sums said of domains is kept from plan to plan, and true of the room that there is (L17, L18)."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gangsched.core import rounds
from gangsched.core.cycle import plan
from gangsched.core.reserve import Ledger
from gangsched.core.search import judging
from gangsched.core.search.demand import Demand
from gangsched.core.topology import level
from gangsched.model.gang import Group
from gangsched.model.gpu_policy import PlacementConstraints
from gangsched.model.objects import Shape
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import Ints, Snapshot
from tests import builders

SEED = 33
RACK = "topology.kubernetes.io/rack"


def group(of: dict[Shape, int], name: str = "ns/g", needed: int = 0) -> Group:
    """A gang of so many pods of each shape that must be in one rack."""
    members = [pod for n, (shape, count) in enumerate(of.items()) for pod in builders.pods(f"s{n}", shape, count)]
    made = builders.gang(name, members, min_member=needed or len(members))
    return builders.group(replace(made, constraints=PlacementConstraints(topology=(RACK,))))


def snapshot_of(table: Snapshot, free: Ints) -> Snapshot:
    """The same nodes with this room."""
    return Snapshot(table.table, table.resources, table.allocatable, free)


def test_what_is_kept_says_what_sums_say_now() -> None:
    """Whatever changes between plans and in a plan, on as many demands as there are."""
    rng = random.Random(SEED)
    nodes = [builders.node(f"n{n:02}", 8, labels={RACK: f"r{n % 7}"} if n % 11 else {}) for n in range(40)]
    shapes = [builders.shape(gpus, cpu_milli=1_000 * gpus) for gpus in (1, 2, 3, 5)]
    groups = [
        group({shape: rng.randint(1, 9) for shape in rng.sample(shapes, rng.randint(1, 3))}, f"ns/g{n}", needed)
        for n, needed in enumerate((0, 0, 0, 1, 2, 2))
    ]
    first = builders.snapshot(nodes)
    free = first.free.copy()
    for _ in range(60):
        for node in rng.sample(range(40), rng.choice((0, 0, 1, 3, 40))):
            free[:, node] = first.allocatable[:, node] * rng.randint(0, 8) // 8
        now = snapshot_of(first, free.copy())
        ledger = Ledger(now)
        for each in rng.choices(groups, k=4):
            racks, demand = level((RACK,), ledger.table), Demand.of(each, each.gangs, ledger)
            kept = demand.judge(racks)
            fresh = judging._sums(demand, racks, range(len(demand.items)))
            assert [part.tolist() for part in kept] == [part.tolist() for part in fresh]
            kept[0][:] = True  # whoever asked may change what they were given
            if rng.random() < 0.5:
                node = rng.randrange(40)
                pod = builders.pod(f"p{rng.random()}", of=rng.choice(shapes))
                ledger.reserve([pod], np.array([node]), np.array([1]))
    assert sum(each.as_of.size for each in first.table.judged["contents"].kept.values()) == 7 * 6


def test_only_racks_of_which_a_node_changed_are_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other way costs as much as the first time, for each of thousands that wait."""
    looked_at: list[int] = []
    sums = judging._sums

    def counted(demand: Demand, level: object, kept: object, nodes: Ints | None = None) -> object:
        looked_at.append(len(demand.ledger.table) if nodes is None else nodes.size)
        return sums(demand, level, kept, nodes)  # type: ignore[arg-type]

    monkeypatch.setattr(judging, "_sums", counted)
    nodes = [builders.node(f"n{n:03}", 8, labels={RACK: f"r{n // 10}"}) for n in range(200)]
    first = builders.snapshot(nodes)
    for number, shapes in enumerate((1, 1, 2, 2)):
        free = first.free.copy()
        free[0, 17] -= number
        of = dict.fromkeys([builders.shape(8), builders.shape(7)][:shapes], 11)
        (verdict,) = plan(snapshot_of(first, free), [group(of, f"ns/g{number}")], now_s=0.0).verdicts
        assert verdict.reason is Reason.UNSCHEDULABLE
    assert looked_at == [200, 10, 200, 10]


def test_a_gang_as_one_before_starts_as_it_did_where_the_nodes_are_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where no order of placing does, the packing that was found is used again, and no other is tried."""
    shapes = {builders.shape(4): 2, builders.shape(3): 4}
    first = builders.snapshot([builders.node(f"a{n}", 10, labels={RACK: "a"}) for n in range(2)])
    tried: list[str] = []
    in_order = rounds._try_all

    def counted(of: Group, *rest: Any) -> rounds.Trial:
        tried.append(of.id)
        return in_order(of, *rest)

    monkeypatch.setattr(rounds, "_try_all", counted)
    before, after = (
        plan(snapshot_of(first, first.free.copy()), [group(shapes, name)], now_s=0.0) for name in ("ns/g", "ns/h")
    )
    assert before.verdicts[0].reason is Reason.SCHEDULED
    assert [each.node for each in after.verdicts[0].binds] == [each.node for each in before.verdicts[0].binds]
    assert tried == ["ns/g"]
