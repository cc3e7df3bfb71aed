"""The queue of groups: active, parked (refused), backing off; and what wakes whom (semantics Q3).

Law: a refused group is looked at again only when something that could help it has changed, then at once; every group is
looked at again after `SAFETY_NET_S` whatever happened. Order is not decided here (`core.queue_sort`).
"""

from __future__ import annotations

import numpy as np

from gangsched.core.filter import static_fit
from gangsched.core.filter.node_resources_fit import room
from gangsched.model.objects import Shape
from gangsched.model.plan import Need
from gangsched.model.snapshot import Snapshot

SAFETY_NET_S = 60.0
FIRST_BACK_OFF_S = 1.0
LONGEST_BACK_OFF_S = 10.0


class Queue:
    """Which groups are worth a look."""

    def __init__(self) -> None:
        self._active: set[str] = set()
        self._parked: dict[str, tuple[Need, ...]] = {}
        self._until_s: dict[str, float] = {}
        self._delay_s: dict[str, float] = {}
        self._wake_at_s: dict[str, float] = {}
        self._swept_s: float | None = None

    def activate(self, group: str) -> None:
        """Something about the group changed, or it is new."""
        self._active.add(group)
        self._parked.pop(group, None)

    def park(self, group: str, needs: tuple[Need, ...]) -> None:
        """The group was refused (or is done); room matters to it only as `needs` says, empty = not at all."""
        self._active.discard(group)
        self._parked[group] = needs

    def back_off(self, group: str, now_s: float) -> None:
        """A bind of the group failed: look again after 1 s, doubling to 10 s until `succeeded`.

        Failures that come while it backs off already are of the same fault and change nothing.
        """
        self.activate(group)
        if self.backs_off(group, now_s):
            return
        delay_s = self._delay_s.get(group, FIRST_BACK_OFF_S)
        self._delay_s[group] = min(delay_s * 2, LONGEST_BACK_OFF_S)
        self._until_s[group] = now_s + delay_s

    def forgive(self, group: str) -> None:
        """The group was formed anew: it is looked at once before it backs off again."""
        self._until_s.pop(group, None)

    def backs_off(self, group: str, now_s: float) -> bool:
        """Whether the group is not to be planned yet."""
        return self._until_s.get(group, now_s) > now_s

    def wake_at(self, group: str, at_s: float) -> None:
        """Look at the group again at that time at the latest."""
        self._wake_at_s[group] = min(at_s, self._wake_at_s.get(group, at_s))

    def succeeded(self, group: str) -> None:
        """A bind of the group went through: the next fault backs off from the start again."""
        self._delay_s.pop(group, None)

    def drop(self, group: str) -> None:
        """The group is gone."""
        self._active.discard(group)
        for known in (self._parked, self._until_s, self._delay_s, self._wake_at_s):
            known.pop(group, None)

    def ready(self, now_s: float) -> set[str]:
        """Groups to look at now. Runs the safety net."""
        if self._swept_s is None or now_s - self._swept_s >= SAFETY_NET_S:
            self._active.update(self._parked)
            self._parked.clear()
            self._swept_s = now_s
        for group in [group for group, until_s in self._until_s.items() if until_s <= now_s]:
            del self._until_s[group]
        for group in [group for group, at_s in self._wake_at_s.items() if at_s <= now_s]:
            del self._wake_at_s[group]
            self.activate(group)
        return self._active - self._until_s.keys()

    def minds_pods(self) -> bool:
        """Whether a parked group may be helped by pods that come, go or change their labels, wherever they are."""
        return any(_tied(needs) for needs in self._parked.values())

    def wake(self, snapshot: Snapshot, grown: set[str], *, stirred: bool = False) -> None:
        """Activate every parked group that the growth of these nodes may help; `stirred`: pods moved somewhere.

        A group is woken when one of its shapes may use a grown node (or looks at other pods, and those stirred) and
        there is room in all for what it needs; this is necessary for its next round to succeed, so nobody is left
        asleep wrongly. Costs one look per distinct shape.
        """
        indices = [snapshot.table.index[name] for name in grown if name in snapshot.table.index]
        if not (indices or stirred) or not self._parked:
            return
        nodes = np.array(indices, dtype=np.intp)
        seen: dict[Shape, tuple[bool, int]] = {}
        for group, needs in list(self._parked.items()):
            helped = any(self._look(need.shape, snapshot, nodes, seen)[0] for need in needs)
            if (helped or (stirred and _tied(needs))) and all(
                self._look(need.shape, snapshot, nodes, seen)[1] >= need.count for need in needs
            ):
                self.activate(group)

    def next_deadline_s(self) -> float | None:
        """When `ready` may answer more than now, if nothing else happens."""
        deadlines = [*self._until_s.values(), *self._wake_at_s.values()]
        if self._parked and self._swept_s is not None:
            deadlines.append(self._swept_s + SAFETY_NET_S)
        return min(deadlines, default=None)

    def part(self, group: str) -> str:
        """Which part of the queue a group is in: active, backoff or parked; "" for one that is not known."""
        if group in self._until_s:
            return "backoff"
        if group in self._active:
            return "active"
        return "parked" if group in self._parked else ""

    def sizes(self) -> dict[str, int]:
        """How many groups are in each part, for metrics."""
        return {
            "active": len(self._active - self._until_s.keys()),
            "backoff": len(self._until_s),
            "parked": len(self._parked),
        }

    @staticmethod
    def _look(
        shape: Shape,
        snapshot: Snapshot,
        nodes: np.ndarray[tuple[int], np.dtype[np.intp]],
        seen: dict[Shape, tuple[bool, int]],
    ) -> tuple[bool, int]:
        """(may the shape use a grown node, how many pods of it fit in all)."""
        known = seen.get(shape)
        if known is None:
            mask = static_fit(shape, snapshot.table).mask
            total = int(room(shape, snapshot.free, snapshot.resources)[mask].sum())
            known = seen[shape] = (bool(mask[nodes].any()), total)
        return known


def _tied(needs: tuple[Need, ...]) -> bool:
    """Whether a shape's filters look at other pods."""
    return any(need.shape.inter_pod is not None and need.shape.inter_pod.hard for need in needs)
