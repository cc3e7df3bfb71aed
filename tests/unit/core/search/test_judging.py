"""What sums said of domains is kept from plan to plan, and true of the room that there is (L17,
L18).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from gangsched.core import rounds
from gangsched.core.cycle import plan
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.reserve import Ledger
from gangsched.core.search import judging
from gangsched.core.search.demand import Demand
from gangsched.core.search.packing_problem import PackingProblem
from gangsched.core.topology import level
from gangsched.model.gang import Gang, Group
from gangsched.model.gpu_policy import PlacementConstraints
from gangsched.model.objects import Shape
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import Ints, Snapshot
from tests import builders
from tests.sizes import of_size

SEED = 33
RACK, GPU = "topology.kubernetes.io/rack", "nvidia.com/gpu"


def group(of: dict[Shape, int], name: str = "ns/g", needed: int = 0) -> Group:
    """A gang of so many pods of each shape that must be in one rack."""
    members = [
        pod
        for n, (shape, count) in enumerate(of.items())
        for pod in builders.pods(f"s{n}", shape, count)
    ]
    made = builders.gang(name, members, min_member=needed or len(members))
    return builders.group(structs.replace(made, constraints=PlacementConstraints(topology=(RACK,))))


def snapshot_of(table: Snapshot, free: Ints) -> Snapshot:
    """The same nodes with this room."""
    return Snapshot(table.table, table.resources, table.allocatable, free)


def test_what_is_kept_says_what_sums_say_now() -> None:
    """Whatever changes between plans and in a plan, on as many demands as there are."""
    rng = random.Random(SEED)
    nodes = [
        builders.node(f"n{n:02}", 8, labels={RACK: f"r{n % 7}"} if n % 11 else {})
        for n in range(40)
    ]
    shapes = [builders.shape(gpus, cpu_milli=1_000 * gpus) for gpus in (1, 2, 3, 5)]
    groups = [
        group(
            {shape: rng.randint(1, 9) for shape in rng.sample(shapes, rng.randint(1, 3))},
            f"ns/g{n}",
            needed,
        )
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
            racks = level((RACK,), ledger.table)
            demand = Demand.of(each.gangs, PlacementAttempt(each, ledger))
            enough, holds = judging.judge(demand, racks)
            fresh = judging.sums(demand, racks, range(len(demand.items)))
            assert (holds.tolist(), enough.tolist()) == (
                fresh.tolist(),
                (fresh >= sum(demand.needs)).tolist(),
            )
            enough[:], holds[:] = True, 0  # whoever asked may change what they were given
            if rng.random() < 0.5:
                node = rng.randrange(40)
                pod = builders.pod(f"p{rng.random()}", of=rng.choice(shapes))
                ledger.reserve([pod], np.array([node]), np.array([1]))
    assert sum(each.as_of.size for each in first.table.judged["contents"].kept.values()) == 7 * 6


def test_only_racks_of_which_a_node_changed_are_judged_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other way costs as much as the first time, for each of thousands that wait."""
    looked_at: list[int] = []
    sums = judging.sums

    def counted(demand: Demand, level: object, kept: object, nodes: Ints | None = None) -> object:
        looked_at.append(len(demand.ledger.table) if nodes is None else nodes.size)
        return sums(demand, level, kept, nodes)  # type: ignore[arg-type]

    monkeypatch.setattr(judging, "sums", counted)
    nodes = [builders.node(f"n{n:03}", 8, labels={RACK: f"r{n // 10}"}) for n in range(200)]
    first = builders.snapshot(nodes)
    for number, shapes in enumerate((1, 1, 2, 2)):
        free = first.free.copy()
        free[0, 17] -= number
        of = dict.fromkeys([builders.shape(8), builders.shape(7)][:shapes], 11)
        (verdict,) = plan(
            snapshot_of(first, free), [group(of, f"ns/g{number}")], now_s=0.0
        ).verdicts
        assert verdict.reason is Reason.UNSCHEDULABLE
    assert looked_at == [200, 10, 200, 10]


def test_what_a_search_refuted_is_not_searched_again_until_a_node_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pods of 5, 4 and 3 have the sums in racks of 6 and 6, and fit into none; they do into one of
    7 and 6.
    """
    searched: set[int] = set()
    of_demand = Demand.problem

    def counted(*rest: Any) -> PackingProblem:
        made = of_demand(*rest)
        searched.update(step.node // 2 for step in made.steps)
        return made

    monkeypatch.setattr(Demand, "problem", counted)
    of = {builders.shape(5): 1, builders.shape(4): 1, builders.shape(3): 1}
    first = builders.snapshot(
        [builders.node(f"n{n}", 7, labels={RACK: f"r{n // 2}"}) for n in range(6)]
    )
    looked_at, starts = [], []
    for number, free_there in enumerate((6, 6, 6, 7, 6, 6, 6)):
        free = first.free.copy()
        free[first.resources[GPU]] = [6, 6, free_there, 6, 6, 6]
        (verdict,) = plan(
            snapshot_of(first, free), [group(of, f"ns/g{number}")], now_s=0.0
        ).verdicts
        starts.append(verdict.reason is Reason.SCHEDULED)
        looked_at.append(sorted(searched))
        searched.clear()
    assert starts == [False, False, False, True, False, False, False]
    assert looked_at[:3] == [[0, 1, 2], [], []]
    assert looked_at[4:] == [[1], [], []]


def test_what_is_refuted_beside_others_of_the_plan_is_not_kept() -> None:
    """Pods of 5, 4 and 3 fit into 7 and 6, but not beside a pod of 1 that takes the seventh; it may
    never start.
    """
    first = builders.snapshot(
        [builders.node(f"n{n}", gpus, labels={RACK: "r"}) for n, gpus in enumerate((7, 6))]
    )
    of = {builders.shape(5): 1, builders.shape(4): 1, builders.shape(3): 1}
    starts = []
    for number, is_beside in enumerate((False, True, True, False)):
        before = [group({builders.shape(1): 1}, "ns/a")] if is_beside else []
        made = plan(
            snapshot_of(first, first.free.copy()), [*before, group(of, f"ns/g{number}")], now_s=0.0
        )
        starts.append(made.verdicts[-1].reason is Reason.SCHEDULED)
    assert starts == [True, False, False, True]


@pytest.mark.long
def test_plans_decide_as_if_nothing_were_kept() -> None:
    """Whatever nodes change between plans and whoever was decided before, on racks that mostly
    refuse by search.
    """
    print(f"seed {SEED}")
    rng, started, plans = random.Random(SEED), 0, of_size(80, 300)
    shapes = [builders.shape(gpus) for gpus in (2, 3, 4, 5)]
    kinds = [
        {shape: rng.randint(1, 3) for shape in rng.sample(shapes, rng.randint(2, 3))}
        for _ in range(5)
    ]
    nodes = [builders.node(f"n{n:02}", 8, labels={RACK: f"r{n // 3}"}) for n in range(6)]
    first = builders.snapshot(nodes)
    free = first.free.copy()
    for number in range(plans):
        for node in rng.sample(range(6), rng.choice((0, 0, 1, 2))):
            free[first.resources[GPU], node] = rng.randint(3, 8)
        groups = [group(of, f"ns/g{number}-{n}") for n, of in enumerate(rng.choices(kinds, k=3))]
        kept, fresh = (
            plan(snapshot_of(each, free.copy()), groups, now_s=0.0)
            for each in (first, builders.snapshot(nodes))
        )
        assert [each.reason for each in kept.verdicts] == [each.reason for each in fresh.verdicts]
        assert [each.told for each in kept.verdicts] == [each.told for each in fresh.verdicts]
        started += sum(each.reason is Reason.SCHEDULED for each in kept.verdicts)
    assert plans // 3 < started < plans * 8 // 3


def test_a_gang_as_one_before_starts_as_it_did_where_the_nodes_are_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where no order of placing does, the packing that was found is used again, and no other is
    tried.
    """
    shapes = {builders.shape(4): 2, builders.shape(3): 4}
    first = builders.snapshot([builders.node(f"a{n}", 10, labels={RACK: "a"}) for n in range(2)])
    tried: list[str] = []
    in_order = rounds._try_all

    def counted(gangs: Sequence[Gang], attempt: PlacementAttempt) -> rounds.Trial:
        tried.append(attempt.group.id)
        return in_order(gangs, attempt)

    monkeypatch.setattr(rounds, "_try_all", counted)
    before, after = (
        plan(snapshot_of(first, first.free.copy()), [group(shapes, name)], now_s=0.0)
        for name in ("ns/g", "ns/h")
    )
    assert before.verdicts[0].reason is Reason.SCHEDULED
    assert [each.node for each in after.verdicts[0].binds] == [
        each.node for each in before.verdicts[0].binds
    ]
    assert tried == ["ns/g"]
