"""Patience: when a gang stops to ask for nodes that do not suffice, and asks again (semantics E9).

Invariant: it changes what is told, never what is decided: a gang that pauses is planned as any
other. Pure bookkeeping between plans; off, it does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from typing import Final

from gangsched.model.capacity_facts import NodesInsufficient, NotAsking
from gangsched.model.plan import Verdict
from gangsched.model.reasons import Reason
from gangsched.model.verdict_facts import needs_other_nodes
from gangsched.state.autoscaling.asking import Asking, wants
from gangsched.state.autoscaling.new_nodes import SETTLED_S, NewNodes, NodeChanges
from gangsched.state.cluster import Cluster
from gangsched.state.group_record import GroupRecord
from gangsched.state.groups import Registry
from gangsched.state.timers import Timers

LONGEST_PAUSE_S: Final = 28_800.0
LOOK_EVERY_S: Final = 60.0
"""How often a gang is looked at that no new node has reached."""
LOOKS_PER_TURN: Final = 10
"""Gangs that a turn looks at: each shape is compared with all nodes, once for each change of
them.
"""


class Patience:
    """`changed` is called with a group whose members get another reason."""

    def __init__(
        self,
        registry: Registry,
        cluster: Cluster,
        patience_s: float,
        changed: Callable[[GroupRecord, float], None],
    ) -> None:
        self._registry = registry
        self._patience_s = patience_s
        self._changed = changed
        self._nodes = NewNodes(cluster)
        self._due = Timers()
        self._paused: set[str] = set()
        #: The nodes that the paused groups were compared with.
        self._changes = NodeChanges(cluster)

    def committed(self, group: GroupRecord, verdict: Verdict, now_s: float) -> None:
        """Record a committed verdict."""
        if not self._patience_s:
            return

        if verdict.binds:
            self.gone(group)
        elif verdict.reason is Reason.UNSCHEDULABLE and self._is_gang(group):
            self._refused(group, now_s)

    def gone(self, group: GroupRecord) -> None:
        """Forget a group that starts or is gone."""
        self._due.drop(group.id)
        self._paused.discard(group.id)
        group.asking = None
        group.pause = None

    def due(self, now_s: float, wall_s: float) -> None:
        """Begin and end pauses."""
        if not self._due:
            return

        self._follow_nodes(now_s)
        for _ in range(LOOKS_PER_TURN):
            group_id = self._due.take_next(now_s)
            if group_id is None:
                return

            group = self._registry.groups.get(group_id)
            if group is None or group.asking is None:
                self._paused.discard(group_id)
            else:
                self._look(group, group.asking, now_s, wall_s)

    def next_deadline_s(self) -> float:
        """When `due` must be called although nothing changes."""
        return self._due.next_s()

    def indexes(self) -> Iterator[tuple[str, Set[str], Callable[[GroupRecord], bool]]]:
        """For validation: each index with its groups, and a predicate for the groups that should be
        in it.
        """
        yield "paused", self._paused, lambda group: group.pause is not None

    # --- inside ----------------------------------------------------------------------------------

    def _is_gang(self, group: GroupRecord) -> bool:
        """Whether a gang of the group waits as a whole: nodes for single pods are of use."""
        gangs = map(self._registry.view, group.gangs)
        return any(gang.waiting and not gang.free_running for gang in gangs)

    def _refused(self, group: GroupRecord, now_s: float) -> None:
        what, shapes = wants(map(self._registry.view, group.gangs))
        before = group.asking
        if before is not None and before.wants == what:
            # The first nodes that came may show that none of their kind helps.
            if before.paused_until_s is None:
                self._due.set_sooner(group.id, now_s + self._first_look_s(group))

            return

        group.asking = Asking(
            wants=what,
            shapes=shapes,
            since_s=now_s,
            pause_s=self._patience_s,
        )
        if before is None and self._was_paused(group):
            group.asking.is_restored = True
            self._due.set(group.id, now_s)
        else:
            self._ask(group, group.asking, now_s)

    def _first_look_s(self, group: GroupRecord) -> float:
        """How long it asks at least: no longer than it takes to see that nodes come without
        effect.
        """
        if self._needs_other_nodes(group):
            return min(self._patience_s, SETTLED_S)

        return self._patience_s

    def _needs_other_nodes(self, group: GroupRecord) -> bool:
        return group.verdict is not None and needs_other_nodes(group.verdict.told.fact)

    def _was_paused(self, group: GroupRecord) -> bool:
        """Whether an earlier process, whose reports are stored, let the group pause."""
        for gang in group.gangs:
            for pod in self._registry.view(gang).pending:
                stored = pod.condition
                if stored is not None and stored.reason == Reason.WAITING_FOR_CAPACITY:
                    return True

        return False

    def _follow_nodes(self, now_s: float) -> None:
        """Have paused groups looked at once there are other nodes than before."""
        if not self._paused or not self._changes.any_new():
            return

        self._due.all_at_once(self._paused)

    def _look(
        self,
        group: GroupRecord,
        asking: Asking,
        now_s: float,
        wall_s: float,
    ) -> None:
        if asking.paused_until_s is not None:
            self._look_at_paused(group, asking, now_s)
            return

        if asking.is_restored:
            # The nodes that the earlier process saw are not known.
            asking.is_restored = False
            self._pause(group, asking, now_s, frozenset(), wall_s=wall_s)
            return

        if group.verdict is None or group.verdict.reason is not Reason.UNSCHEDULABLE:
            # It has not asked all the time.
            self._ask(group, asking, now_s)
            return

        since_s = wall_s - (now_s - asking.since_s)
        added = self._nodes.added(asking.shapes, since_s)
        if not added:
            self._due.set(group.id, now_s + LOOK_EVERY_S)
            return

        until_s = self._nodes.being_added_until_s(asking.shapes, wall_s)
        if until_s is not None:
            self._due.set(group.id, now_s + until_s - wall_s)
            return

        self._pause(group, asking, now_s, added, wall_s=wall_s)

    def _look_at_paused(self, group: GroupRecord, asking: Asking, now_s: float) -> None:
        assert asking.paused_until_s is not None
        more = self._nodes.usable(asking.shapes) > asking.usable
        if more:
            asking.pause_s = self._patience_s

        if more or now_s >= asking.paused_until_s:
            self._ask(group, asking, now_s)
        else:
            self._due.set(group.id, asking.paused_until_s)

    def _pause(
        self,
        group: GroupRecord,
        asking: Asking,
        now_s: float,
        added: frozenset[str],
        *,
        wall_s: float,
    ) -> None:
        """Let it ask for no nodes, so that those that it does not use are given back."""
        asking.paused_until_s = now_s + asking.pause_s
        asking.usable = max(asking.usable, self._nodes.usable(asking.shapes))

        since_s = wall_s - (now_s - asking.since_s)
        fact = NodesInsufficient(
            nodes=len(added),
            since_s=int(since_s),
            until_s=int(wall_s + asking.pause_s),
        )
        group.pause = NotAsking(Reason.WAITING_FOR_CAPACITY, fact)

        asking.pause_s = min(2 * asking.pause_s, LONGEST_PAUSE_S)
        self._paused.add(group.id)
        self._due.set(group.id, asking.paused_until_s)
        self._changed(group, now_s)

    def _ask(self, group: GroupRecord, asking: Asking, now_s: float) -> None:
        """Let it ask for nodes, again if it paused."""
        asking.since_s = now_s
        asking.paused_until_s = None
        self._paused.discard(group.id)
        self._due.set(group.id, now_s + self._first_look_s(group))

        if group.pause is not None:
            group.pause = None
            self._changed(group, now_s)
