"""Q3: who must be in one domain is woken by room there, however many labels others name."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gangsched.core.topology import TopologyLevel, level
from gangsched.model.objects import Node, Shape
from gangsched.model.plan import Need
from gangsched.model.snapshot import NodeTable
from gangsched.state.group_record import NeededRoom
from gangsched.state.queueing import parked as parked_module
from gangsched.state.queueing import shape_rows as shape_rows_module
from gangsched.state.queueing.parked import Parked, VisibleRoom
from tests.builders import Records, node, shape, snapshot

SMALL = shape(1)
RACK, ROW = "topology.kubernetes.io/rack", "example.com/row"


GROUPS = Records()


def nothing_parked() -> Parked:
    """No group yet, whatever was parked before."""
    GROUPS.clear()
    return Parked(GROUPS)


def rack(name: str, *gpus: int) -> list[Node]:
    """A node of each of these numbers of free GPUs."""
    return [node(f"{name}{number}", each, labels={RACK: name}) for number, each in enumerate(gpus)]


def test_room_wakes_those_who_must_be_in_one_domain_only_where_that_domain_has_it() -> None:
    """Q3: neither room in all racks together nor that of another rack wakes a group; as many are
    woken as fit.
    """
    index = nothing_parked()
    for number in range(1_000):
        index.add(GROUPS[f"g{number:03}"], (Need(SMALL, 4, (RACK,)),), (number,), None)
    for number in range(100):
        index.add(
            GROUPS[f"h{number:03}"],
            (Need(shape(2, 1 + number), 5, (RACK,)),),
            (1_000 + number,),
            None,
        )
    torn = snapshot([*rack("a", 3, 0), *rack("b", 2, 1), *rack("c", 4, 4)])
    assert index.helped(VisibleRoom.alike(torn), {"a0", "b1"}, pods_changed=True) == set()
    assert index.looks == 0
    assert index.helped(VisibleRoom.alike(torn), {"c1"}, pods_changed=False) == {"g000", "g001"}
    assert index.looks == 1
    for group in ("g000", "g001"):
        index.tried(GROUPS[group])
    assert index.behind({NeededRoom(SMALL, (RACK,))}, VisibleRoom.alike(torn)) == {
        "g002",
        "g003",
    }, "the room is still there"
    assert index.helped(VisibleRoom.alike(torn), {"b1"}, pods_changed=False) == set(), (
        "others' room wakes nobody again"
    )


def test_domains_must_have_room_for_all_shapes_together() -> None:
    """Q3: two shapes that fit a rack each by itself, and not both, wake nobody there."""
    index, two = nothing_parked(), shape(2)
    index.add(GROUPS["g"], (Need(two, 2, (RACK,)), Need(SMALL, 3, (RACK,))), (1,), None)
    assert (
        index.helped(
            VisibleRoom.alike(snapshot([*rack("a", 4, 2), *rack("b", 8)])),
            {"a1"},
            pods_changed=True,
        )
        == set()
    )
    assert index.helped(
        VisibleRoom.alike(snapshot([*rack("a", 4, 3), *rack("b", 0)])), {"a1"}, pods_changed=True
    ) == {"g"}


def test_thousands_of_labels_cost_nothing_where_no_freed_node_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Q3: whoever must be in one domain of a label that no node has is looked at once a node gets
    it.
    """
    index, asked = nothing_parked(), list[tuple[str, ...]]()
    for number in range(2_000):
        index.add(
            GROUPS[f"g{number:04}"],
            (Need(SMALL, 4, (f"example.com/level-{number:04}",)),),
            (number,),
            None,
        )
    index.add(GROUPS["last"], (Need(SMALL, 4, (RACK,)),), (2_000,), None)
    nodes = rack("a", 3, 3)

    def counted(keys: tuple[str, ...], table: NodeTable) -> TopologyLevel:
        asked.append(keys)
        return level(keys, table)

    for module in (parked_module, shape_rows_module):
        monkeypatch.setattr(module, "level", counted)
    assert index.helped(VisibleRoom.alike(snapshot(nodes)), {"a1"}, pods_changed=True) == {"last"}
    assert index.looks == 1
    assert set(asked) <= {(RACK,)}
    for number in range(2_000):
        index.remove(GROUPS[f"g{number:04}"])
    labelled = [
        node(each.name, 3, labels={**each.labels, "example.com/level-0007": "x"}) for each in nodes
    ]
    index.add(GROUPS["g0007"], (Need(SMALL, 4, ("example.com/level-0007",)),), (7,), None)
    assert index.helped(VisibleRoom.alike(snapshot(labelled)), {"a1"}, pods_changed=True) == {
        "g0007",
        "last",
    }


@pytest.mark.parametrize("seed", range(60))
def test_nobody_sleeps_beside_room_in_a_domain(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q3: each group of which the sums of a domain with a freed node allow all needs gets
    its turn.
    """
    dice = random.Random(seed)
    monkeypatch.setattr(shape_rows_module, "SUMMED_NODES", dice.choice((0, 10, 1_000)))
    kinds = [shape(dice.randint(1, 4), dice.randrange(1, 4_000)) for _ in range(4)]
    nodes = []
    for n in range(9):
        labels = {
            RACK: dice.choice("abc"),
            **({ROW: dice.choice("xy")} if dice.random() < 0.7 else {}),
        }
        nodes.append(
            node(f"n{n}", dice.randrange(9), cpu_milli=dice.randrange(9_000), labels=labels)
        )
    levels = [(RACK,), (ROW,), (RACK, ROW), ("example.com/none",)]
    needs = [Need(kind, dice.choice((1, 1, 2, 4)), within) for kind in kinds for within in levels]
    asked = {f"g{number:02}": dice.choice(needs) for number in range(30)}
    index = nothing_parked()
    for group, need in asked.items():
        index.add(GROUPS[group], (need,), (dice.randrange(9),), None)
    freed, now = {each.name for each in dice.sample(nodes, 3)}, snapshot(nodes)
    had: set[str] = set()
    woken = index.helped(VisibleRoom.alike(now), freed, pods_changed=False)
    while woken or index.has_pending:
        had |= woken
        passed = {each for group in woken for each in index.tried(GROUPS[group])}
        woken = index.behind(passed, VisibleRoom.alike(now)) | index.next_to_wake(
            VisibleRoom.alike(now)
        )
    for group, need in asked.items():
        takes = {each.name: _takes(each, need.shape) for each in nodes}
        domain = {
            each.name: tuple(each.labels.get(key, "") for key in need.within) for each in nodes
        }
        rooms = {domain[name]: 0 for name in freed if all(domain[name])}
        for each in nodes:
            if domain[each.name] in rooms:
                rooms[domain[each.name]] += takes[each.name]
        helps = any(takes[name] for name in freed) and max(rooms.values(), default=0) >= need.count
        assert (group in had) is helps, f"seed {seed}: {group}, {need}, {rooms}"


def _takes(of: Node, kind: Shape) -> int:
    return min(dict(of.allocatable).get(name, 0) // amount for name, amount in kind.requests)


@pytest.mark.parametrize("seed", range(20))
def test_shapes_are_compared_with_the_largest_nodes_alone(seed: int) -> None:
    """Attack: 760 small pods of a tenant left as many nodes with other amounts, and thousands of
    shapes were compared with each in every turn.
    """
    dice = random.Random(seed)
    columns = np.array([[dice.randrange(40) for _ in range(500)] for _ in range(3)])
    kept = [*shape_rows_module._largest(columns)]
    assert len(kept) <= shape_rows_module.MOST_COLUMNS
    for _ in range(200):
        asked = np.array([dice.randrange(41) for _ in range(3)])
        fits_one = any((asked <= column).all() for column in columns.T)
        assert fits_one == any((asked <= column).all() for column in kept)


def test_of_thousands_of_nodes_that_exceed_each_other_each_stands_for_several() -> None:
    """Whatever fits is found; that more seems to fit is found out when it is looked at."""
    columns = np.array([[number, 5_000 - number] for number in range(5_000)]).T
    kept = [*shape_rows_module._largest(columns)]
    assert len(kept) <= shape_rows_module.MOST_COLUMNS
    for column in columns.T:
        assert any((column <= each).all() for each in kept)
    assert not any((np.array([2_500, 2_700]) <= each).all() for each in kept)
