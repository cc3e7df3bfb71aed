"""Start check: a gang's binds are sent only while the gang can still start whole (semantics B2).

Between the commit and the last bind a node may be cordoned, or a member deleted. If no bind of the start is known to
have succeeded, all members are then planned again together. After the first success each bind is sent independently of
the others, because a gang that runs in part must be completed.
"""

from __future__ import annotations

from collections.abc import Iterable

from gangsched.core.messages import placing
from gangsched.model.protocol import Bind
from gangsched.state.cluster import Cluster
from gangsched.state.gangs import GangRecord
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.members import Member, State

LEFT = frozenset({State.BOUND, State.TERMINATING, State.ENDED})
"""The states of members that are known to have had a node."""


class StartCheck:
    """Decides for each bind, immediately before it is sent, whether it may be sent."""

    def __init__(self, members: MemberStore, cluster: Cluster, registry: Registry) -> None:
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
        if member is None or member.node != bind.node:  # the pod is gone or bound elsewhere, as the server will say
            return "" if bind.node in self._cluster.nodes else placing.NODE_CLOSED
        if not self._still_fits(member):
            return placing.NODE_CLOSED
        record = self._registry.gangs.get(member.gang)
        if record is None or record.plain:
            return ""
        if record.id not in self._answers:
            self._look(record)
        return self._answers[record.id]

    def _still_fits(self, member: Member) -> bool:
        group = self._registry.group_of.get(member.gang, member.gang)
        return self._cluster.takes(member.pod, member.node, group)

    def _look(self, record: GangRecord) -> None:
        """Answer for all gangs that start with this one, at once: a group may have hundreds."""
        gangs = {each.id: each for each in self._starting_with(record)} | {record.id: record}
        begun = {name for name, each in gangs.items() if _has_begun(each)}
        short: dict[str, str] = {}
        for name in gangs.keys() - begun:
            able, needed = sum(map(self._still_fits, gangs[name].of(State.BINDING))), gangs[name].lacks(State.BOUND)
            if able < needed:
                short[name] = placing.start_not_whole(name, able, needed)
        first = short[min(short)] if short and not begun else ""
        # Once a part of the group runs, each other gang is whole or not for itself.
        self._answers |= {name: "" if name in begun else short.get(name, first) for name in gangs}

    def _starting_with(self, record: GangRecord) -> Iterable[GangRecord]:
        group = self._registry.groups.get(self._registry.group_of.get(record.id, ""))
        if group is None:
            return (record,)
        records = (self._registry.gangs[gang] for gang in group.gangs)
        # Of a tree with a minimum of children, only those that were chosen start; others may wait for long.
        return records if group.tree is None else (each for each in records if each.of(State.BINDING))


def _has_begun(record: GangRecord) -> bool:
    """Whether a bind of the gang's last start is known to have succeeded."""
    permit = record.passed
    return permit is not None and any(
        each.state in LEFT and each.permit is not None and each.permit.epoch == permit.epoch
        for each in record.members.values()
    )
