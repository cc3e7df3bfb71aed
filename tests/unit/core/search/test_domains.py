"""Required topology: every domain is judged, and a gang that fits in one of them starts there (L9,
L14).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest
from msgspec import structs

from bench.completeness import cases, exhaustive_in_domains, in_domains, sound
from gangsched.core.cycle import plan
from gangsched.core.reserve import Ledger
from gangsched.core.search.domains import best_domains
from gangsched.model.gang import Gang, Group
from gangsched.model.gpu_policy import PlacementConstraints
from gangsched.model.objects import Node
from gangsched.model.plan import Plan, Verdict
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import Snapshot
from gangsched.sentences import say
from tests import builders
from tests.running_cluster import RunningCluster, nominated, victims
from tests.sizes import of_size

SEED = 33
RACK, ZONE = "topology.kubernetes.io/rack", "topology.kubernetes.io/zone"


def rack(name: str, sizes: Sequence[int], zone: str = "z") -> list[Node]:
    """One node of each of these numbers of GPUs."""
    labels = {RACK: name, ZONE: zone}
    return [builders.node(f"{name}-{n}", gpus, labels=labels) for n, gpus in enumerate(sizes)]


def gang(*counts: tuple[int, int], topology: tuple[str, ...] = (RACK,), name: str = "ns/g") -> Gang:
    """A gang of so many pods of so many GPUs each, all of them needed."""
    members = [
        pod
        for count, gpus in counts
        for pod in builders.pods(f"p{gpus}", builders.shape(gpus), count)
    ]
    return structs.replace(
        builders.gang(name, members), constraints=PlacementConstraints(topology=topology)
    )


def decided(snapshot: Snapshot, group: Group, *, most_plans: int) -> tuple[Verdict, int]:
    """The verdict on the group and the number of plans until then."""
    unfinished = None
    for number in range(1, most_plans + 1):
        planned: Plan = plan(snapshot, [group], now_s=0.0, unfinished=unfinished)
        if planned.verdicts:
            return planned.verdicts[0], number
        unfinished = planned.unfinished
        assert unfinished is not None
    raise AssertionError(f"no verdict in {most_plans} plans")


def racks_of(verdict: Verdict) -> set[str]:
    """The racks that are used."""
    return {placement.node.rpartition("-")[0] for placement in verdict.binds}


@pytest.mark.parametrize("racks", [1, 2, 4, 10, 100, 500])
def test_the_one_rack_that_fits_is_found_among_many(racks: int) -> None:
    """Two pods of 8 GPUs and one of 1 fit into no rack of two nodes, only into the one of three."""
    nodes = [each for n in range(racks) for each in rack(f"r{n:03}", (8, 8))] + rack("x", (8, 8, 8))
    verdict, plans = decided(
        builders.snapshot(nodes), builders.group(gang((2, 8), (1, 1))), most_plans=1
    )
    assert (racks_of(verdict), len(verdict.binds), plans) == ({"x"}, 3, 1)


@pytest.mark.parametrize("racks", [1, 5, 50])
def test_no_domain_is_skipped_that_sums_leave(racks: int) -> None:
    """Nodes of 4, 4 and 2 GPUs have the sums for pods of 3, 3, 2 and 2, but only the roomiest rack
    takes them.
    """
    nodes = [each for n in range(racks) for each in rack(f"r{n:03}", (4, 4, 2))] + rack(
        "x", (5, 5, 3)
    )
    verdict, _ = decided(
        builders.snapshot(nodes), builders.group(gang((2, 3), (2, 2))), most_plans=1
    )
    assert (racks_of(verdict), len(verdict.binds)) == ({"x"}, 4)


def test_preemption_clears_the_one_rack_that_can_be_cleared() -> None:
    """Racks of 6, 5 and 5 GPUs have the sums, but only the one of 8, 8 and 2 takes pods of 4, 4, 3,
    3 and 2.
    """
    nodes = [each for n in range(6) for each in rack(f"r{n}", (6, 5, 5))] + rack("x", (8, 8, 2))
    cluster = RunningCluster(nodes)
    for each in nodes:
        cluster.run(f"low-{each.name}", each.name, gpus=dict(each.allocatable)["nvidia.com/gpu"])
    urgent = builders.group(gang((2, 4), (2, 3), (1, 2)), priority=9)
    urgent = structs.replace(urgent, gangs=tuple(_with_priority(each, 9) for each in urgent.gangs))
    verdict = cluster.verdicts(urgent)["ns/g"]
    assert {name.removeprefix("low-").rpartition("-")[0] for name in victims(verdict)} == {"x"}
    assert {node.rpartition("-")[0] for node in nominated(verdict).values()} == {"x"}


def test_preemption_looks_at_hundreds_of_racks_in_one_plan() -> None:
    """500 racks full of low pods, of which the members must clear one: the one with the
    least work.
    """
    nodes = [each for n in range(500) for each in rack(f"r{n:03}", (8, 8))]
    cluster = RunningCluster(nodes)
    for number, each in enumerate(nodes):
        ran_s = 10 if each.name.startswith("r321-") else 1_000 + number
        cluster.run(f"low-{each.name}", each.name, gpus=8, ran_s=ran_s)
    urgent = builders.group(_with_priority(gang((2, 8)), 9), priority=9)
    verdict = cluster.verdicts(urgent)["ns/g"]
    assert victims(verdict) == ["low-r321-0", "low-r321-1"]
    assert sorted(nominated(verdict).values()) == ["r321-0", "r321-1"]


def _with_priority(each: Gang, priority: int) -> Gang:
    pods = [builders.pod(pod.name, of=pod.shape, priority=priority) for pod in each.pending]
    return structs.replace(builders.gang(each.id, pods), constraints=each.constraints)


def test_domains_of_several_levels_at_once() -> None:
    """A rack of the same name in another zone is another rack."""
    nodes = [
        *rack("r", (8,), "a"),
        *(replace_name(each, f"b-{each.name}") for each in rack("r", (8,), "b")),
    ]
    both = gang((2, 8), topology=(ZONE, RACK))
    verdict, _ = decided(builders.snapshot(nodes), builders.group(both), most_plans=1)
    assert verdict.reason is Reason.UNSCHEDULABLE
    third = replace_name(rack("r", (8,), "b")[0], "b-r-1")
    verdict, _ = decided(builders.snapshot([*nodes, third]), builders.group(both), most_plans=1)
    assert sorted(placement.node for placement in verdict.binds) == ["b-r-0", "b-r-1"]


def replace_name(node: Node, name: str) -> Node:
    """The node under another name."""
    return Node(name=name, labels=node.labels, allocatable=node.allocatable)


def test_a_refusal_names_the_best_domain_and_what_it_lacks() -> None:
    """M1: the domain that holds most, and how many were refuted by sums and how many by
    a search.
    """
    nodes = [each for n in range(3) for each in rack(f"r{n}", (4,))]
    nodes += rack("half", (8, 8)) + rack("torn", (6, 6, 6))
    verdict, _ = decided(
        builders.snapshot(nodes), builders.group(gang((2, 8), (1, 2))), most_plans=1
    )
    assert say(verdict.told).stable.startswith(
        f"gang ns/g can never start: it needs 3 pods in one {RACK}, and the best, half, takes at"
        " most 2 when empty, for lack of nvidia.com/gpu"
    )
    assert f"5 of 5 domains of {RACK} lack room" in say(verdict.told).now
    torn = builders.snapshot(rack("torn", (6, 6)))
    verdict, _ = decided(torn, builders.group(gang((1, 5), (1, 4), (1, 3))), most_plans=1)
    assert f"1 of 1 domains of {RACK} has room, but too scattered" in say(verdict.told).now


def test_a_gang_that_is_in_a_rack_is_not_continued_in_another() -> None:
    """L8: one member runs, two are missing, and its rack is full; a zone that both racks are in
    changes nothing.
    """
    nodes = rack("a", (8, 4)) + rack("b", (8, 8, 8))
    there = builders.running(builders.pod("there", gpus=8), "a-0")
    missing = structs.replace(gang((2, 8)), nodes=("a-0",), bound=1, min_member=3, total=3)
    verdict, _ = decided(
        builders.snapshot(nodes, [(there, "a-0")]), builders.group(missing), most_plans=1
    )
    assert not verdict.binds
    assert "its other pods are in a, which takes 0 of 2" in say(verdict.told).now


def fragmented(rng: random.Random, racks: int, nodes: int) -> list[Node]:
    """Racks that all differ, with so many nodes each."""
    return [
        each
        for n in range(racks)
        for each in rack(f"r{n:03}", [rng.randint(1, 8) for _ in range(nodes)])
    ]


@pytest.mark.parametrize(("racks", "nodes", "most_plans"), [(500, 10, 5), (250, 18, 12)])
def test_different_fragmented_racks_are_decided_within_few_plans(
    racks: int, nodes: int, most_plans: int
) -> None:
    """Three shapes, hundreds of racks: decided within a bound of plans, and the next gang of the
    kind at once.
    """
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    snapshot = builders.snapshot(fragmented(rng, racks, nodes))
    for number in range(3):
        counts = [(rng.randint(1, nodes // 2), gpus) for gpus in rng.sample((3, 4, 5, 6, 7), 3)]
        first, _ = decided(
            snapshot, builders.group(gang(*counts, name=f"ns/g{number}")), most_plans=most_plans
        )
        second, plans = decided(
            snapshot, builders.group(gang(*counts, name=f"ns/h{number}")), most_plans=1
        )
        assert (second.reason, plans) == (first.reason, 1)


@pytest.mark.long
@pytest.mark.parametrize("labels", [(RACK,), (ZONE, RACK)])
def test_everything_that_fits_into_one_domain_is_found(labels: tuple[str, ...]) -> None:
    """Whenever the exhaustive solver places a small gang in a domain of every level, so does plan;
    and never else.
    """
    print(f"seed {SEED}")
    rng, feasible, number = random.Random(SEED), 0, of_size(100, 300)
    for drawn in itertools.islice(cases(rng), number):
        case = in_domains(drawn, rng, labels)
        verdict, _ = decided(builders.snapshot(case.nodes), case.group, most_plans=5)
        is_possible = exhaustive_in_domains(case)
        feasible += is_possible
        assert (verdict.reason is Reason.SCHEDULED) == is_possible, case
        assert not is_possible or sound(case, verdict), case
    assert feasible > number // 10


def test_the_best_domains_say_what_they_lack() -> None:
    """M4: those that no sum refutes first, then by what they hold; a refuted packing is told as
    such.
    """
    nodes = [*rack("a", (2, 2)), *rack("b", (3, 3)), *rack("c", (1,))]
    of = gang((2, 2), (1, 1), (1, 1))
    found = best_domains(builders.group(of), Ledger(builders.snapshot(nodes)))
    assert [each.name.partition("=")[2] for each in found] == ["b", "a", "c"]
    assert [(each.holds, each.needed, each.refuted) for each in found] == [
        (4, 4, ""),
        (3, 4, "sums"),
        (1, 4, "sums"),
    ]
    hard = gang((2, 4), (1, 3), (1, 1))
    snapshot = builders.snapshot([*rack("a", (6, 6)), *rack("b", (1,))])
    assert not plan(snapshot, [builders.group(hard)], now_s=0.0).verdicts[0].binds
    assert [each.refuted for each in best_domains(builders.group(hard), Ledger(snapshot))] == [
        "search",
        "sums",
    ]
    assert best_domains(builders.group(gang((1, 1), topology=())), Ledger(snapshot)) == []
