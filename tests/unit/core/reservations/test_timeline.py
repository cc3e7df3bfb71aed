"""Who takes room until when: the columns that reservations are found by."""

from __future__ import annotations

import math
import random

import numpy as np
from msgspec import structs

from gangsched.core.reservations.timeline import OccupantColumns, Timeline
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Placement
from gangsched.model.reservation import Occupant
from gangsched.model.snapshot import Ints
from tests.builders import GPU, node, pod, running, snapshot

FOUR = [node(name) for name in "abcd"]


def on(
    name: str,
    gpus: int,
    *,
    ends: float = math.inf,
    started: float = 5,
    cpu_milli: int = 0,
    group: str = "",
) -> Occupant:
    """A pod on a node."""
    there = running(pod(f"on-{name}", gpus=gpus, cpu_milli=cpu_milli), name)
    return Occupant(there, name, started, ends, group)


OCCUPANTS = [
    on("a", 4, ends=19, started=3),
    on("b", 2),
    on("a", 3, ends=15, started=7, cpu_milli=9),
]


def ledger() -> Ledger:
    """The four nodes with the occupants on them."""
    return Ledger(snapshot(FOUR, [(each.pod, each.node) for each in OCCUPANTS]))


def gpus(columns: Ints) -> list[int]:
    """The GPUs of these columns."""
    return [int(count) for count in columns[ledger().resources[GPU]]]


def test_in_the_order_of_their_ends() -> None:
    """What the first so many take of each node, and how many have ended at a time,
    itself included.
    """
    timeline = Timeline.of(OCCUPANTS, ledger())
    assert [timeline.ended(at_s) for at_s in (14, 15, 18, 19, 10**9)] == [0, 1, 1, 2, 2]
    assert [gpus(timeline.freed(slice(0, last))) for last in (0, 1, 2, 3)] == [
        [0, 0, 0, 0],
        [3, 0, 0, 0],
        [7, 0, 0, 0],
        [7, 2, 0, 0],
    ]
    assert gpus(timeline.freed(slice(1, 3))) == [4, 2, 0, 0]
    assert timeline.freed(slice(0, 3), rows=[]).sum() == 0
    assert timeline.distinct_ends_s(math.inf).tolist() == [15, 19]
    assert timeline.distinct_ends_s(18).tolist() == [15]


def test_the_longest_running_pod_of_a_node() -> None:
    """When it started; never on an empty node."""
    assert Timeline.of(OCCUPANTS, ledger()).longest_started_s().tolist() == [3, 5, np.inf, np.inf]


def test_release_gives_room_and_pods_back_and_a_rollback_takes_them_again() -> None:
    """Room for a shape follows; so does who is counted on a node."""
    on_it, kind = ledger(), pod("x", gpus=1).shape
    timeline, before = Timeline.of(OCCUPANTS, on_it), on_it.free.copy()
    assert on_it.room(kind).tolist() == [1, 6, 8, 8]
    checkpoint = on_it.checkpoint()
    timeline.release(2, on_it)
    assert on_it.room(kind).tolist() == [8, 6, 8, 8]
    timeline.release(0, on_it)
    on_it.rollback(checkpoint)
    assert on_it.room(kind).tolist() == [1, 6, 8, 8]
    assert (on_it.free == before).all()


def test_a_reservation_runs_from_its_time_on() -> None:
    """Its pods, one of them of a shape that nobody had, end together after those that end
    by then.
    """
    on_it = ledger()
    timeline = Timeline.of(OCCUPANTS, on_it)
    placements = [
        Placement(pod("large", gpus=8), "c"),
        Placement(structs.replace(pod("like"), uid="like"), "d"),
    ]
    both = timeline.with_reserved(placements, 15, 17)
    assert both.ends_s.tolist() == [15, 17, 17, 19, math.inf]
    assert gpus(both.freed(slice(0, 4))) == [7, 0, 8, 1]
    assert both.longest_started_s().tolist() == [3, 5, 15, 15]
    assert timeline.ends_s.tolist() == [15, 19, math.inf]


def test_columns_read_only_the_nodes_that_changed() -> None:
    """Occupants come, go and are expected to end at another time; each time the columns are as if
    made anew.
    """
    dice, columns, on_it = random.Random(3), OccupantColumns(), ledger()
    by_node: dict[str, tuple[Occupant, ...]] = {}
    for _ in range(50):
        for name in dice.sample("abcdx", dice.randint(0, 3)):
            by_node = dict(by_node)
            if dice.random() < 0.2:
                by_node.pop(name, None)
            else:
                by_node[name] = tuple(
                    on(name, dice.randint(1, 4), ends=dice.randint(1, 9), group=dice.choice("gh"))
                    for _ in range(3)
                )
        found = columns.timeline(by_node, on_it)
        anew = Timeline.of([each for there in by_node.values() for each in there], on_it)
        assert found.ends_s.tolist() == anew.ends_s.tolist()
        assert [gpus(found.freed(slice(found.ended(end)))) for end in range(10)] == [
            gpus(anew.freed(slice(anew.ended(end)))) for end in range(10)
        ]
        of_others = found.of_others("g")
        others = [each for there in by_node.values() for each in there if each.group != "g"]
        assert of_others.ends_s.tolist() == Timeline.of(others, on_it).ends_s.tolist()


def test_columns_follow_the_table_of_nodes() -> None:
    """Nodes that come before others change the place of all."""
    columns, by_node = OccupantColumns(), {"b": (on("b", 2, ends=1),)}
    assert gpus(columns.timeline(by_node, ledger()).freed(slice(0, 1))) == [0, 2, 0, 0]
    later = Ledger(snapshot([node(name) for name in "0abcd"]))
    assert gpus(columns.timeline(by_node, later).freed(slice(0, 1))) == [0, 0, 2, 0, 0]
