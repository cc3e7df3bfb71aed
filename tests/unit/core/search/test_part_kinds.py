"""Parts of a tree that are packed together: which entries they make (I9)."""

from __future__ import annotations

from gangsched.core.search.part_kinds import entries_of
from gangsched.model.tree import Composite
from tests import builders

RACK = "example.com/rack"


def test_a_part_of_which_no_child_is_needed_is_not_packed() -> None:
    """I9: a parent with minimum 0 and a level of its own, also inside another one: there is nothing
    to place.
    """
    table = builders.snapshot([builders.node("n0", labels={RACK: "r0"})]).table
    empty = Composite("c", (), 0, (RACK,))
    outer = Composite("d", (empty,), 0, (RACK,))
    gang = builders.gang("ns/a", builders.members("a", 2))
    found = entries_of((empty, outer, gang.id), {gang.id: gang}, {gang.id: 2}, table)
    assert found is not None
    assert [gang for each in found for gang in each.gangs] == ["ns/a"]
    assert len(found) == 1
