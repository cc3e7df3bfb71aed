"""What is grouped anew with gangs that changed: in turns, whoever edits them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gangsched.api import keys
from gangsched.model.protocol import Applied
from gangsched.state.group_record import GroupRecord
from gangsched.state.groups import AT_A_TIME, GROUPED_AT_A_TIME, Registry
from gangsched.state.parents import MOST_GANGS
from tests.builders import members, node, pod, pod_group
from tests.unit.test_loop import Bench

TREES, CHILDREN = 20, 30
MOST_GROUPED = GROUPED_AT_A_TIME + CHILDREN + 1
"""Gangs that one turn groups anew, with the rest of the last tree: 20 trees of 100 took 129 ms."""


class Grouped(Bench):
    """A loop that counts the gangs that are grouped anew, turn by turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.number = 0
        regroup: Callable[[Registry, set[str]], dict[str, GroupRecord]] = Registry._regroup

        def counted(registry: Registry, gang_ids: set[str]) -> dict[str, GroupRecord]:
            self.number += len(gang_ids)
            return regroup(registry, gang_ids)

        monkeypatch.setattr(Registry, "_regroup", counted)

    def turns(self) -> Iterator[int]:
        """Take turns until nothing is left to do; the gangs that each grouped anew."""
        for _ in range(1_000):
            self.number = 0
            is_busy = self.loop.turn()
            yield self.number
            if not is_busy and not self.state.registry.is_behind:
                return

        raise AssertionError("no rest after 1,000 turns")

    def rest(self) -> None:
        """Take turns until nothing is left to do."""
        for _ in self.turns():
            pass


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Grouped:
    """Trees of children that have no room."""
    made = Grouped(monkeypatch)
    made.loop.inbox(Applied(node("a", 8)))
    for tree in range(TREES):
        for child in range(CHILDREN):
            name = f"t{tree}-{child}"
            for each in members(name, 1, gpus=9, parent=f"t{tree}", namespace="many"):
                made.loop.inbox(Applied(each))

    made.rest()
    return made


def declare(bench: Bench, least: int) -> None:
    """The parents of all trees are edited."""
    stated = ((keys.MIN_CHILDREN[0], str(least)),)
    for tree in range(TREES):
        parent = pod_group(f"t{tree}", None, namespace="many", gang_metadata=stated)
        bench.loop.inbox(Applied(parent))


def minimums(bench: Bench) -> set[int]:
    """The minimums of the trees, as their groups have them."""
    trees = (group.tree for group in bench.state.registry.groups.values())
    return {tree.min_children for tree in trees if tree is not None}


def test_the_parents_of_many_trees_are_read_in_turns(bench: Grouped) -> None:
    """I9: 20 parents are edited at once; no turn groups more than a bounded number of gangs, a pod
    of another namespace is planned meanwhile, and in the end each tree is what its parent says.
    """
    for least in (3, 5):  # the parents are new, and then known
        declare(bench, least)
        waiting = len(bench.binds)
        bench.loop.inbox(Applied(pod(f"quiet-{least}", gpus=0, namespace="quiet")))

        grouped = []
        bound_after = 0
        for number in bench.turns():
            grouped.append(number)
            if len(bench.binds) > waiting and not bound_after:
                bound_after = len(grouped)

        assert sum(grouped) >= TREES * CHILDREN
        assert max(grouped) <= MOST_GROUPED
        assert 0 < bound_after <= 3
        assert minimums(bench) == {least}


def test_children_of_many_trees_are_read_in_turns(bench: Grouped) -> None:
    """I9: one pod of each tree is edited, and each tree gets a further child."""
    for tree in range(TREES):
        (edited,) = members(f"t{tree}-0", 1, gpus=9, parent=f"t{tree}", namespace="many", total=2)
        (further,) = members(f"t{tree}-x", 1, gpus=9, parent=f"t{tree}", namespace="many")
        bench.loop.inbox(Applied(edited))
        bench.loop.inbox(Applied(further))

    assert max(bench.turns()) <= MOST_GROUPED
    groups = [group for group in bench.state.registry.groups.values() if group.tree is not None]
    assert {len(group.gangs) for group in groups} == {CHILDREN + 1}


def test_one_parent_of_many_is_read_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """I9: of more children than a tree may have each is refused alone; a turn groups no more of
    them than of those that only name a gang, and its commit none.
    """
    bench = Grouped(monkeypatch)
    bench.loop.inbox(Applied(node("a", 8)))
    for child in range(3 * AT_A_TIME):
        for each in members(f"c{child}", 1, gpus=9, parent="top"):
            bench.loop.inbox(Applied(each))

    bench.rest()
    assert 3 * AT_A_TIME > MOST_GANGS
    stated = ((keys.MIN_CHILDREN[0], "2"),)
    bench.loop.inbox(Applied(pod_group("top", None, gang_metadata=stated)))
    assert max(bench.turns()) <= AT_A_TIME + 2
