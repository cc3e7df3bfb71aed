"""Victims for gangs with slices: by sums of slices in each domain (L6, V9)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Sequence

import pytest

from gangsched.core.cycle import Limits, plan
from gangsched.core.preemption.attempt import Attempt
from gangsched.core.preemption.preemptor import Preemptor
from gangsched.core.preemption.sums import DomainSums, NeededSums
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Group
from gangsched.model.gpu_policy import PlacementConstraints, SliceLayer
from gangsched.model.objects import Node
from gangsched.model.preemption import NotHelpful, Obstacle, Preemption
from tests import builders
from tests.running_cluster import RunningCluster, nominated, victims

RACK, BLOCK = "example.com/rack", "example.com/block"


def node(name: str, gpus: int, rack: str, block: str = "b") -> Node:
    """A node in a rack of a block."""
    return builders.node(name, gpus=gpus, labels={RACK: rack, BLOCK: block})


def urgent(number: int, *layers: SliceLayer, topology: tuple[str, ...] = ()) -> Group:
    """A gang of urgent members with one GPU each."""
    members = [builders.pod(f"urgent-{n}", gpus=1, priority=9) for n in range(number)]
    constraints = PlacementConstraints(topology=topology, slices=layers)
    return builders.group(builders.gang("ns/urgent", members, constraints=constraints), priority=9)


def test_slices_preempt_where_many_pods_run() -> None:
    """The cheapest pods for 200 members are 100; for their slices of ten 300 of them must go, of
    which 100 are used.
    """
    cluster = crowd(1_000)
    made = plan(
        cluster.snapshot(),
        [urgent(200, SliceLayer(10, RACK))],
        now_s=0.0,
        preempting=cluster.given(),
    )
    (verdict,) = made.verdicts
    assert len(victims(verdict)) == 100
    assert max(int(name[4:]) for name in victims(verdict)) < 1_500, "the cheapest third"
    rack_of = {each.name: each.labels[RACK] for each in cluster.nodes}
    taken = Counter(rack_of[name] for name in nominated(verdict).values())
    assert {number % 10 for number in taken.values()} == {0}
    assert made.work < 20_000


def filled(
    nodes: Sequence[Node], pods: int, dice: random.Random
) -> tuple[RunningCluster, dict[str, tuple[str, int]], dict[str, int]]:
    """Up to so many pods of one or two GPUs that run on these nodes; by name where, and what is
    left of each node.
    """
    cluster, runs = RunningCluster(nodes), dict[str, tuple[str, int]]()
    free = {each.name: dict(each.allocatable)["nvidia.com/gpu"] for each in nodes}
    for number in range(pods):
        name, gpus = dice.choice(nodes).name, dice.randint(1, 2)
        if gpus <= free[name]:
            free[name] -= gpus
            cluster.run(f"low-{number}", name, gpus=gpus, ran_s=dice.randint(1, 900))
            runs[f"low-{number}"] = name, gpus
    return cluster, runs, free


def slices_in(
    free: dict[str, int], nodes: Sequence[Node], layers: Sequence[SliceLayer], domain: str = ""
) -> int:
    """Slices of the first layer that fit into a domain of one, by what is free on each node."""
    first, finer = layers[0], layers[1:]
    found = 0
    for name in {each.labels[first.topology] for each in nodes}:
        inside = [each for each in nodes if each.labels[first.topology] == name]
        if finer:
            found += slices_in(free, inside, finer) // (first.size // finer[0].size)
        else:
            found += sum(free[each.name] for each in inside) // first.size
    return found


@pytest.mark.parametrize("seed", range(60))
def test_victims_of_slices_suffice_and_none_can_be_spared(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V9 on small clusters of racks and blocks: against counting what fits in each rack; of one
    layer, sums decide.
    """
    dice = random.Random(seed)
    layers = dice.choice(
        [
            (SliceLayer(2, RACK),),
            (SliceLayer(3, RACK),),
            (SliceLayer(4, BLOCK), SliceLayer(2, RACK)),
        ]
    )
    number = 2 * dice.randint(1, 3) * len(layers)
    nodes = [node(f"n{n}", dice.randint(1, 4), f"r{n // 2}", f"b{n // 4}") for n in range(number)]
    cluster, runs, free = filled(nodes, dice.randint(3, 8), dice)
    number = dice.randint(1, 3)

    def fits(gone: Collection[str]) -> bool:
        room = Counter(free)
        for each in gone:
            room[runs[each][0]] += runs[each][1]
        return slices_in(room, nodes, layers) >= number

    if fits(()):
        return
    if len(layers) == 1 and fits(runs):
        monkeypatch.setattr(Attempt, "_by_rounds", lambda *_, **__: pytest.fail("sums are enough"))
    verdict = cluster.verdicts(urgent(number * layers[0].size, *layers))["ns/urgent"]
    if not fits(runs):
        assert isinstance(verdict.preemption, NotHelpful)
        assert verdict.preemption.why in {Obstacle.TOO_LITTLE, Obstacle.NOTHING_LOWER}
        return
    gone = victims(verdict)
    assert fits(gone)
    assert not any(fits([other for other in gone if other != each]) for each in gone)


def with_leaders(number: int, size: int) -> Group:
    """An urgent gang in slices, the first member of each with two GPUs."""
    members = [
        builders.pod(f"urgent-{n}", gpus=1 if n % size else 2, priority=9)
        for n in range(number * size)
    ]
    constraints = PlacementConstraints(slices=(SliceLayer(size, RACK),))
    return builders.group(builders.gang("ns/urgent", members, constraints=constraints), priority=9)


def crowd(nodes: int, seed: int = 1) -> RunningCluster:
    """Racks of ten nodes, four pods with two GPUs on each node."""
    cluster = RunningCluster([node(f"n{n:04}", 8, f"r{n // 10:03}") for n in range(nodes)])
    places = [each.name for each in cluster.nodes for _ in range(4)]
    random.Random(seed).shuffle(places)
    for number, name in enumerate(places):
        cluster.run(f"low-{number:04}", name, gpus=2, ran_s=60 + number)
    return cluster


def test_slices_of_two_shapes_preempt_where_many_pods_run() -> None:
    """Ten slices of a leader with two GPUs and nine workers take six pods each."""
    verdict = crowd(500).verdicts(with_leaders(10, 10))["ns/urgent"]
    assert len(victims(verdict)) == 60


def test_a_choice_that_takes_all_of_a_plan_is_confirmed_by_the_next() -> None:
    """V25: rounds for slices may take more work than is left after choosing."""
    cluster, group = crowd(500), with_leaders(10, 10)
    whole = plan(cluster.snapshot(), [group], now_s=0.0, preempting=cluster.given()).work
    known: dict[str, NotHelpful] = {}
    unfinished, plans = None, list[tuple[str, ...]]()
    for _ in range(6):
        made = plan(
            cluster.snapshot(),
            [group],
            now_s=0.0,
            limits=Limits(work=whole + 1_000),
            preempting=cluster.given(known=known),
            unfinished=unfinished,
        )
        unfinished = made.unfinished
        found = made.verdicts[0].preemption if made.verdicts else None
        if isinstance(found, Preemption):
            break
        if isinstance(found, NotHelpful):
            assert found.why is Obstacle.LATER
            known = {group.id: found}
            plans.append(found.resume)
    assert len(plans) == 1
    assert len(victims(made.verdicts[0])) == len(plans[0]) == 60


@pytest.mark.parametrize("seed", range(30))
def test_victims_of_slices_of_two_shapes_suffice_and_none_can_be_spared(seed: int) -> None:
    """V9: a leader with two GPUs and a worker in one rack, against all places."""
    dice = random.Random(seed)
    nodes = [node(f"n{n}", dice.randint(1, 4), f"r{n // 3}") for n in range(6)]
    racks = [[each.name for each in nodes[n : n + 3]] for n in (0, 3)]
    cluster, runs, free = filled(nodes, 8, dice)
    slices = dice.randint(1, 2)

    def fits(gone: Collection[str], slices: int = slices, room: Counter[str] | None = None) -> bool:
        room = Counter(free) if room is None else room
        for each in gone:
            room[runs[each][0]] += runs[each][1]
        if not slices:
            return True
        pairs = [(leader, worker) for rack in racks for leader in rack for worker in rack]
        tried = (
            (leader, room - Counter({leader: 2}), worker)
            for leader, worker in pairs
            if room[leader] >= 2
        )
        return any(
            fits((), slices - 1, left - Counter([worker]))
            for _, left, worker in tried
            if left[worker]
        )

    if fits(()):
        return
    verdict = cluster.verdicts(with_leaders(slices, 2))["ns/urgent"]
    if not fits(runs):
        assert isinstance(verdict.preemption, NotHelpful)
        return
    gone = victims(verdict)
    assert fits(gone)
    assert not any(fits([other for other in gone if other != each]) for each in gone)


def test_slices_of_one_domain_take_no_victims_elsewhere() -> None:
    """L4, L19: all slices in one block; slices that fit elsewhere are no reason to spare
    a victim.
    """
    nodes = [node(f"{block}{n}", 2, f"{block}{n}", block) for block in "ab" for n in range(3)]
    cluster = RunningCluster(nodes)
    for each in nodes:
        busy = 1 if each.name in {"a0", "a1", "a2"} else 2
        cluster.run(
            f"low-{each.name}", each.name, gpus=busy, ran_s=10 if each.name == "b0" else 600
        )
    verdict = cluster.verdicts(urgent(4, SliceLayer(2, RACK), topology=(BLOCK,)))["ns/urgent"]
    assert isinstance(verdict.preemption, Preemption)
    assert len({name[4] for name in victims(verdict)}) == 1
    assert len(victims(verdict)) == 2


@pytest.mark.parametrize("seed", range(20))
def test_each_domain_is_judged_as_alone(seed: int) -> None:
    """L19: which blocks hold all slices by sums, at once and one after the other."""
    dice = random.Random(seed)
    nodes = [node(f"n{n}", dice.randint(1, 4), f"r{n // 2}", f"b{n // 4}") for n in range(16)]
    cluster = RunningCluster(nodes)
    group = urgent(dice.randint(1, 3) * 4, SliceLayer(4, RACK), topology=(BLOCK,))
    ledger = Ledger(cluster.snapshot())
    sums = NeededSums.of(Preemptor.of(group), ledger)
    assert sums is not None
    assert sums.slices
    domains = DomainSums.of(group, sums, ledger)
    free = sums.free(ledger)
    alone = [sums.within(domains.scope(n)).enough(free) for n in range(domains.level.size)]
    assert domains.enough(free).tolist() == alone
    assert domains.level.size == 4
