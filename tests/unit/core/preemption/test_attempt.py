"""One attempt to make room, on a ledger of its own."""

from __future__ import annotations

from collections.abc import Hashable
from math import inf

import numpy as np

from gangsched.core.decision import decide
from gangsched.core.preemption.attempt import Attempt, Found
from gangsched.core.preemption.columns import RunningColumns
from gangsched.core.preemption.preemptor import preemptor_of
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Group
from gangsched.model.objects import Shape
from gangsched.model.snapshot import Ints
from tests.builders import node
from tests.running_cluster import WALL_S, RunningCluster, high


class SecondNodeKept:
    """Room that is kept from everybody: all of the second node."""

    def narrow(self, shape: Shape, free: Ints, group: Group) -> Ints:
        """None of it is left."""
        left = free.copy()
        left[1] = 0
        return left

    def standing(self, group: Group) -> Hashable:
        """The same for all."""
        return "kept"


def test_room_kept_from_the_group_is_no_room_for_it() -> None:
    """V3, H8: sums would find the reserved node; a round does not, so room is made beside it and no
    more than that.
    """
    cluster = RunningCluster([node("a"), node("b")])
    for i in range(4):
        cluster.run(f"low-{i}", "a", gpus=2, priority=1, ran_s=100 * (i + 1))
    ledger, given, wants = Ledger(cluster.snapshot()), cluster.given(), high(number=2, gpus=2)
    ledger.promises.reserved = SecondNodeKept()
    verdict = decide(wants, ledger, Ledger(cluster.snapshot(), empty=True), now_s=0.0)
    preemptor = preemptor_of(wants, verdict, ledger.table)
    assert preemptor is not None
    columns = RunningColumns.of(given.running(inf), given.settings, WALL_S, ledger)
    found = Attempt(preemptor, columns, ledger, given.settings, ()).make_room()
    assert isinstance(found, Found)
    assert found.candidate is not None
    assert [columns.running[i].pod.name for i in found.candidate.pods] == ["low-0", "low-1"]
    assert {placement.node for placement in found.placements} == {"a"}
    assert np.array_equal(ledger.free, cluster.snapshot().free)
