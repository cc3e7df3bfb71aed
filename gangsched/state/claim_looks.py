"""Members that wait for their claims, and which of them are to be looked at.

Invariant: a turn looks at those that something happened to, however many wait: a claim or volume of
theirs changed, their node is gone, their time has come, or the wait itself was changed. Those that
wait for another pod's allocation are looked at in each turn.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from gangsched.state.members import Member
from gangsched.state.sets_by_key import SetsByKey
from gangsched.state.timers import Timers


@dataclass(frozen=True, slots=True)
class _Wait:
    """Where a member is found."""

    gang: str
    node: str
    names: frozenset[str]


class ClaimLooks:
    """The waiting members; `members` is never changed by others."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self._waits: dict[str, _Wait] = {}
        self._of_gang = SetsByKey()
        self._on_node = SetsByKey()
        #: By key of a claim, or name of a volume.
        self._naming = SetsByKey()
        self._followers: dict[str, None] = {}
        self._marked: dict[str, None] = {}
        self._times = Timers()

    def begin(self, member: Member, names: frozenset[str], *, follows: bool) -> None:
        """A member waits for claims and volumes of these names."""
        uid = member.pod.uid
        self.end(uid)
        self.members[uid] = member
        wait = self._waits[uid] = _Wait(member.gang, member.node, names)
        self._of_gang.add(wait.gang, uid)
        self._on_node.add(wait.node, uid)
        for name in names:
            self._naming.add(name, uid)

        if follows:
            self._followers[uid] = None

    def end(self, uid: str) -> None:
        """A member waits no longer, if it did."""
        wait = self._waits.pop(uid, None)
        if wait is None:
            return

        del self.members[uid]
        self._of_gang.discard(wait.gang, uid)
        self._on_node.discard(wait.node, uid)
        for name in wait.names:
            self._naming.discard(name, uid)

        self._followers.pop(uid, None)
        self._marked.pop(uid, None)
        self._times.drop(uid)

    def mark(self, uid: str) -> None:
        """Look at a member, if it waits, in the next turn."""
        if uid in self._waits:
            self._marked[uid] = None

    def look_at(self, uid: str, at_s: float) -> None:
        """Look at a member at a time, and not at one that was set before."""
        self._times.set(uid, at_s)

    def next_s(self) -> float:
        """When the next time has come."""
        return self._times.next_s()

    def take(
        self,
        changed: Iterable[str],
        nodes: Container[str],
        now_s: float,
    ) -> list[Member]:
        """The members to look at, followers last, after these claims and volumes changed; `nodes`
        are those that exist.
        """
        uids = self._marked
        self._marked = {}
        for name in changed:
            uids |= dict.fromkeys(self._naming.of(name))

        for node in self._on_node:
            if node not in nodes:
                uids |= dict.fromkeys(self._on_node.of(node))

        # All of a start together: it is told of the claim that took too long.
        for uid in self._times.take_due(now_s, most=None):
            uids[uid] = None

        # They are ready only if the pod that has the claim allocated was found ready in this look.
        first = [uid for uid in uids if uid not in self._followers]
        return [self.members[uid] for uid in (*first, *self._followers)]

    def gang_of(self, uid: str) -> str:
        """The gang of a waiting member."""
        return self._waits[uid].gang

    def of_gangs(self, gangs: Iterable[str]) -> list[Member]:
        """The waiting members of these gangs."""
        members: list[Member] = []
        for gang in gangs:
            for uid in self._of_gang.of(gang):
                members.append(self.members[uid])

        return members

    def any_of(self, gang: str) -> bool:
        """Whether a member of the gang waits."""
        return bool(self._of_gang.of(gang))
