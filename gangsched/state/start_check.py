"""Start check: a gang's binds are sent only while the gang can still start whole (semantics B2).

Between the commit and the last bind a node may be cordoned, or a member deleted. Then no bind is
sent that would leave a part of the group broken (`model.parts`), and its members are planned again
together. Once a bind of a part is known to have succeeded, the others of it are sent one by one,
because what runs in part must be completed.
"""

from __future__ import annotations

from gangsched.model.parts import without_broken
from gangsched.model.protocol import Bind
from gangsched.model.tree import gangs_of
from gangsched.sentences import placing
from gangsched.state.cluster import Cluster
from gangsched.state.gangs import GangRecord
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.members import State

HAD_A_NODE = (State.BOUND, State.TERMINATING, State.ENDED)
"""The states of members that are known to have had a node."""


class StartCheck:
    """Decides for each bind, immediately before it is sent, whether it may be sent."""

    def __init__(
        self,
        members: MemberStore,
        cluster: Cluster,
        registry: Registry,
    ) -> None:
        self._members = members
        self._cluster = cluster
        self._registry = registry

        # By gang. A burst of a thousand binds would else count a thousand members for each of them.
        self._answers: dict[str, str] = {}

    def forget(self) -> None:
        """Drop the cached answers, because the state has changed."""
        self._answers.clear()

    def objection(self, bind: Bind) -> str:
        """Why a bind may not be sent (again); "" if it may (B2)."""
        member = self._members.get(bind.uid)
        # the pod is gone or bound elsewhere, as the server will say
        if member is None or member.node != bind.node:
            is_known = bind.node in self._cluster.nodes
            return "" if is_known else placing.NODE_CLOSED

        own = self._registry.own_rooms(member.gang)
        if not self._cluster.takes(member.pod, member.node, own):
            return placing.NODE_CLOSED

        record = self._registry.gangs.get(member.gang)
        if record is None or record.plain:
            return ""

        if record.id not in self._answers:
            self._answer(record)

        return self._answers[record.id]

    def _fitting(self, gang: GangRecord) -> int:
        """How many members that are being bound still fit where they go."""
        own = self._registry.own_rooms(gang.id)
        number = 0
        for member in gang.of(State.BINDING):
            if self._cluster.takes(member.pod, member.node, own):
                number += 1

        return number

    def _answer(self, record: GangRecord) -> None:
        """Answer for all gangs of the group at once: it may have hundreds."""
        registry = self._registry
        group_id = registry.group_of.get(record.id, record.id)
        root = registry.parts(group_id)
        gangs = [registry.gangs[gang_id] for gang_id in gangs_of(root.part)]

        begun: dict[str, int] = {}
        able: dict[str, int] = {}
        counts: dict[str, int] = {}
        for gang in gangs:
            fitting = self._fitting(gang)
            # Once a part runs, each of its further members goes wherever it fits.
            begun[gang.id] = int(_has_begun(gang))
            able[gang.id] = fitting
            counts[gang.id] = fitting + gang.running

        short: dict[str, str] = {}
        gangs.sort(key=lambda gang: gang.id)
        for gang in gangs:
            running = counts[gang.id] - able[gang.id]
            needed = root.least[gang.id] - running
            lacks = able[gang.id] < needed and not begun[gang.id]
            if lacks and gang.of(State.BINDING):
                text = placing.start_not_whole(gang.id, able[gang.id], needed)
                short[gang.id] = text

        # A gang that could start itself is told of the first one that cannot.
        first = next(iter(short.values()), "")
        left = without_broken(root, counts, begun)
        for gang in gangs:
            is_stopped = left[gang.id] < counts[gang.id]
            answer = short.get(gang.id, first)
            self._answers[gang.id] = answer if is_stopped else ""


def _has_begun(record: GangRecord) -> bool:
    """Whether the bind of a member of the gang's last start is known to have succeeded."""
    permit = record.passed
    if permit is None:
        return False
    if record.start.epoch == permit.epoch:
        return True

    # The pods of those members may be gone, and the memory learns of new ones at the next look.
    for member in record.of(*HAD_A_NODE):
        stamp = member.permit
        if stamp is not None and stamp.epoch == permit.epoch:
            return True

    return False
