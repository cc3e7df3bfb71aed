"""Nodes on which members of a gang die again and again, which the gang then avoids (semantics L8).

Invariant: only gangs that ask for it, or for which the setting does, have strikes. They are derived
from failed pods, so that a restart finds those of the pods that still exist. A strike is none once
half or more of the others ended within a minute of it, which is a fault of the application.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from gangsched.model.objects import Pod
from gangsched.model.protocol import ObjectRef, RecordEvent
from gangsched.model.reasons import EventReason
from gangsched.model.snapshot import Floats
from gangsched.sentences import node_deaths as sentences
from gangsched.state.avoided import AvoidCause, AvoidedNode, avoid
from gangsched.state.cluster import Cluster
from gangsched.state.gangs import GangRecord
from gangsched.state.group_record import GroupRecord, QueueCause
from gangsched.state.groups import Registry
from gangsched.state.members import State
from gangsched.state.queueing.queue import Queue
from gangsched.state.reporting.gang_events import gang_ref
from gangsched.state.rule_set import Rules
from gangsched.state.strikes import SAME_FAULT_S, Ending

KEPT: Final = 2_000
"""Ends of members that are kept for a gang, and strikes that are judged of them: a gang of which
more end within the window has another fault than its nodes.
"""
JUDGED: Final = 200
LEAST_LIMIT: Final = 3
"""Nodes that a gang may avoid at least; a large one may avoid a tenth of its nodes."""
SUSPECTED_BY: Final = 3
SUSPECTED_AGAIN_S: Final = 3_600.0
TOLD_AFTER_S: Final = 1.0
"""How long a node is avoided before it is told: of an application that fails in all members, the
others follow at once, and the node is used again.
"""

Strikes: TypeAlias = Mapping[str, Sequence[Ending]]
"""By node, the oldest first."""


class _Untold(NamedTuple):
    at_s: float
    gang: str
    node: str


class BadNodes:
    """Strikes of all gangs, and the rows that they add to the tables of their groups."""

    def __init__(
        self,
        registry: Registry,
        cluster: Cluster,
        queue: Queue,
        rules: Rules,
    ) -> None:
        self._registry = registry
        self._cluster = cluster
        self._queue = queue
        self._window_s = rules.bad_node_window_s
        self._avoid_s = rules.bad_node_s
        #: By uid, with the gang.
        self._ended: dict[str, tuple[str, Pod]] = {}
        self._untold: list[_Untold] = []
        #: By node, the monotonic second at which it was told to be suspect.
        self._suspected_s: dict[str, float] = {}

    @property
    def nodes(self) -> set[str]:
        """All nodes that a gang avoids because members died there."""
        nodes: set[str] = set()
        for group in self._registry.groups.values():
            for node, row in group.avoid.items():
                if row.cause is AvoidCause.STRUCK:
                    nodes.add(node)

        return nodes

    def ended(self, gang: str, pod: Pod) -> None:
        """Note that a member with a node has ended, or is seen first after its end."""
        self._ended[pod.uid] = (gang, pod)

    def follow(self, group: GroupRecord) -> None:
        """The group has changed. A gang that avoids bad nodes from now on, or was read after a
        restart, begins with its failed pods that exist.
        """
        for gang in group.gangs:
            self._follow(self._registry.gangs[gang])

    def _follow(self, record: GangRecord) -> None:
        strikes = record.spec.bad_node_strikes if record.spec is not None else 0
        if not strikes:
            record.endings = None
        elif record.endings is None:
            record.endings = ()
            for member in record.of(State.ENDED):
                if member.permit is not None and member.pod.node_name:
                    self.ended(record.id, member.pod)

    def next_deadline_s(self) -> float:
        """When `due` must be called although nothing changes."""
        return self._untold[0].at_s if self._untold else math.inf

    def due(self, now_s: float, wall_s: float) -> list[RecordEvent]:
        """Judge the gangs of which members ended since the last call; return Events."""
        for gang_id in self._take_ended(wall_s):
            record = self._registry.gangs[gang_id]
            self._judge(record, now_s, wall_s)

        return self._tell(now_s, wall_s)

    def opened(self, group: GroupRecord, node: str) -> list[RecordEvent]:
        """A member is placed on a node that its gang avoids, since no other has room: the node is
        open to it again.
        """
        row = group.avoid.get(node)
        if row is None or row.cause is not AvoidCause.STRUCK:
            return []

        del group.avoid[node]
        record = self._registry.gangs[row.gang]
        left: list[Ending] = []
        for ending in record.endings or ():
            if ending.node != node:
                left.append(ending)

        record.endings = tuple(left)

        text = sentences.opened(node)
        return _event(record, text)

    def _take_ended(self, wall_s: float) -> list[str]:
        """Add what ended to the records of gangs; return those that avoid bad nodes."""
        changed: dict[str, None] = {}
        noted = self._ended
        self._ended = {}

        for gang_id, pod in noted.values():
            record = self._registry.gangs.get(gang_id)
            if record is None or record.endings is None:
                continue

            ending = Ending.of(pod, wall_s)
            recent = record.endings[-KEPT + 1 :]
            record.endings = (*recent, ending)
            changed[gang_id] = None

        return list(changed)

    # --- judging ---------------------------------------------------------------------------------

    def _judge(self, record: GangRecord, now_s: float, wall_s: float) -> None:
        """Renew the rows of one gang."""
        group = self._registry.groups.get(self._registry.group_of.get(record.id, ""))
        if group is None or record.spec is None:
            return

        first_s = wall_s - self._window_s
        recent: list[Ending] = []
        for ending in record.endings or ():
            if ending.at_s >= first_s:
                recent.append(ending)

        record.endings = tuple(recent)
        bad = self._bad_nodes(record, group)

        before = dict(group.avoid)
        for node, row in before.items():
            if row.cause is AvoidCause.STRUCK and row.gang == record.id:
                del group.avoid[node]

        for node, strikes in bad.items():
            ends_s = now_s + strikes[-1].at_s + self._avoid_s - wall_s
            row = AvoidedNode(AvoidCause.STRUCK, ends_s, record.id, strikes[0].at_s)
            avoid(group.avoid, node, row)

            if node not in before:
                self._untold.append(_Untold(now_s + TOLD_AFTER_S, record.id, node))

        if group.avoid != before:
            self._registry.changed(group.id)
            self._queue.activate(group.id, QueueCause.CHANGED)

    def _bad_nodes(self, record: GangRecord, group: GroupRecord) -> Strikes:
        """The nodes that the gang is to avoid, with their strikes."""
        assert record.spec is not None
        bound = record.of(State.BOUND)
        nodes_of_gang = {member.node for member in bound}
        limit = max(LEAST_LIMIT, len(nodes_of_gang) // 10)

        bad: dict[str, list[Ending]] = {}
        for node, strikes in self._strikes(record).items():
            if len(strikes) < record.spec.bad_node_strikes:
                continue

            elsewhere = sum(member.node != node for member in bound)
            # What is avoided already stays so, whatever ends elsewhere meanwhile.
            if 2 * elsewhere > record.least or node in group.avoid:
                bad[node] = strikes

        newest = sorted(bad, key=lambda node: (-bad[node][-1].at_s, node))
        return {node: bad[node] for node in newest[:limit]}

    def _strikes(self, record: GangRecord) -> dict[str, list[Ending]]:
        """The strikes of a gang by node, without those of a fault that others had as well."""
        by_node: dict[str, list[Ending]] = {}
        if not record.endings:
            return by_node

        others = _Others.of(record, record.endings)
        for ending in record.endings[-JUDGED:]:
            if ending.is_strike and not others.ended_with(ending):
                strikes = by_node.setdefault(ending.node, [])
                strikes.append(ending)

        for strikes in by_node.values():
            strikes.sort(key=_at)

        return by_node

    # --- telling ---------------------------------------------------------------------------------

    def _tell(self, now_s: float, wall_s: float) -> list[RecordEvent]:
        due: list[_Untold] = []
        while self._untold and self._untold[0].at_s <= now_s:
            due.append(self._untold.pop(0))

        events: list[RecordEvent] = []
        for _, gang_id, node in due:
            record = self._registry.gangs.get(gang_id)
            row = self._row(gang_id, node)
            if record is None or row is None:
                continue

            left_s = row.until_s - now_s
            until_s = wall_s + left_s
            events += self._avoided(record, node, until_s)
            events += self._suspected(node, now_s)

        return events

    def _row(self, gang_id: str, node: str) -> AvoidedNode | None:
        group = self._registry.groups.get(self._registry.group_of.get(gang_id, ""))
        if group is None:
            return None

        return group.avoid.get(node)

    def _avoided(
        self,
        record: GangRecord,
        node: str,
        until_s: float,
    ) -> list[RecordEvent]:
        of_nodes = self._strikes(record)
        strikes = of_nodes.get(node)
        if not strikes:
            return []

        pods = [strike.pod for strike in strikes]
        cause = strikes[-1].cause
        text = sentences.avoided(node, until_s, pods, cause)
        return _event(record, text, warning=True)

    def _suspected(self, node: str, now_s: float) -> list[RecordEvent]:
        """An Event on the node, if several gangs avoid it."""
        known = self._cluster.nodes.get(node)
        if known is None:
            return []

        told_s = self._suspected_s.get(node, -math.inf)
        if now_s < told_s + SUSPECTED_AGAIN_S:
            return []

        gangs = self._gangs_that_avoid(node)
        if len(gangs) < SUSPECTED_BY:
            return []

        self._forget_suspects(now_s)
        self._suspected_s[node] = now_s

        ref = ObjectRef("v1", "Node", "", node, known.uid)
        text = sentences.suspected(len(gangs))
        event = RecordEvent(
            ref,
            EventReason.NODE_SUSPECTED,
            text,
            warning=True,
        )
        return [event]

    def _gangs_that_avoid(self, node: str) -> set[str]:
        gangs: set[str] = set()
        for group in self._registry.groups.values():
            row = group.avoid.get(node)
            if row is not None and row.cause is AvoidCause.STRUCK:
                gangs.add(row.gang)

        return gangs

    def _forget_suspects(self, now_s: float) -> None:
        recent: dict[str, float] = {}
        for node, told_s in self._suspected_s.items():
            if now_s < told_s + SUSPECTED_AGAIN_S:
                recent[node] = told_s

        self._suspected_s = recent


@dataclass(frozen=True, slots=True)
class _Others:
    """Members of a gang by time: of those that ended, when they were created and ended; of those
    that run, when they were created.
    """

    created_s: Floats
    ended_s: Floats
    running_s: Floats

    @classmethod
    def of(cls, record: GangRecord, endings: Sequence[Ending]) -> _Others:
        """The members of a gang, of which these ended."""
        running = record.of(State.BOUND)
        return cls(
            np.array([ending.created_s for ending in endings], dtype=float),
            np.array([ending.at_s for ending in endings], dtype=float),
            np.array([member.pod.creation_s for member in running], dtype=float),
        )

    def ended_with(self, ending: Ending) -> bool:
        """Whether half or more of the others ended within a minute of this one."""
        # Those that existed at the same time: no pod that this one replaced, and none that replaced
        # it.
        together = (self.ended_s >= ending.created_s) & (self.created_s <= ending.at_s)
        distance_s = np.abs(self.ended_s - ending.at_s)
        near = together & (distance_s <= SAME_FAULT_S)
        running = self.running_s <= ending.at_s

        # Without this one itself.
        of_near = int(near.sum()) - 1
        of_all = int(together.sum()) - 1 + int(running.sum())
        return of_all > 0 and 2 * of_near >= of_all


def _at(ending: Ending) -> float:
    return ending.at_s


def _event(
    record: GangRecord,
    text: str,
    *,
    warning: bool = False,
) -> list[RecordEvent]:
    """The Event on a gang; none if it has no object to be about."""
    ref = gang_ref(record)
    if ref is None:
        return []

    return [RecordEvent(ref, EventReason.NODE_AVOIDED, text, warning=warning)]
