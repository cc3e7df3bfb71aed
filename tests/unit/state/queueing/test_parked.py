"""What an event costs, and whom it wakes: semantics Q3; and that what was told of the room does not
stay false: E1.
"""

from __future__ import annotations

import random

import pytest

from gangsched.core.filter import static_fit
from gangsched.model.inter_pod import InterPodConstraints, Requirement, Spread
from gangsched.model.objects import Node, Shape
from gangsched.model.plan import Need
from gangsched.model.protocol import SetPodGroupStatus
from gangsched.model.snapshot import Ints, NodeTable, Snapshot, StaticFit
from gangsched.state.group_record import NeededRoom, Stay
from gangsched.state.queueing import parked as parked_module
from gangsched.state.queueing import watched as watched_module
from gangsched.state.queueing.parked import Parked, VisibleRoom
from gangsched.state.queueing.queue import Queue
from gangsched.state.queueing.shape_rows import ShapeRows
from tests.builders import GPU, Records, members, node, pod, pod_group, shape, snapshot
from tests.world import World

SMALL, LARGE = shape(1), shape(8)


GROUPS = Records()


def nothing_parked() -> Parked:
    """No group yet, whatever was parked before."""
    GROUPS.clear()
    return Parked(GROUPS)


def parked(number: int, count: int) -> Parked:
    """That many identical groups, in order of their names; each needs `count` pods of `SMALL`."""
    index = nothing_parked()
    for each in range(number):
        index.add(GROUPS[f"g{each:05}"], (Need(SMALL, count),), (each,), None)
    return index


def test_an_event_costs_a_look_for_each_shape_that_fits() -> None:
    """Q3: not one for each of 10,000 groups, and none for shapes of which nothing fits where room
    grew.
    """
    index = parked(10_000, 4)
    index.add(GROUPS["other"], (Need(LARGE, 1),), (0,), None)
    assert (
        index.helped(VisibleRoom.alike(snapshot([node("a", 3)])), {"a"}, pods_changed=True) == set()
    )
    assert index.looks == 0
    assert index.helped(
        VisibleRoom.alike(snapshot([node("a", 4), node("b", 8)])), {"a"}, pods_changed=True
    ) == {
        "g00000",
        "g00001",
        "g00002",
    }
    assert index.looks == 1


def test_of_thousands_of_shapes_a_few_are_looked_at() -> None:
    """Q3: an event that helps none costs no look; one that helps all wakes the first, and nobody
    once room is spent.
    """
    kinds = [shape(1, 1_000 + number) for number in range(3_000)]
    index = nothing_parked()
    for number, kind in enumerate(kinds):
        index.add(GROUPS[f"g{number:04}"], (Need(kind, 4),), (number,), None)
    full, free = snapshot([node("a", 0), node("b", 1)]), snapshot([node("a", 4), node("b", 1)])
    assert index.helped(VisibleRoom.alike(full), {"a", "b"}, pods_changed=True) == set()
    assert index.looks == 0
    assert index.helped(VisibleRoom.alike(free), {"a"}, pods_changed=False) == {
        f"g000{number}" for number in range(4)
    }
    assert index.looks == 4
    index.remove(GROUPS["g0000"])
    assert index.next_to_wake(VisibleRoom.alike(full)) == set()
    assert not index.has_pending
    assert index.looks == 4


def test_thousands_of_freed_nodes_are_not_looked_up_for_each_shape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Q3: as when something changes on all nodes; the shapes are woken as for any of them."""
    names = [f"n{number:04}" for number in range(parked_module.MOST_FREED + 1)]
    free = snapshot([node(name, 1) for name in names])
    index = nothing_parked()
    for number in range(40):
        index.add(GROUPS[f"g{number:04}"], (Need(shape(1, 1_000 + number), 1),), (number,), None)

    looked_up = [0]
    indices = parked_module._indices

    def counted(of: Snapshot, nodes: set[str]) -> Ints:
        looked_up[-1] += len(nodes)
        return indices(of, nodes)

    monkeypatch.setattr(parked_module, "_indices", counted)
    woken = index.helped(VisibleRoom.alike(free), set(names), pods_changed=False)
    while index.has_pending:
        looked_up.append(0)
        woken |= index.next_to_wake(VisibleRoom.alike(free))

    assert len(woken) == 40
    assert max(looked_up) <= 2 * len(names)


def test_another_order_of_thousands_of_shapes_is_made_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """H9: when the first reservation comes or the last one goes; no shape is moved by itself."""
    index = nothing_parked()
    for number in range(40):
        index.add(GROUPS[f"g{number:04}"], (Need(shape(1, 1_000 + number), 4),), (number,), None)

    moved: list[NeededRoom] = []
    monkeypatch.setattr(ShapeRows, "put", lambda rows, room, least, first: moved.append(room))
    index.rerank(lambda group: (-int(group[1:]),), ())
    assert moved == []
    woken = index.helped(VisibleRoom.alike(snapshot([node("a", 4)])), {"a"}, pods_changed=False)
    assert woken == {f"g{number:04}" for number in range(36, 40)}


def test_another_order_is_also_that_of_groups_that_need_the_same() -> None:
    """H9: of ten that need the same room, the last ones are the first then, and leave in order."""
    index = parked(10, 4)
    index.rerank(lambda group: (-int(group[1:]),), ())
    index.remove(GROUPS["g00008"])
    woken = index.helped(VisibleRoom.alike(snapshot([node("a", 8)])), {"a"}, pods_changed=False)
    assert woken == {"g00009", "g00007"}


def test_parking_a_group_costs_the_same_however_many_shapes_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Q3: one need is watched for thousands, and the room of two shapes at most is looked at."""
    needs, looks = tuple(Need(shape(1, 1_000 + number), 2) for number in range(2_000)), 0
    index, picture = parked(0, 1), snapshot([node("a", 8)])

    def counted(of: Shape, table: NodeTable) -> StaticFit:
        nonlocal looks
        looks += 1
        return static_fit(of, table)

    monkeypatch.setattr(parked_module, "static_fit", counted)
    index.add(GROUPS["g"], needs, (1,), picture)
    index.add(GROUPS["lacks"], (Need(LARGE, 2), *needs), (2,), picture)
    assert looks <= 3
    assert index.helped(VisibleRoom.alike(picture), {"a"}, pods_changed=False) == {"g"}


@pytest.mark.parametrize("seed", range(40))
def test_a_group_of_many_shapes_sleeps_no_longer_than_one_that_is_watched_in_full(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q3: whatever grows, a group whose needs are watched one by one is woken no sooner than if one
    need is.
    """
    dice = random.Random(seed)
    kinds = [
        shape(
            dice.randrange(4),
            dice.randrange(1, 9_000),
            node_selector=dice.choice(((), (("k", "x"),))),
        )
        for _ in range(5)
    ]
    needs = tuple(Need(kind, dice.choice((0, 0, 1, 3))) for kind in kinds)
    nodes = {name: _node(name, dice) for name in "abc"}
    for _ in range(20):
        freed, pods_changed = set(dice.sample("abc", 2)), dice.random() < 0.5
        before = snapshot(nodes.values())
        after = snapshot({**nodes, **{name: _node(name, dice) for name in freed}}.values())
        woken = []
        for most in (1, 64):
            monkeypatch.setattr(watched_module, "MOST_WATCHED", most)
            index = nothing_parked()
            index.add(GROUPS["g"], needs, (1,), before)
            woken.append(
                bool(index.helped(VisibleRoom.alike(after), freed, pods_changed=pods_changed))
            )
        assert woken[0] or not woken[1], f"seed {seed}"


def _node(name: str, dice: random.Random) -> Node:
    """A small node of one of two kinds."""
    return node(
        name, dice.randrange(5), cpu_milli=dice.randrange(9_000), labels={"k": dice.choice("xy")}
    )


def test_everybody_whom_room_helps_gets_a_turn() -> None:
    """Q3: where the room stays, all shapes are woken, in order and in ever larger numbers."""
    index = nothing_parked()
    for number in range(1_000):
        index.add(GROUPS[f"g{number:04}"], (Need(shape(1, 1_000 + number), 4),), (number,), None)
    free = snapshot([node("a", 8)])
    steps = [index.helped(VisibleRoom.alike(free), {"a"}, pods_changed=False)]
    while index.has_pending:
        steps.append(index.next_to_wake(VisibleRoom.alike(free)))
    assert [len(each) for each in steps[:4]] == [4, 8, 16, 32]
    assert [group for step in steps for group in sorted(step)] == [
        f"g{number:04}" for number in range(1_000)
    ]


@pytest.mark.parametrize(("nodes", "looks"), [(1, 200), (5_000, 50)])
def test_what_was_told_is_reviewed_in_pieces(nodes: int, looks: int) -> None:
    """E1: with thousands of shapes, a few are looked at in a turn, the fewer the more nodes, and
    each has its turn.
    """
    others = [node(f"n{number}", 0) for number in range(nodes - 1)]
    index, before, now = (
        nothing_parked(),
        snapshot([node("a", 0), *others]),
        snapshot([node("a", 1), *others]),
    )
    for number in range(1_000):
        index.add(GROUPS[f"g{number:04}"], (Need(shape(1, 1_000 + number), 4),), (number,), before)
    found = index.told_falsely(now, 500)
    assert index.looks == len(found) == looks
    assert not index.is_reviewed
    while not index.is_reviewed:
        found += index.told_falsely(now, 500)
    assert len(found) == len(set(found)) == 1_000


def test_a_gang_of_two_shapes_sleeps_until_all_that_it_requires_has_room() -> None:
    """Q3: pods of the small shape fit everywhere; 2,000 gangs lack room for their large one, and
    none is looked at.
    """
    index = nothing_parked()
    for number in range(2_000):
        index.add(GROUPS[f"g{number:04}"], (Need(SMALL, 3), Need(LARGE, 1)), (number,), None)
    small = [node(f"n{number}", 2) for number in range(10)]
    assert index.helped(VisibleRoom.alike(snapshot(small)), {"n0"}, pods_changed=True) == set()
    assert index.helped(
        VisibleRoom.alike(snapshot([*small, node("new", 8)])), {"new"}, pods_changed=True
    ) >= {"g0000"}


def test_room_of_any_kind_wakes_those_who_only_lack_an_amount() -> None:
    """P4: `minResources` adds up over nodes, also over those on which no pod of the gang fits."""
    index = nothing_parked()
    index.add(GROUPS["g"], (Need(SMALL, 0),), (0,), None)
    assert index.helped(
        VisibleRoom.alike(snapshot([node("a", 0), node("b", 1)])), {"a"}, pods_changed=False
    ) == {"g"}


def test_freed_room_wakes_as_many_as_fit_in_order() -> None:
    """Q3: waking stops when the room is spent; smaller needs behind use what is left of it."""
    index = parked(10_000, 2)
    index.add(GROUPS["needs three"], (Need(SMALL, 3),), (-1,), None)
    index.add(GROUPS["needs one"], (Need(SMALL, 1),), (99_999,), None)
    assert index.helped(VisibleRoom.alike(snapshot([node("a", 8)])), {"a"}, pods_changed=False) == {
        "needs three",
        "g00000",
        "g00001",
        "needs one",
    }


def test_those_behind_are_woken_when_the_first_are_refused_again() -> None:
    """Q3: room that the first cannot use wakes the next ones, in batches that double, until all
    were asked.
    """
    queue = Queue(Records())
    queue.ready(0.0)
    small = snapshot([node("a", 4)])
    for each in range(1_000):
        queue.park(f"g{each:05}", (Need(SMALL, 4),), rank=(each,))
    queue.wake(VisibleRoom.alike(small), {"a"})
    asked: list[set[str]] = []
    while woken := queue.ready(0.0):
        asked.append(set(woken))
        for group in woken:
            queue.park(group, (Need(SMALL, 4),), rank=(int(group[1:]),))
        queue.wake_behind(VisibleRoom.alike(small))
    assert [len(each) for each in asked] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 489]
    assert len(set.union(*asked)) == 1_000


def test_a_head_is_woken_only_where_all_that_it_requires_fits() -> None:
    """Q3, H12: a head of one large pod and two small ones is not tried for room of the small ones
    alone.
    """
    index = nothing_parked()
    index.add(GROUPS["head"], (Need(LARGE, 1), Need(SMALL, 2)), (0,), None)
    heads = frozenset({"head"})
    assert (
        index.helped(
            VisibleRoom.alike(snapshot([node("a", 4), node("b", 4)])),
            {"a"},
            pods_changed=False,
            heads=heads,
        )
        == set()
    )
    assert index.helped(
        VisibleRoom.alike(snapshot([node("a", 4), node("b", 8)])),
        {"a"},
        pods_changed=False,
        heads=heads,
    ) == {"head"}


def test_nobody_is_woken_for_room_that_reservations_keep_from_him() -> None:
    """H8, Q3: one of 10 s was kept off; of 10,000 behind only the one of 5 s, and heads, may use
    the room.
    """
    index = nothing_parked()
    for rank, (group, run_s) in enumerate(
        [("first", 10.0), *((f"g{n}", 10.0 + n) for n in range(10_000)), ("short", 5)]
    ):
        index.add(GROUPS[group], (Need(SMALL, 1),), (rank,), None, stay=Stay(run_s))
    now = snapshot([node("a", 3)])
    assert index.helped(
        VisibleRoom.alike(now), {"a"}, pods_changed=False, heads=frozenset({"g9000"})
    ) == {
        "first",
        "g0",
        "g1",
        "g9000",
    }
    assert index.tried(GROUPS["first"], kept_from=(1, Stay(10.0))) == [NeededRoom(SMALL)]
    assert index.behind({NeededRoom(SMALL)}, VisibleRoom.alike(now)) == {"short"}
    assert "g0" in index.helped(VisibleRoom.alike(now), {"a"}, pods_changed=False), (
        "more room is another matter"
    )


def test_a_head_is_woken_for_room_that_is_kept_for_it() -> None:
    """H12, Q3: others were kept off by the reservation that it has from the same plan."""
    index = nothing_parked()
    for rank, group in enumerate(("first", "second", "head")):
        index.add(GROUPS[group], (Need(SMALL, 1),), (rank,), None, stay=Stay(10.0))
    now = snapshot([node("a", 1)])
    assert index.helped(VisibleRoom.alike(now), {"a"}, pods_changed=False) == {"first"}
    assert index.tried(GROUPS["first"], kept_from=(1, Stay(10.0))) == [NeededRoom(SMALL)]
    assert index.behind({NeededRoom(SMALL)}, VisibleRoom.alike(now), heads=frozenset({"head"})) == {
        "head"
    }


def test_without_attendance_groups_are_only_woken() -> None:
    """A simulation: no sweep every minute, and nothing is told anew."""
    for unattended, swept in ((True, set()), (False, {"g"})):
        queue = Queue(Records(), unattended=unattended)
        queue.ready(0.0)
        queue.park("g", (Need(SMALL, 1),), rank=(0,), snapshot=snapshot([node("a", 0)]))
        queue.room_changed(1.0)
        assert queue.review_is_due(100.0) is not unattended
        assert queue.ready(1_000.0) == swept


def test_those_behind_sleep_when_the_first_used_the_room() -> None:
    """Q3: it is spent."""
    queue = Queue(Records())
    queue.ready(0.0)
    for each in range(10):
        queue.park(f"g{each}", (Need(SMALL, 4),), rank=(each,))
    queue.wake(VisibleRoom.alike(snapshot([node("a", 4)])), {"a"})
    assert queue.ready(0.0) == {"g0"}
    queue.park("g0", ())
    queue.wake_behind(VisibleRoom.alike(snapshot([node("a", 0)])))
    assert queue.ready(0.0) == set()


def test_those_behind_are_woken_for_what_the_first_left() -> None:
    """Q3: it started in room that was promised to it alone, and what it was woken for is still
    there.
    """
    queue = Queue(Records())
    queue.ready(0.0)
    for each in range(10):
        queue.park(f"g{each}", (Need(SMALL, 4),), rank=(each,))
    free = snapshot([node("a", 4)])
    queue.wake(VisibleRoom.alike(free), {"a"})
    queue.park("g0", ())
    queue.wake_behind(VisibleRoom.alike(free))
    assert queue.ready(0.0) == {"g1", "g2"}


def test_a_larger_group_is_not_passed_over_for_smaller_ones_behind_it() -> None:
    """Q3: beside the first there was no room for it, and the first needed none after all."""
    queue = Queue(Records())
    queue.ready(0.0)
    for rank, count in enumerate((1, 2, 1)):
        queue.park(f"g{rank}", (Need(SMALL, count),), rank=(rank,))
    free = VisibleRoom.alike(snapshot([node("a", 2)]))
    queue.wake(free, {"a"})
    assert queue.ready(0.0) == {"g0", "g2"}
    for rank in (0, 2):
        queue.park(f"g{rank}", (Need(SMALL, 1),), rank=(rank,))
    queue.wake_behind(free)
    assert queue.ready(0.0) == {"g1"}


@pytest.mark.parametrize("seed", range(40))
def test_all_that_fit_are_woken_once_where_nobody_uses_the_room(seed: int) -> None:
    """Q3: whatever is asked of the same room, and whatever else those ask who ask for it."""
    dice = random.Random(seed)
    queue = Queue(Records())
    queue.ready(0.0)
    needs = {}
    for number in range(60):
        needs[f"g{number:02}"] = tuple(
            Need(of, dice.choice((0, 1, 1, 2, 3, 5)))
            for of in dice.choice(((SMALL,), (SMALL,), (shape(2),), (SMALL, shape(2))))
        )
    order = {name: (dice.random(),) for name in needs}
    for name, asked in needs.items():
        queue.park(name, asked, rank=order[name])

    free = VisibleRoom.alike(snapshot([node("a", 4)]))
    times = dict.fromkeys(needs, 0)
    queue.wake(free, {"a"})
    while woken := queue.ready(0.0):
        for name in woken:
            times[name] += 1
            queue.park(name, needs[name], rank=order[name])
        if queue.parked.has_pending:
            queue.wake_pending(free)
        queue.wake_behind(free)

    fits = {
        name: all(need.count * dict(need.shape.requests)[GPU] <= 4 for need in asked)
        for name, asked in needs.items()
    }
    assert {name for name, number in times.items() if number} == {
        name for name in needs if fits[name]
    }
    assert max(times.values()) <= 2  # once for each shape that it asks for


def test_a_woken_group_that_goes_away_passes_the_room_on() -> None:
    """I6, Q3: it was woken in vain, too."""
    groups = Records()
    queue = Queue(groups)
    queue.ready(0.0)
    for each in range(2):
        queue.park(f"g{each}", (Need(SMALL, 4),), rank=(each,))
    free = snapshot([node("a", 4)])
    queue.wake(VisibleRoom.alike(free), {"a"})
    queue.drop(groups["g0"])
    queue.wake_behind(VisibleRoom.alike(free))
    assert queue.ready(0.0) == {"g1"}


def test_four_freed_gpus_try_one_gang_of_many() -> None:
    """Q3: with the whole state around it: a hundred gangs wait, room for one comes, one is tried
    and starts.
    """
    world = World(node("a", 4))
    (old,) = world.create(pod("old", gpus=4, node_name="a"))
    for number in range(100):
        world.create(members(f"g{number:03}", 4, creation_s=100 + number))
    world.told()
    before, tried = len(world.plans), sum(each.pods_tried for each in world.plans)
    world.delete(old)
    world.settle()
    assert set(world.bound()) == {f"g000-{index}" for index in range(4)}
    assert sum(each.pods_tried for each in world.plans) - tried <= 8
    assert len(world.plans) - before <= 2


@pytest.mark.parametrize("how", ["emptied of a pod", "taken away"])
def test_a_spread_domain_that_changes_wakes_at_once(how: str) -> None:
    """Q3: zone b was full and the emptiest, so that zone a was refused; no node that the pod may
    use was freed.
    """
    web = {"app": "web"}
    even = Spread(topology_key="zone", max_skew=1, selector=(Requirement("app", "In", ("web",)),))
    of = shape(1, inter_pod=InterPodConstraints(spread=(even,)))
    world = World(node("a", 8, labels={"zone": "a"}), node("b", 1, labels={"zone": "b"}))
    there, _ = world.create(
        pod("there", node_name="a", labels=web), pod("filler", node_name="b", scheduler_name="x")
    )
    world.create(pod("p", of=of, labels=web))
    assert "p" not in world.told().bound()
    now_s = world.now_s
    if how == "taken away":
        world.remove_node("b")
    else:
        world.delete(there)
    assert world.settle().bound()["p"] == "a"
    assert world.now_s == now_s


def facts(world: World, name: str) -> str:
    """What the PodGroup says of being scheduled."""
    (condition,) = [
        each for each in world.status(name)["conditions"] if each["type"] == "Scheduled"
    ]
    return str(condition["message"])


def test_room_that_opens_and_does_not_suffice_is_told_within_five_seconds() -> None:
    """E1: and room that closes, too; never is what stands there older."""
    world = World(*(node(f"n{number}", 4) for number in range(4)))
    world.declare(pod_group("g", 4))
    others = world.create(
        [pod(f"o{number}", gpus=4, node_name=f"n{number}") for number in range(4)]
    )
    world.create(members("g", 4, gpus=4, pod_group=True))
    world.advance(20)
    assert "no eligible node has 4 free" in facts(world, "g")
    for number in range(3):
        world.delete(others[number])
        world.advance(5)
        fit = f"{number + 1} {'fit' if number else 'fits'}"
        free = f"no eligible node has 4 free. {4 * number + 4} of"
        assert f"{fit}, then {free}" in facts(world, "g")
    world.create(pod("other", gpus=4, node_name="n0"))
    world.advance(5)
    assert "2 fit" in facts(world, "g")


def test_nothing_is_looked_at_or_written_for_what_is_still_true() -> None:
    """E1: pods that come and go elsewhere, and the safety net, change nothing that a gang
    is told.
    """
    world = World(node("a", 1), node("b", 0))
    world.declare(pod_group("g", 2))
    world.create(members("g", 2, pod_group=True))
    world.advance(20)
    written = len([each for each in world.reports if isinstance(each, SetPodGroupStatus)])
    for number in range(100):
        world.delete(*world.create(pod(f"p{number}", gpus=0, cpu_milli=100, node_name="b")))
        world.advance(2)
    assert len([each for each in world.reports if isinstance(each, SetPodGroupStatus)]) == written


def test_who_is_kept_from_room_keeps_from_it_only_those_who_pass_no_more() -> None:
    """H8: higher priority passes freely, broken groups too; a shorter one, or one that needs less,
    may pass.
    """
    groups = Records()
    queue = Queue(groups)
    queue.ready(0.0)
    kept, small = Stay(100.0, 1), snapshot([node("a", 8)])
    others = {
        "as long": (4, kept),
        "longer": (5, Stay(200.0, 0)),
        "shorter": (4, Stay(99.0, 1)),
        "less": (3, kept),
        "higher": (4, Stay(100.0, 2)),
        "broken": (4, Stay(100.0, 1, "broken")),
    }
    queue.park("first", (Need(SMALL, 4),), rank=(0,))
    for rank, (group, (count, stay)) in enumerate(others.items(), 1):
        queue.park(group, (Need(SMALL, count),), rank=(rank,), stay=stay)
    queue.parked.helped(VisibleRoom.alike(snapshot([node("a", 4)])), {"a"}, pods_changed=False)
    queue.parked.tried(groups["first"], kept_from=(4, kept))
    woken: set[str] = set()
    for _ in range(5):
        queue.passed.add(NeededRoom(SMALL))
        queue.wake_behind(VisibleRoom.alike(small))
        woken |= queue.ready(0.0)
    assert woken == {"shorter", "less", "higher", "broken"}


def test_room_that_a_plan_takes_wakes_nobody_else() -> None:
    """Q3: of a hundred groups of different shapes, those behind the one that takes all of the room
    sleep on.
    """
    there = World(node("n", 4))
    taken = there.create(members("taken", 4))
    there.settle()
    for n in range(100):
        there.create(members(f"g{n:03}", 4, of=shape(1, 1_000 + n), creation_s=n + 1))
    there.settle()
    there.plans.clear()
    there.delete(*taken)
    there.settle()
    assert {f"g000-{n}" for n in range(4)} <= set(there.bound())
    assert sum(len(each.verdicts) for each in there.plans) <= 4


def test_a_full_node_that_opens_wakes_a_group_of_which_another_gang_can_hold() -> None:
    """Q3: the large gang of a NonStrict group fits the empty cluster with a closed node only, which
    is full; the small one, which may not use that node, is held elsewhere as soon as it opens.
    """
    closed = node("c", 8, unschedulable=True, labels={"pool": "large"})
    world = World(node("a", 8, labels={"pool": "small"}), closed)
    world.create(pod("other", gpus=8, node_name="c"))
    groups = ["ns/g", "ns/h"]
    world.create(
        members(
            "g", 1, mode="NonStrict", groups=groups, of=shape(8, node_selector=(("pool", "large"),))
        ),
        members(
            "h", 1, mode="NonStrict", groups=groups, of=shape(1, node_selector=(("pool", "small"),))
        ),
    )
    world.settle()
    assert world.held() == {}
    world.add_nodes(node("c", 8, labels={"pool": "large"}))
    world.settle()
    assert world.held() == {"h-0": "a"}
