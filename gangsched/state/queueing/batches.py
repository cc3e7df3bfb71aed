"""Which of thousands of ready groups the next plan decides (semantics Q1, Q4).

Invariant: groups are passed to plans in the order in which plans decide them. Each ready group is
part of a plan after at most as many plans as are needed to decide the others. If thousands are
ready, their order is computed once and followed until its end, or until it is too old, because
sorting all of them takes longer than deciding some.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, Final

from gangsched.core.queue_sort import in_turns
from gangsched.model.gang import Group
from gangsched.state.groups import Registry

MOST: Final = 1_000
"""Groups of one plan; it decides no more than `Limits.groups` of them."""
UNITS_A_GROUP: Final = 4
"""Units of work (`core.work`) of each group that is put in order: 2,000 groups took 8 ms of one
turn.
"""


class Batches:
    """The order in which plans decide the ready groups; empty while few groups are ready. `rank` is
    the sort key.

    `units` are the units of work of the last call of `next`.
    """

    def __init__(self, registry: Registry, rank: Callable[[Group], Any]) -> None:
        self._registry = registry
        self._rank = rank
        self.units = 0
        self._rest: deque[str] = deque()
        self._known: set[str] = set()  # those in `_rest`

    def next(
        self,
        ready: Set[str],
        always: Callable[[], Set[str]],
        looked_at: Set[str],
        now_s: float,
    ) -> Set[str]:
        """Groups for the next plan: the groups that are `always` included, groups that have become
        ready, then others in order.

        Groups in `looked_at`, which the last plans examined, follow once all others have been
        decided (decision 8).
        """
        self.units = 0
        # Few enough to sort in every plan, so that no order has to be remembered.
        if len(ready) <= MOST:
            self._follow(())
            return ready

        # Ready since the order was made: they are given at once, or a gang that just arrived would
        # wait for thousands.
        new = ready - self._known - looked_at
        if len(new) > MOST:
            self._follow(self._in_order(ready - looked_at, looked_at, now_s))
            new = set()

        batch = set(new)
        kept = list[str]()

        while self._rest and len(batch) < MOST:
            group_id = self._rest.popleft()
            if group_id in ready and group_id not in looked_at:
                batch.add(group_id)
                kept.append(group_id)
            else:
                self._known.remove(group_id)

        # Back to the front: the plan decides fewer than it is given, and what it leaves is first
        # next time.
        self._rest.extendleft(reversed(kept))
        # All that are left were looked at in this pass: it begins again.
        return (always() & ready) | (batch or set(self._in_order(ready, looked_at, now_s)[:MOST]))

    def _in_order(self, ids: Iterable[str], looked_at: Set[str], now_s: float) -> list[str]:
        groups = [self._registry.group(group_id, now_s) for group_id in ids]
        self.units += UNITS_A_GROUP * len(groups)
        result: list[str] = []
        for group in in_turns(sorted(groups, key=self._rank), looked_at):
            result.append(group.id)

        return result

    def _follow(self, order: Sequence[str]) -> None:
        self._rest = deque(order)
        self._known = set(order)
