"""Groups that the empty cluster has no room for: when nodes that changed make them heads again
(H3).
"""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.model.reservation import NotEntitled
from gangsched.state.reserving import ineligible
from gangsched.state.reserving.news import takes_one_empty
from tests.builders import members, node, pod, running, shape
from tests.unit.state.reserving.test_reservations import LIMITS, full, gang_of, standing
from tests.world import EPOCH_S, World


def test_a_node_that_offers_more_makes_possible_what_was_not() -> None:
    """A device plugin that starts late: the group has a reservation, though the grown node is
    taken.
    """
    there, _ = full(2)
    gang_of(there, "big", 2, 16)
    there.settle()
    assert standing(there) == []
    there.add_nodes(*(node(f"n{n:02}", gpus=16) for n in range(2)))
    there.settle()
    assert standing(there) == [("ns/big", 101.0, "01")]


def looked_at(there: World) -> int:
    """How many groups plans have said of that they can never start."""
    answers = [
        each.reservations.not_reserved for each in there.plans if each.reservations is not None
    ]
    return sum(why.why is NotEntitled.IMPOSSIBLE for each in answers for why in each.values())


def flap(there: World) -> None:
    """For forty seconds a node offers one GPU less, and again what it did, a second each."""
    for gpus in (7, 8) * 20:
        there.add_nodes(node("n00", gpus=gpus))
        there.advance(1)


def test_a_node_that_offers_more_and_less_all_day_costs_nothing() -> None:
    """A device plugin or koordlet writes allocatable again and again; none of their pods fits on
    such a node.
    """
    there, _ = full(2)
    for n in range(50):
        gang_of(there, f"big-{n:02}", 2, 16)
    there.settle()
    before = looked_at(there)
    assert before >= 50
    flap(there)
    assert looked_at(there) == before


def test_groups_are_compared_with_nodes_that_change_twice_a_minute() -> None:
    """Their pods would fit on the node that flaps; and what is possible after a change is found out
    in the end.
    """
    there, _ = full(2)
    for n in range(50):
        gang_of(there, f"wide-{n:02}", 4)
    there.settle()
    before = looked_at(there)
    flap(there)
    assert 50 <= looked_at(there) - before <= 100
    there.add_nodes(node("n02"), node("n03"))
    there.create(
        *(running(pod(f"late-{n}", gpus=8, scheduler_name="other"), f"n{n:02}") for n in (2, 3))
    )
    there.settle()
    assert not there.state.reservations.waiting, "they were compared a moment ago"
    there.advance(31)
    assert there.state.reservations.waiting


def test_thousands_of_shapes_are_compared_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn looks at some of the shapes, the turns at once after it at the others, and all that
    became possible are candidates in the end.
    """
    there, _ = full(2)
    for n in range(20):
        there.create(members(f"big-{n:02}", 2, of=shape(16, 10 + n)))

    there.settle()
    before = looked_at(there)
    assert before >= 20

    compared: list[int] = [0]
    takes = takes_one_empty

    def counted(*arguments: Any) -> bool:
        compared[-1] += 1
        return takes(*arguments)

    monkeypatch.setattr(ineligible, "takes_one_empty", counted)
    monkeypatch.setattr(ineligible, "looks_at_once", lambda snapshot: 3)
    there.now_s += ineligible.COMPARED_EVERY_S
    there.add_nodes(node("n02", gpus=16))
    while compared[-1] or len(compared) == 1:
        compared.append(0)
        there.turn()

    assert max(compared) == 3
    assert sum(compared) == 20
    assert looked_at(there) == before + 20


def test_facts_that_are_counted_are_kept_of_candidates_only() -> None:
    """That a namespace has its number of reservations is forgotten at each event: once for
    thousands of groups.
    """
    there, _ = full(2)
    there.create(
        pod(f"w{number:02}", of=shape(8, 100 + number), creation_s=int(EPOCH_S))
        for number in range(60)
    )
    there.settle()
    told = set().union(
        *(each.reservations.not_reserved for each in there.plans if each.reservations is not None)
    )
    assert len(told) > LIMITS.reservations
    kept = [
        each.id for each in there.state.registry.groups.values() if each.not_reserved is not None
    ]
    assert len(kept) <= LIMITS.reservations, kept
