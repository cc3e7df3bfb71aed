"""The queue of groups: active, parked (refused) or backing off; and which events wake up which group (semantics Q3).

Invariant: a refused group is planned again as soon as a change could help it, and otherwise only after `SAFETY_NET_S`.
`parked` decides which groups an event helps, `core.queue_sort` their order.
"""

from __future__ import annotations

import math
from collections.abc import Set
from hashlib import blake2b
from itertools import islice, takewhile

from gangsched.model.plan import Need
from gangsched.model.snapshot import Snapshot
from gangsched.state.queueing.parked import Parked, Rank, Stay
from gangsched.state.queueing.preemptors import Preemptors
from gangsched.state.queueing.shape_rows import NeededRoom
from gangsched.state.timers import Timers

SAFETY_NET_S = 60.0
SWEPT_AT_ONCE = 100
"""Groups that are looked at again in one turn for no other reason, so that thousands do not stall the loop."""
FIRST_BACK_OFF_S = 1.0
LONGEST_BACK_OFF_S = 10.0
SPREAD = 0.4
"""By how much of itself a delay is shorter at most; how much depends on the group, so that no dice are needed."""
REVIEW_AFTER_S = 1.0
REVIEW_EVERY_S = 4.0
"""How often it is looked whether what parked groups were told is still true; with the rest of the way, 5 s (E1)."""
REVIEW_GOES_ON_AFTER_S = 0.05
"""Where thousands of shapes are waited for, a review takes several turns."""
REVIEWED_GROUPS = 500
"""Groups of which this is told anew at a time; where more wait, they take turns."""


class Queue:
    """The groups to plan; `passed` are shapes of which woken groups have been decided."""

    def __init__(self, *, unattended: bool = False) -> None:
        """`unattended`: nobody reads messages and no event is ever missed, as in a simulation.

        Then groups are looked at again only when something could help them.
        """
        self._unattended = unattended
        self._sweep_every_s = math.inf if unattended else SAFETY_NET_S
        self._active: set[str] = set()
        self.parked = Parked()
        self.preemptors = Preemptors()
        self.passed: set[NeededRoom] = set()
        self._review_s: float | None = None
        self._reviewed_s = -math.inf
        self._back_off = Timers()
        self._delay_s: dict[str, float] = {}
        self._wake_at = Timers()
        self._now_s = -math.inf
        self._parked_s: dict[str, float] = {}

    def activate(self, group: str) -> None:
        """Make a new or changed group ready."""
        self._active.add(group)
        self.parked.remove(group)
        self.preemptors.remove(group)
        self._parked_s.pop(group, None)

    def park(
        self,
        group: str,
        needs: tuple[Need, ...],
        *,
        rank: Rank = (),
        snapshot: Snapshot | None = None,
        stay: Stay | None = None,
        kept: bool = False,
    ) -> None:
        """Park a group that was refused (or needs nothing more). Only room for `needs` can help it; none can if empty.

        It was refused on `snapshot`, and `rank` is its place in the order. `kept`: only reservations refused it, and
        they would also refuse any group that needs as many pods of the same shape and passes no more reservations.
        """
        self._active.discard(group)
        exact = kept and len(needs) == 1 and needs[0].count > 0
        kept_from = (needs[0].count, stay or Stay()) if exact else None
        self.passed.update(self.parked.tried(group, kept_from=kept_from))
        self.parked.add(group, needs, rank, snapshot, stay=stay)
        self._parked_s.pop(group, None)
        self._parked_s[group] = self._now_s

    def back_off(self, group: str, now_s: float) -> None:
        """Back off after a failed bind: retry after 1 s, doubling up to 10 s until `succeeded`, each time less up to
        `SPREAD` of it.

        Failures during the back-off belong to the same fault and change nothing.
        """
        if (delay_s := self._back_off_longer(group, now_s, FIRST_BACK_OFF_S, LONGEST_BACK_OFF_S)) is not None:
            # Two schedulers that took each other's devices fail together, and otherwise would at every retry.
            part = int.from_bytes(blake2b(f"{group}/{delay_s:g}".encode(), digest_size=4).digest()) / 2**32
            self._back_off.set(group, now_s + delay_s * (1 - SPREAD * part))

    def rest(self, group: str, now_s: float, *, first_s: float, longest_s: float) -> None:
        """Leave a group's room to others for `first_s`, doubling up to `longest_s` until `succeeded`."""
        if (delay_s := self._back_off_longer(group, now_s, first_s, longest_s)) is not None:
            self._back_off.set(group, now_s + delay_s)

    def _back_off_longer(self, group: str, now_s: float, first_s: float, longest_s: float) -> float | None:
        """The next delay of a group; None if it backs off already."""
        self.activate(group)
        if self.backs_off(group, now_s):
            return None
        delay_s = min(max(first_s, self._delay_s.get(group, first_s)), longest_s)
        self._delay_s[group] = delay_s * 2
        return delay_s

    def forgive(self, group: str) -> None:
        """Plan a regrouped group once more before it backs off again."""
        self._back_off.drop(group)

    def backs_off(self, group: str, now_s: float) -> bool:
        """Whether the group is backing off."""
        return group in self._back_off and self._back_off.get(group) > now_s

    def wake_at(self, group: str, at_s: float) -> None:
        """Plan the group again at `at_s` at the latest."""
        self._wake_at.set_sooner(group, at_s)

    def succeeded(self, group: str) -> None:
        """A bind of the group succeeded: reset its back-off."""
        self._delay_s.pop(group, None)

    def drop(self, group: str) -> None:
        """Remove a group that is gone."""
        self._active.discard(group)
        self.passed.update(self.parked.tried(group))
        self.parked.remove(group)
        self.preemptors.left(group)
        for timers in (self._back_off, self._wake_at):
            timers.drop(group)
        for known in (self._delay_s, self._parked_s):
            known.pop(group, None)

    def ready(self, now_s: float) -> set[str]:
        """The groups to plan now, including those that the safety net makes due."""
        self._now_s = now_s
        oldest_s = next(iter(self._parked_s.values()), math.inf)
        if now_s - oldest_s >= self._sweep_every_s:
            # With it those that would be next, so that there are two sweeps a minute however many groups wait.
            overdue = takewhile(lambda each: now_s - each[1] >= self._sweep_every_s / 2, self._parked_s.items())
            for group in [group for group, _ in islice(overdue, SWEPT_AT_ONCE)]:
                self.activate(group)
        self._back_off.take_due(now_s)
        for group in self._wake_at.take_due(now_s):
            self.activate(group)
        return self._active - self._back_off.keys()

    def minds_pods(self) -> bool:
        """Whether a change of pods or of their labels on any node may help a parked group."""
        return self.parked.minds_pods

    def wake(
        self, snapshot: Snapshot, freed: set[str], *, pods_changed: bool = False, heads: Set[str] = frozenset()
    ) -> None:
        """Activate parked groups that freed room on these nodes may help, as many as fit.

        `pods_changed`: pods moved, or nodes changed labels. `heads` may use reserved room.
        """
        self.preemptors.note(freed)
        for group in self.parked.helped(snapshot, freed, pods_changed=pods_changed, heads=heads):
            self.activate(group)

    def wake_pending(self, snapshot: Snapshot) -> None:
        """Activate the next groups that room freed in earlier turns may help, if it is still there."""
        for group in self.parked.next_to_wake(snapshot):
            self.activate(group)

    def wake_behind(self, snapshot: Snapshot, heads: Set[str] = frozenset()) -> None:
        """Activate the groups behind those that were woken up and decided since the last call.

        Room that was refused to these may be reserved for one of the `heads`.
        """
        passed, self.passed = self.passed, set()
        for group in self.parked.behind(passed, snapshot, heads=heads):
            self.activate(group)

    def room_changed(self, now_s: float) -> None:
        """Record that messages of parked groups about room may be outdated."""
        if self._review_s is None and len(self.parked) and not self._unattended:
            self._review_s = max(now_s + REVIEW_AFTER_S, self._reviewed_s + REVIEW_EVERY_S)

    def review_is_due(self, now_s: float) -> bool:
        """Whether `review` must be called now."""
        return self._review_s is not None and now_s >= self._review_s

    def review(self, snapshot: Snapshot, now_s: float) -> None:
        """Activate groups whose message is outdated, so that it is rewritten (semantics E1)."""
        self._reviewed_s, self._review_s = now_s, None
        stale = self.parked.told_falsely(snapshot, REVIEWED_GROUPS)
        for group in stale:
            self.activate(group)
        if not self.parked.is_reviewed:
            self._review_s = now_s + REVIEW_GOES_ON_AFTER_S
        elif len(stale) == REVIEWED_GROUPS:
            self.room_changed(now_s)

    def next_deadline_s(self) -> float | None:
        """Time at which `ready` may return more groups without an event."""
        deadlines = [at_s for timers in (self._back_off, self._wake_at) if (at_s := timers.next_s()) is not None]
        if self.parked.has_pending:
            deadlines.append(-math.inf)
        if self._review_s is not None:
            deadlines.append(self._review_s)
        if (look_s := self.preemptors.next_deadline_s()) is not None:
            deadlines.append(look_s)
        if self._parked_s and not self._unattended:
            deadlines.append(next(iter(self._parked_s.values())) + self._sweep_every_s)
        return min(deadlines, default=None)

    def part(self, group: str) -> str:
        """The part of the queue that contains the group; "" for an unknown group."""
        if group in self._back_off:
            return "backoff"
        if group in self._active:
            return "active"
        return "parked" if group in self.parked else ""

    def sizes(self) -> dict[str, int]:
        """Number of groups in each part, for metrics."""
        return {
            "active": len(self._active - self._back_off.keys()),
            "backoff": len(self._back_off),
            "parked": len(self.parked),
        }
