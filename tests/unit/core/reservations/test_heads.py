"""Who is entitled to a reservation: H3 and H4 of the backfill design."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec import structs

from gangsched.core.reservations import heads
from gangsched.core.reservations.heads import (
    Head,
    at_home_of,
    empty_ledger,
    find_heads,
    head_of,
    needed,
    startable,
    waiting_since_s,
)
from gangsched.core.reserve import Ledger
from gangsched.core.work import OutOfWork, Work
from gangsched.model.gang import Gang, Group, MatchPolicy
from gangsched.model.objects import Node
from gangsched.model.reservation import NotEntitled, NotReserved, ReservationLimits
from gangsched.model.tree import Composite
from tests.builders import GPU, gang, group, node, pod, running, shape, snapshot

TWO_NODES = [node("a"), node("b")]
LIMITS = ReservationLimits()
NOW_S = 10_000.0


def waiting(name: str, pods: int, gpus: int, created_s: int = 9_000, **fields: Any) -> Group:
    """A group of one gang of so many pods."""
    members = [pod(f"{name}-{n}", gpus=gpus, creation_s=created_s, **fields) for n in range(pods)]
    return group(gang(f"ns/{name}", members), creation_s=created_s)


def heads_of(groups: Iterable[Group]) -> list[Head]:
    """The groups that lack anything, as heads."""
    return [head for each in groups if (head := head_of(each)) is not None]


def found(
    groups: list[Group], nodes: list[Node] | None = None, limits: ReservationLimits = LIMITS
) -> list[str]:
    """Ids of the heads, in order."""
    empty = empty_ledger(snapshot(nodes or TWO_NODES))
    return [head.group.id for head in find_heads(heads_of(groups), empty, limits, wall_s=NOW_S)[0]]


def test_a_pod_whose_bind_failed_waits_alone() -> None:
    """B3: also the only member of a gang that is not satisfied, which then has no pending one."""
    again = pod("again", gpus=8, creation_s=9_000)
    head = head_of(group(gang("ns/g", min_member=1, retry=(again,))))
    assert head is not None
    assert [each.pending for each in head.gangs] == [(again,)]
    assert head.since_s == 9_000


def test_whole_nodes_at_once() -> None:
    """A pod of a whole node, or more than a node's worth, is entitled at once."""
    whole, several = waiting("whole", 1, 8), waiting("several", 3, 4)
    assert found([whole, several], limits=ReservationLimits(per_namespace=9)) == [
        "ns/several",
        "ns/whole",
    ]


@pytest.mark.parametrize(
    ("run_s", "waits_s"), [(600, 3_600), (14_400, 14_400), (172_801, 172_800), (math.inf, 172_800)]
)
def test_smaller_ones_after_their_run_time(run_s: float, waits_s: int) -> None:
    """Less than a node: after as long as it runs, an hour at least, two days at most and where
    nobody knows (H3).
    """
    pods = [pod(f"small-{n}", gpus=4, creation_s=9_000) for n in range(2)]
    small = heads_of([group(gang("ns/small", pods, run_time_s=run_s))])
    empty = empty_ledger(snapshot(TWO_NODES))
    young, others = find_heads(small, empty, LIMITS, wall_s=9_000 + waits_s - 1)
    assert young == []
    assert others == {"ns/small": NotReserved(why=NotEntitled.TOO_YOUNG, until_s=9_000 + waits_s)}
    assert find_heads(small, empty, LIMITS, wall_s=9_000 + waits_s) == (small, {})


def test_the_least_that_small_groups_wait_counts_before_the_most() -> None:
    """An administrator who raises only the first of the two settings is heard."""
    small = heads_of([waiting("small", 1, 1, created_s=0)])
    limits = ReservationLimits(small_head_after_s=600_000)
    _, others = find_heads(small, empty_ledger(snapshot(TWO_NODES)), limits, wall_s=NOW_S)
    assert others["ns/small"].until_s == 600_000


def test_the_largest_node_it_may_use_is_a_whole_node() -> None:
    """4 GPUs are a whole node for a pod that may only use nodes of 4."""
    nodes = [node("big", 8), node("small", 4, labels={"size": "4"})]
    groups = [waiting("any", 1, 4)]
    assert found(groups, nodes) == []
    assert found(groups, [node("small", 4), node("other", 2)]) == ["ns/any"]


def test_without_accelerators_more_than_a_node_takes() -> None:
    """CPU-only gangs count by what one empty node holds."""
    nodes = [node("a", 0, cpu_milli=4_000), node("b", 0, cpu_milli=4_000)]
    fits, more = (
        [pod(f"{n}-{count}", gpus=0, cpu_milli=1_000) for n in range(count)] for count in (4, 5)
    )
    assert found([group(gang("ns/more", more))], nodes) == ["ns/more"]
    young = [pod(f"young-{n}", gpus=0, cpu_milli=1_000, creation_s=9_999) for n in range(4)]
    assert found([group(gang("ns/fits", young, run_time_s=60))], nodes) == []
    assert found([group(gang("ns/fits", fits, run_time_s=60))], nodes) == ["ns/fits"], (
        "these wait for long"
    )


def test_what_can_never_start_is_no_head() -> None:
    """Nine pods of a node on two nodes, and a gang whose only node is cordoned."""
    empty = empty_ledger(snapshot([node("a"), node("b", unschedulable=True)]))
    heads, others = find_heads(heads_of([waiting("g", 2, 8)]), empty, LIMITS, wall_s=NOW_S)
    assert heads == []
    assert others == {"ns/g": NotReserved(why=NotEntitled.IMPOSSIBLE, needs=2, offers=1)}


def test_what_runs_now_does_not_count() -> None:
    """A head may need nodes that are full, and looking for heads leaves the ledger as found."""
    taken = snapshot(
        TWO_NODES, [(running(pod("x", gpus=8), "a"), "a"), (running(pod("y", gpus=8), "b"), "b")]
    )
    empty = empty_ledger(taken)
    before = empty.free.copy()
    assert len(find_heads(heads_of([waiting("g", 2, 8)]), empty, LIMITS, wall_s=NOW_S)[0]) == 1
    assert (empty.free == before).all()
    assert Ledger(taken).room(pod("z", gpus=1).shape).sum() == 0


def test_order_is_priority_then_how_long_its_pods_wait() -> None:
    """An old PodGroup whose pods came late is young (H4)."""
    old = group(gang("ns/old", [pod("o", gpus=8, creation_s=9_500)]), creation_s=1)
    high = group(
        gang("ns/high", [pod("h", gpus=8, creation_s=9_900)]), priority=5, creation_s=9_900
    )
    limits = ReservationLimits(per_namespace=9)
    assert found([old, waiting("other", 1, 8), high], limits=limits) == [
        "ns/high",
        "ns/other",
        "ns/old",
    ]


def test_waiting_since_the_youngest_pod_that_the_minimum_needs() -> None:
    """Pods above the minimum do not make a gang younger; of several gangs the latest counts."""
    times = (100, 300, 200, 900)
    three = gang("ns/a", [pod(f"a{t}", creation_s=t) for t in times], min_member=3)
    two = gang("ns/b", [pod(f"b{t}", creation_s=t) for t in times], min_member=2)
    assert waiting_since_s([three]) == 300
    assert waiting_since_s([two]) == 200
    assert waiting_since_s([two, three]) == 300


def test_bounds() -> None:
    """At most so many heads in all and of one namespace; the others are passed over, and
    told why.
    """
    groups = [waiting(f"g{n}", 1, 8, created_s=n, namespace="ml") for n in range(4)]
    groups += [waiting(f"h{n}", 1, 8, created_s=10 + n, namespace=f"ns{n}") for n in range(4)]
    heads, others = find_heads(
        heads_of(groups),
        empty_ledger(snapshot(TWO_NODES)),
        ReservationLimits(reservations=5),
        wall_s=NOW_S,
    )
    assert [head.group.id for head in heads] == ["ns/g0", "ns/g1", "ns/h0", "ns/h1", "ns/h2"]
    full = NotReserved(why=NotEntitled.NAMESPACE, namespace="ml", offers=2)
    assert others == {"ns/g2": full, "ns/g3": full, "ns/h3": NotReserved(why=NotEntitled.LATER)}
    assert found(groups, limits=ReservationLimits(reservations=0)) == []


def test_who_yielded_waits_for_another_group() -> None:
    """D1: it is no head, and takes nobody's place."""
    yielded = group(gang("ns/y", [pod("y", gpus=8)]), yielded_to="ns/x")
    assert found([yielded, waiting("g", 1, 8)]) == ["ns/g"]


@pytest.mark.parametrize(
    "fields",
    [
        {"plain": True},
        {"satisfied": True, "bound": 1},
        {"satisfied": True, "bound": 1, "min_member": 3},
    ],
)
def test_pods_that_go_alone_are_a_gang_of_one(fields: dict[str, Any]) -> None:
    """A plain pod, or a further member of a running gang: the one that waits longest."""
    alone = group(gang("ns/p", [pod("young", creation_s=9), pod("old", creation_s=5)], **fields))
    (one,) = needed(alone)
    assert ([each.name for each in one.pending], one.min_member, one.free_running) == (
        ["old"],
        1,
        False,
    )
    assert one.match_policy is MatchPolicy.ONLY_WAITING


def test_of_a_tree_only_needed_children_count() -> None:
    """I9, H3: two of three children are needed; the third is no part of the head, nor a head once
    two have started.
    """
    tree = Composite("ns/t", ("ns/a", "ns/b", "ns/c"), 2)
    children = [gang(f"ns/{name}", [pod(f"{name}{n}", gpus=8) for n in range(2)]) for name in "abc"]
    head = head_of(group(*children, tree=tree))
    assert head is not None
    assert [each.id for each in head.gangs] == ["ns/a", "ns/b"]
    begun = [structs.replace(each, pending=(), bound=2, satisfied=True) for each in children[:2]]
    assert head_of(group(*begun, children[2], tree=tree)) is None


GONE = (("pool", "gone"),)
"""A node selector that no node has."""


def child(
    name: str, number: int = 2, gpus: int = 8, *, creation_s: int = 9_000, **fields: Any
) -> Gang:
    """A gang of a tree."""
    alike = shape(gpus, **fields)
    return gang(
        f"ns/{name}", [pod(f"{name}{n}", of=alike, creation_s=creation_s) for n in range(number)]
    )


def chosen(tree: Group, nodes: list[Node], work: Work | None = None) -> list[str] | NotEntitled:
    """The gangs of the tree's reservation, or why it has none."""
    (head,) = heads_of([tree])
    made, others = find_heads(
        [head], empty_ledger(snapshot(nodes), work=work), LIMITS, wall_s=NOW_S
    )
    if not made:
        return others[tree.id].why
    again = head_of(tree, made[0].choice)
    assert again == made[0], "the next plan comes to the same"
    return [each.id[3:] for each in made[0].gangs]


def test_a_tree_is_a_head_with_the_first_choice_of_children_that_can_start() -> None:
    """I9, H3: the first two of three children include one that no node takes, by its label, by size
    or together.
    """
    nodes = [node(f"n{n}") for n in range(4)]
    tree = Composite("ns/t", ("ns/a", "ns/b", "ns/c"), 2)
    for odd in (child("a", node_selector=GONE), child("a", gpus=9), child("a", 4)):
        assert chosen(group(odd, child("b"), child("c"), tree=tree), nodes) == ["b", "c"]
        first = structs.replace(odd, id="ns/b")
        assert chosen(group(child("a"), first, child("c"), tree=tree), nodes) == ["a", "c"]
    assert chosen(
        group(child("a"), child("b"), child("c", node_selector=GONE), tree=tree), nodes
    ) == ["a", "b"]
    assert (
        chosen(group(child("a"), child("b", 3), child("c", 3), tree=tree), nodes)
        is NotEntitled.IMPOSSIBLE
    )


def test_a_choice_inside_a_child_is_found_for_a_head() -> None:
    """I9, H3: of two levels; also where children start by themselves, and where the parent has
    started.
    """
    nodes = [node(f"n{n}") for n in range(4)]
    one, two = Composite("ns/1", ("ns/a", "ns/b"), 1), Composite("ns/2", ("ns/c", "ns/d"), 1)
    gangs = [child("a", node_selector=GONE), child("b"), child("c", gpus=9), child("d")]
    assert chosen(group(*gangs, tree=Composite("ns/t", (one, two), 2)), nodes) == ["b", "d"]
    assert chosen(
        group(*gangs, tree=Composite("ns/t", (structs.replace(one, min_children=2), two), 1)), nodes
    ) == ["d"]
    each = structs.replace(one, min_children=0), structs.replace(two, min_children=2)
    assert chosen(group(*gangs, tree=Composite("ns/t", each, 1)), nodes) == ["b"]
    none = child("b", node_selector=GONE)
    assert chosen(
        group(gangs[0], none, *gangs[2:], tree=Composite("ns/t", (each[0], two), 2)), nodes
    ) == ["d"]
    without = Composite("ns/1", ("ns/a",), 0)
    assert chosen(
        group(gangs[0], gangs[3], tree=Composite("ns/t", (without, "ns/d"), 2)), nodes
    ) == ["d"]
    begun = structs.replace(gangs[3], pending=(), bound=2, satisfied=True)
    more = structs.replace(two, children=("ns/a", "ns/b", "ns/d"), min_children=2)
    tree = Composite("ns/t", (more, Composite("ns/3", ("ns/c",), 1)), 1)
    assert chosen(group(*gangs[:3], begun, tree=tree), nodes) == ["b"], "it lost a child"


def test_a_child_that_can_never_start_makes_its_tree_no_older() -> None:
    """H4: else an old one would be worth a place before others; the age is that of the children
    that may start.
    """
    nodes = [node(f"n{n}") for n in range(4)]
    old, others = (
        child("a", node_selector=GONE, creation_s=1),
        [child("b", creation_s=2), child("c", creation_s=8_000)],
    )
    tree = group(old, *others, tree=Composite("ns/t", ("ns/a", "ns/b", "ns/c"), 2))
    limits = ReservationLimits(per_namespace=9)
    both = heads_of([tree, waiting("g", 1, 8, 7_000)])
    made, _ = find_heads(both, empty_ledger(snapshot(nodes)), limits, wall_s=NOW_S)
    assert [(head.group.id, head.since_s) for head in made] == [("ns/g", 7_000), (tree.id, 8_000)]
    small = group(
        *(child(each.id[3:], 1, 1, creation_s=each.pending[0].creation_s) for each in others), old
    )
    small = structs.replace(small, tree=tree.tree)
    wall_s = 8_000.0 + 172_799
    _, why = find_heads(heads_of([small]), empty_ledger(snapshot(nodes)), limits, wall_s=wall_s)
    assert why == {small.id: NotReserved(why=NotEntitled.TOO_YOUNG, until_s=wall_s + 1)}


@pytest.mark.parametrize("place", [0, 7, 15])
def test_one_child_of_many_that_can_never_start_is_left_out(place: int) -> None:
    """I9, H3: 16 of 32 different children, in the work for one group."""
    nodes = [node(f"n{n:02}") for n in range(40)]
    names = [f"{n:02}" for n in range(32)]
    of = {name: {"cpu_milli": 100 + n} for n, name in enumerate(names)}
    gangs = [child(n, **of[n], node_selector=GONE if int(n) == place else ()) for n in names]
    tree = Composite("ns/t", tuple(f"ns/{name}" for name in names), 16)
    work = Work()
    assert (
        chosen(group(*gangs, tree=tree), nodes, work) == [n for n in names if int(n) != place][:16]
    )
    assert work.used <= heads.WORK


def test_of_too_many_choices_nobody_is_told_that_none_could_start() -> None:
    """H3: 16 of 32 different children that fit alone and not together; where none fits alone, that
    is told.
    """
    nodes = [node(f"n{n:02}") for n in range(31)]
    names = [f"{n:02}" for n in range(32)]
    tree = Composite("ns/t", tuple(f"ns/{name}" for name in names), 16)
    work = Work()
    gangs = [child(name, cpu_milli=100 + n) for n, name in enumerate(names)]
    assert chosen(group(*gangs, tree=tree), nodes, work) is NotEntitled.TOO_MUCH_WORK
    assert work.used <= heads.WORK + 500
    none = [child(name, cpu_milli=100 + n, node_selector=GONE) for n, name in enumerate(names)]
    assert chosen(group(*none, tree=tree), nodes) is NotEntitled.IMPOSSIBLE
    assert chosen(group(*none[:17], *gangs[17:], tree=tree), nodes) is NotEntitled.IMPOSSIBLE


def test_a_choice_that_is_none_any_more_is_given_up() -> None:
    """H12: a child of it is gone or not ready, its minimum is another, or another child has
    started.
    """
    tree = Composite("ns/t", ("ns/a", "ns/b", "ns/c", "ns/d"), 2)
    gangs = [child(name) for name in "abcd"]
    choice = frozenset({"ns/b", "ns/d"})

    def now(*others: Gang, least: int = 2) -> list[str]:
        head = head_of(group(*others, tree=structs.replace(tree, min_children=least)), choice)
        assert head is not None
        assert head.choice in (choice, frozenset())
        return [each.id[3:] for each in head.gangs]

    assert now(*gangs) == ["b", "d"]
    assert now(*gangs, least=1) == ["a"]
    assert now(*gangs, least=3) == ["a", "b", "c"]
    assert now(*gangs[:3], structs.replace(gangs[3], min_member=3)) == ["a", "b"]
    assert now(structs.replace(gangs[0], pending=(), bound=2, satisfied=True), *gangs[1:]) == ["b"]
    assert now(
        gangs[0], structs.replace(gangs[1], pending=(), bound=2, satisfied=True), *gangs[2:]
    ) == ["d"]


@pytest.mark.parametrize(
    ("left", "answer"), [(heads.WORK - 1, None), (heads.WORK, heads.TOO_MUCH_WORK)]
)
def test_what_does_not_fit_into_the_work_of_a_plan_is_told_so(
    left: int, answer: NotReserved | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H3: with less work left the next plan answers; with all of it the group is told so."""
    empty = empty_ledger(snapshot(TWO_NODES), work=Work(left))
    (head,) = heads_of([waiting("g", 2, 8)])
    assert startable(head, empty) is head, "little work is enough for an easy group"
    monkeypatch.setattr(heads, "_fits", lambda _, ledger: ledger.work.charge(heads.WORK + 1))
    empty = empty_ledger(snapshot(TWO_NODES), work=Work(left))
    if answer is None:
        with pytest.raises(OutOfWork):
            startable(head, empty)
    else:
        assert startable(head, empty) == answer


def test_what_needs_nothing_is_no_head() -> None:
    """A group all of whose minimums are met by bound members."""
    assert needed(group(gang("ns/g", [], min_member=1, bound=1))) == ()
    assert GPU in empty_ledger(snapshot(TWO_NODES)).resources


def broken(name: str, lost: int, *, gpus: int = 4, on: str = "", **fields: Any) -> Group:
    """A group of one gang that has lost so many of four members, which wait, and one more above its
    minimum.
    """
    members = [
        pod(f"{name}-{n}", gpus=gpus, creation_s=9_000 + n, **fields) for n in range(lost + 1)
    ]
    of_gang = gang(
        f"ns/{name}",
        members,
        min_member=4,
        permitted_min=4,
        bound=4 - lost,
        satisfied=True,
        nodes=(on,) if on else (),
    )
    return group(of_gang, creation_s=100, broken=True)


def test_a_broken_group_needs_what_it_lost() -> None:
    """L5: the oldest of its waiting members, as many as it is below its minimum."""
    (lost,) = needed(broken("g", 2))
    assert [member.name for member in lost.pending] == ["g-0", "g-1"]
    assert lost.least == 2


def test_a_broken_group_is_entitled_at_once() -> None:
    """L5: also to less than a node, and whatever reservations its namespace has."""
    groups = [broken(f"g{n}", 1, gpus=1) for n in range(3)]
    limits = ReservationLimits(per_namespace=1)
    assert found(groups, limits=limits) == ["ns/g0", "ns/g1", "ns/g2"]

    # They take no place of a group that has not started.
    whole = waiting("whole", 1, 8)
    assert found([*groups, whole], limits=limits)[-1] == "ns/whole"
    assert len(found(groups, limits=ReservationLimits(reservations=2))) == 2


def test_room_is_kept_at_the_home_of_the_gang_that_lost_members() -> None:
    """L3, L5: the rest of its group runs in another rack, on nodes that no fence may have."""
    rack = "topology.kubernetes.io/rack"
    zone = {"topology.kubernetes.io/zone": "z"}
    nodes = [node(name, labels={rack: name[0], **zone}) for name in ("a0", "a1", "b0", "b1")]
    rest = gang("ns/rest", [], min_member=2, bound=2, satisfied=True, nodes=("b0", "b1"))
    lost = broken("g", 1, on="a0")

    head = at_home_of(
        head_of(structs.replace(lost, gangs=(rest, *lost.gangs))),
        empty_ledger(snapshot(nodes)),
    )
    assert head is not None
    assert head.group.topology == (rack,)
    assert head.own_nodes == {"a0", "b0", "b1"}


def test_what_a_broken_group_cannot_have_whole_it_has_in_part() -> None:
    """L4, L5: first all that it lost at home, then one member there, then the same anywhere."""
    rack = "topology.kubernetes.io/rack"
    nodes = [node("a", 4, labels={rack: "a"}), node("b", labels={rack: "b"})]
    empty = empty_ledger(snapshot(nodes))

    two = at_home_of(head_of(broken("g", 2, on="a")), empty)
    assert two is not None
    assert two.group.topology == (rack,)

    one = startable(two, empty)
    assert isinstance(one, Head)
    assert [len(lost.pending) for lost in one.gangs] == [1]
    assert one.group.topology == (rack,)

    large = at_home_of(head_of(broken("g", 1, gpus=8, on="a")), empty)
    assert large is not None
    further = startable(large, empty)
    assert isinstance(further, Head)
    assert further.group.topology == ()
