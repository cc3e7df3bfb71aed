"""Groups that are evicted as a whole (semantics V17).

Invariant: from the decision until its last victim is being deleted, no pod of such a group is
placed, so that it is not healed while it is being evicted. After that it starts again as a gang,
because terminating members do not keep a gang satisfied (B4).
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from gangsched.model.gang import Refusal
from gangsched.model.reasons import Reason
from gangsched.model.verdict_facts import BeingPreempted
from gangsched.state.group_record import QueueCause
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.members import State
from gangsched.state.queueing.queue import Queue


class TakenGroups:
    """Members being evicted, by group; marks the groups in `registry`."""

    def __init__(self, members: MemberStore, registry: Registry, queue: Queue) -> None:
        self._members = members
        self._registry = registry
        self._queue = queue
        self._uids: dict[str, set[str]] = {}

    def now(self) -> Mapping[str, Set[str]]:
        """Members by group."""
        return self._uids

    def take(self, group_id: str, uid: str) -> None:
        """Record that a member is being evicted with its group."""
        uids = self._uids.setdefault(group_id, set())
        uids.add(uid)
        self._show(group_id)

    def give_back(self, group_id: str, uid: str) -> None:
        """Record that a member is no longer being evicted."""
        uids = self._uids.get(group_id, set())
        uids.discard(uid)

        if not uids:
            self._uids.pop(group_id, None)

        self._show(group_id)

    def refresh(self) -> None:
        """Release groups whose last member is being deleted; groups may have been regrouped."""
        # Also shown again if nobody left: a group that was formed again has a record that does not
        # know of it.
        for group_id, uids in list(self._uids.items()):
            left = [uid for uid in uids if not self._is_there(uid)]
            for uid in left:
                self.give_back(group_id, uid)

            self._show(group_id)

    def _is_there(self, uid: str) -> bool:
        member = self._members.get(uid)
        return member is not None and member.state is State.BOUND

    def _show(self, group_id: str) -> None:
        group = self._registry.groups.get(group_id)
        taken = (
            Refusal(Reason.WAITING_FOR_MEMBERS, BeingPreempted())
            if group_id in self._uids
            else None
        )
        if group is not None and group.taken != taken:
            group.taken = taken
            self._registry.changed(group_id)
            self._queue.activate(group_id, QueueCause.EVICTION_CHANGED)
