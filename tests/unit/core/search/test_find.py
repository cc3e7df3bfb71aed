"""Search: a Strict group of several shapes that fits is found, within a bound of work."""

import itertools
import random
from typing import Any

import numpy as np
import pytest

from bench.completeness import cases, exhaustive, sound
from gangsched.core.cycle import Limits, plan
from gangsched.core.filter import narrow
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.reserve import Ledger
from gangsched.core.rounds import place_run
from gangsched.core.search.find import STEPS, WORK, find
from gangsched.core.search.kinds import UNITS_AN_ITEM
from gangsched.core.work import OutOfWork
from gangsched.model.gang import Gang, Group
from gangsched.model.objects import Node, Shape
from gangsched.model.plan import Verdict
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import Ints
from tests import builders
from tests.properties.device_gangs import Cluster, device, request
from tests.sizes import of_size

SEED = 20
STEP = 500
"""Units of what is begun before it is seen that the work is done."""
GIB = 2**30


def decided(nodes: list[Node], *groups: Group, limits: Limits | None = None) -> list[Verdict]:
    """The verdicts of one plan on an empty cluster."""
    return list(plan(builders.snapshot(nodes), groups, now_s=0.0, limits=limits).verdicts)


def crossing(name: str = "x") -> tuple[list[Node], Group]:
    """The larger pod fits both nodes, the smaller only one: the usual order takes the wrong one
    first.
    """
    large, small = (
        builders.shape(cpu_milli=4000, memory_bytes=1 * GIB, gpus=0),
        builders.shape(cpu_milli=3000, memory_bytes=8 * GIB, gpus=0),
    )
    gang = builders.gang(
        f"ns/{name}", [*builders.pods("large", large, 1), *builders.pods("small", small, 1)]
    )
    nodes = [
        builders.node("a", cpu_milli=4000, memory_bytes=8 * GIB, gpus=0),
        builders.node("b", cpu_milli=6000, memory_bytes=4 * GIB, gpus=0),
    ]
    return nodes, builders.group(gang)


def hard(shapes: int, nodes: int, seed: int) -> tuple[list[Node], Group]:
    """Every sum fits exactly: nodes cut to measure for random pods of many shapes, one unit moved
    to another node.
    """
    rng = random.Random(seed)
    asks = [(rng.randint(900, 4000), rng.randint(900, 4000)) for _ in range(shapes)]
    kinds = [builders.shape(cpu_milli=cpu, memory_bytes=memory, gpus=0) for cpu, memory in asks]
    wanted = [0] * shapes
    made = []
    for n in range(nodes):
        chosen = [rng.randrange(shapes) for _ in range(4)]
        for index in chosen:
            wanted[index] += 1
        cpu, memory = (sum(asks[index][r] for index in chosen) for r in (0, 1))
        made.append(
            builders.node(
                f"n{n:03}", cpu_milli=cpu - (n == 0) + (n == 1), memory_bytes=memory, gpus=0
            )
        )
    members = [
        pod
        for index, kind in enumerate(kinds)
        for pod in builders.pods(f"s{index}", kind, wanted[index])
    ]
    return made, builders.group(builders.gang("ns/hard", members))


@pytest.mark.long
def test_everything_that_fits_is_found() -> None:
    """Whenever the exhaustive solver places a small group, so does plan; and never more than there
    is room for.
    """
    print(f"seed {SEED}")
    feasible, number = 0, of_size(200, 600)
    for case in itertools.islice(cases(random.Random(SEED)), number):
        verdict = decided(list(case.nodes), case.group)[0]
        if exhaustive(case):
            feasible += 1
            assert verdict.reason is Reason.SCHEDULED, case
            assert sound(case, verdict), case
        else:
            assert verdict.reason is Reason.UNSCHEDULABLE, case
    assert feasible > number * 2 // 3


def test_another_order_helps() -> None:
    """A gang whose larger member must leave the better node to the smaller one starts."""
    nodes, group = crossing()
    verdict = decided(nodes, group)[0]
    assert {p.pod.name: p.node for p in verdict.binds} == {"large-0000": "b", "small-0000": "a"}


def test_gangs_of_one_group_make_room_for_each_other() -> None:
    """Two gangs of a group are placed together where one after the other would not do."""
    nodes, joint = crossing()
    first, second = (
        builders.gang(f"ns/g{index}", [pod]) for index, pod in enumerate(joint.gangs[0].pending)
    )
    assert decided(nodes, builders.group(first, second))[0].reason is Reason.SCHEDULED


def test_only_the_minimum_must_fit() -> None:
    """When the largest member is in the way, the minimum is made of the others, and it is told why
    it has no node.
    """
    large, small = builders.shape(cpu_milli=4000, gpus=0), builders.shape(cpu_milli=2000, gpus=0)
    gang = builders.gang(
        "ns/g", [*builders.pods("large", large, 1), *builders.pods("small", small, 2)], min_member=2
    )
    verdict = decided([builders.node("a", cpu_milli=4000, gpus=0)], builders.group(gang))[0]
    assert [placement.pod.name for placement in verdict.binds] == ["small-0000", "small-0001"]
    assert [(uid, refusal.reason) for uid, refusal in verdict.notes] == [
        (gang.pending[0].uid, Reason.UNSCHEDULABLE)
    ]


def test_a_strict_group_never_holds() -> None:
    """Where the members that would be enough fail one after the other, the group is searched for,
    not held in part.
    """
    small, large = (
        builders.shape(cpu_milli=4000, memory_bytes=5, gpus=0),
        builders.shape(cpu_milli=6000, memory_bytes=4, gpus=0),
    )
    first = builders.gang("ns/g0", builders.pods("first", small, 1))
    members = [*builders.pods("large", large, 4), *builders.pods("small", small, 2)]
    nodes = [
        builders.node(name, cpu_milli=cpu, memory_bytes=14, gpus=0)
        for name, cpu in (("a", 8000), ("b", 5000), ("c", 9000))
    ]
    assert decided(nodes, builders.group(first, builders.gang("ns/g1", members, min_member=3)))[
        0
    ].binds
    verdict = decided(nodes, builders.group(first, builders.gang("ns/g1", members, min_member=4)))[
        0
    ]
    assert (verdict.reason, verdict.holds) == (Reason.UNSCHEDULABLE, ())


def test_members_above_the_minimum_come_along() -> None:
    """After a search has found the minimum, the other members that fit go with it."""
    nodes, group = crossing()
    spare = builders.pods("spare", builders.shape(cpu_milli=1, gpus=0), 3)
    verdict = decided(
        nodes, builders.group(*group.gangs, builders.gang("ns/spare", spare, min_member=1))
    )[0]
    assert len(verdict.binds) == 5


def test_avoided_nodes_stay_avoided() -> None:
    """The search puts nothing on a node whose kubelet recently rejected a member of this gang."""
    nodes, group = crossing()
    avoiding = Group(id=group.id, gangs=group.gangs, avoid=frozenset({"a"}))
    assert decided(nodes, avoiding)[0].reason is Reason.UNSCHEDULABLE


@pytest.mark.parametrize("found", [True, False])
def test_ledger_is_exact_after_a_search(found: bool) -> None:
    """A found group takes exactly its requests; one that was searched for in vain leaves
    no trace.
    """
    nodes, group = crossing() if found else hard(6, 12, SEED)
    ledger = builders.ledger(nodes)
    before = ledger.free.copy()
    assert (find(group.gangs, PlacementAttempt(group, ledger), place_run) is not None) is found
    taken = sum(dict(pod.shape.requests)["cpu"] for pod in group.gangs[0].pending) if found else 0
    assert int((before - ledger.free)[ledger.resources["cpu"]].sum()) == taken
    for pod in group.gangs[0].pending:
        assert np.array_equal(ledger.room(pod.shape), fresh_room(ledger, pod.shape))


def fresh_room(ledger: Ledger, shape: Shape) -> Ints:
    """Room counted anew from the free amounts."""
    counts = [ledger.free[ledger.resources[name]] // amount for name, amount in shape.requests]
    room: Ints = np.maximum(np.min(counts, axis=0), 0)
    return room


@pytest.mark.parametrize("nodes", [12, 60])
def test_work_is_bounded(nodes: int) -> None:
    """A hard case that does not fit costs a bounded number of steps, whatever its size."""
    made, group = hard(6, nodes, SEED)
    ledger = builders.ledger(made)
    assert find(group.gangs, PlacementAttempt(group, ledger), place_run, whole=True) is None
    assert STEPS < ledger.work.used < WORK + STEP


@pytest.mark.parametrize("seed", range(6))
def test_how_much_work_is_left_does_not_decide_who_fits(seed: int) -> None:
    """What is found with a whole plan's work is found with less, or it is not known. Never does it
    not fit then.
    """
    made, group = crossing() if seed == 0 else hard(2 + seed % 2, 3, seed)
    fits = find(group.gangs, PlacementAttempt(group, builders.ledger(made)), place_run) is not None
    unknown = 0
    for left in range(50, 4_500, 50):
        ledger = builders.ledger(made)
        before = ledger.free.copy()
        try:
            with ledger.work.at_most(left):
                found = find(group.gangs, PlacementAttempt(group, ledger), place_run)
                assert (found is not None) is fits, f"{left} units were left"
        except OutOfWork:
            assert np.array_equal(before, ledger.free)
            unknown += 1
    assert unknown


def test_arithmetic_ends_hopeless_cases() -> None:
    """A group that asks for more than the sum of what is free is not searched for."""
    large, small = (
        builders.shape(cpu_milli=4000, memory_bytes=8, gpus=0),
        builders.shape(cpu_milli=3000, memory_bytes=9, gpus=0),
    )
    gang = builders.gang("ns/g", [*builders.pods("a", large, 2), *builders.pods("b", small, 1)])
    ledger = builders.ledger(
        [
            builders.node("n", cpu_milli=8000, memory_bytes=24, gpus=0),
            builders.node("m", cpu_milli=2999, memory_bytes=99, gpus=0),
        ]
    )
    assert find([gang], PlacementAttempt(builders.group(gang), ledger), place_run) is None
    assert ledger.work.used < 1_000


def test_a_full_plan_leaves_the_rest_for_the_next() -> None:
    """When the searches of one plan have used up its bound, later groups are left over, not
    refused.
    """
    made, group = hard(6, 12, SEED)
    groups = [Group(id=f"ns/{name}", gangs=group.gangs) for name in "abc"]
    limits = Limits(work=WORK + 6_000)
    planned = plan(builders.snapshot(made), groups, now_s=0.0, limits=limits)
    assert [verdict.group for verdict in planned.verdicts] == ["ns/a"]
    assert planned.left == ("ns/b", "ns/c")
    assert planned.unfinished is not None
    assert planned.unfinished.group == "ns/b"


def test_one_shape_needs_no_search() -> None:
    """For identical members the usual order is exact, so nothing more is tried."""
    gang: Gang = builders.gang(
        "ns/g", builders.pods("p", builders.shape(cpu_milli=3000, gpus=0), 3)
    )
    ledger = builders.ledger([builders.node("n", cpu_milli=8000, gpus=0)])
    assert find([gang], PlacementAttempt(builders.group(gang), ledger), place_run) is None
    assert ledger.work.used == UNITS_AN_ITEM  # to see that they are of one kind


def test_equal_pods_with_devices_are_not_tried_in_every_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """V25: that some of a gang share a claim makes the others no less alike. Each round of a search
    for victims took most of a plan.
    """
    tried = 0

    def counted(*given: Any) -> Ints:
        nonlocal tried
        tried += 1
        return narrow(*given)

    monkeypatch.setattr("gangsched.core.search.find.narrow", counted)

    # Six devices are needed, of which there are five.
    cluster = Cluster([[device("d", "a")] for _ in range(5)], most=3)
    shared = cluster.claim(request(model="a"))
    pods = [cluster.using(shared) for _ in range(3)]
    pods += [cluster.ask(request()) for _ in range(5)]
    assert not cluster.decide(pods).binds
    assert tried < 100
