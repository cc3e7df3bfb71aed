"""The memory of a gang's last start: its number, the controllers of its members, and what became of
members whose pods are gone (semantics I6).

Invariant: the memory only grows until another start of the gang begins. It is fed from stamps of
pods that exist, from members that leave, and from statuses of the PodGroup that another process may
have written, in any order. A stamp or a status that a user forges affects only the user's own gang:
nothing here gives a gang precedence over others.
"""

from __future__ import annotations

from collections.abc import Iterable

from gangsched.api.starts import start_status
from gangsched.model.objects import PermitStamp, Phase
from gangsched.model.start import GoneMembers, StoredStart
from gangsched.state.members import STARTED, Member, State

HAD_NODE = frozenset({State.BOUND, State.TERMINATING, State.ENDED})
"""The states of members that are known to have had a node: a refused bind starts nothing."""


class StartMemory:
    """What is remembered of the last start of one gang.

    Members that another scheduler bound have no stamp: they are counted like members of the last
    start, and do not tell whether it goes on.
    """

    __slots__ = (
        "_failed",
        "_going",
        "_gone_failed",
        "_gone_succeeded",
        "_has_looked",
        "_has_succeeded",
        "_here",
        "_left",
        "_replaced",
        "_stored",
        "_stored_left",
        "_succeeded",
        "_unstamped",
        "controllers",
        "is_incomplete",
        "is_recalled",
        "stamp",
    )

    def __init__(self) -> None:
        #: The stamp of the start, without the room that it promised; None before the first start.
        self.stamp: PermitStamp | None = None
        #: The uids of the controllers that had a member in it.
        self.controllers: frozenset[str] = frozenset()
        #: A stored status was read.
        self.is_recalled = False
        #: Fewer members of the start were found than it needed: what became of the others is known
        #: only if a status has it.
        self.is_incomplete = False
        self._forget()

    def _forget(self) -> None:
        self.controllers = frozenset()
        #: Succeeded and failed members when another process wrote the status.
        self._stored = (0, 0)
        #: Members that it told to be deleted and not replaced, until `settle`.
        self._stored_left = 0
        #: The members that this process found were recorded; whoever comes now is new.
        self._has_looked = False
        #: By uid, the members of the start that exist; those that were asked to go, that have
        #: succeeded, that have failed, and that have no stamp.
        self._here: set[str] = set()
        self._going: set[str] = set()
        self._succeeded: set[str] = set()
        self._failed: set[str] = set()
        self._unstamped: set[str] = set()
        #: Members that are gone: numbers, since a Job may have 100,000 completions.
        self._gone_succeeded = 0
        self._gone_failed = 0
        #: A member with a stamp is among those that had succeeded.
        self._has_succeeded = False
        #: Members that left before they ended, and members that came in the place of one that went.
        self._left = 0
        self._replaced = 0

    @property
    def epoch(self) -> int:
        """The number of the start; 0 before the first one."""
        return self.stamp.epoch if self.stamp is not None else 0

    @property
    def succeeded(self) -> int:
        """Members that have succeeded, pods that are gone among them, at least as many as are
        stored.
        """
        return max(self._gone_succeeded + len(self._succeeded), self._stored[0])

    @property
    def failed(self) -> int:
        """Members that have failed, replaced ones and pods that are gone among them."""
        return max(self._gone_failed + len(self._failed), self._stored[1])

    @property
    def deleted(self) -> int:
        """Members that went, or were asked to go, before they ended, and were not replaced."""
        return max(0, self._left + len(self._going) - self._replaced)

    @property
    def bound(self) -> int:
        """Members that were bound in the start, each with all that came in its place: by stamps of
        pods that exist, and by what is known of those that are gone.
        """
        ended = len(self._succeeded) + len(self._failed)
        return len(self._here) - ended + self.succeeded + self.failed + self._left - self._replaced

    @property
    def goes_on(self) -> bool:
        """Whether a member with the stamp of the start has succeeded, so that its controllers may
        still create the others.
        """
        return self._has_succeeded or not self._succeeded <= self._unstamped

    def learn(self, members: Iterable[Member]) -> None:
        """Update the memory from the members that exist."""
        there = [*members]
        had_node = [member for member in there if member.state in HAD_NODE]
        epoch = self.epoch
        for member in had_node:
            if member.permit is not None and member.permit.epoch > epoch:
                self._begin(member.permit, had_node)
                epoch = member.permit.epoch
                # A process that decided the start has all of its members, bound or being bound.
                stamps = [other.permit for other in there if other.permit is not None]
                known = sum(stamp.epoch == epoch for stamp in stamps)
                self.is_incomplete = known < member.permit.min_member

        # After a restart nobody has come in the place of another: who was first is not known.
        is_new = self._has_looked
        self._has_looked = True
        for member in had_node:
            self._note(member, is_new=is_new)

    def left(self, member: Member) -> None:
        """Record that a member's pod is gone, or is of another gang now."""
        uid = member.pod.uid
        self._note(member)
        if uid not in self._here:
            return

        if uid in self._succeeded:
            self._gone_succeeded += 1
            self._has_succeeded = self._has_succeeded or uid not in self._unstamped
        elif uid in self._failed:
            self._gone_failed += 1
        else:
            self._left += 1

        for uids in (self._here, self._going, self._succeeded, self._failed, self._unstamped):
            uids.discard(uid)

    def recall(self, stored: StoredStart | None, *, has_reported: bool = False) -> None:
        """Add what the PodGroup's status has of the start, if it has any.

        The process before may write it after it was read first. After this one `has_reported`, a
        lower count than an earlier one is its own.
        """
        is_first = not self.is_recalled
        self.is_recalled = True
        if stored is None or not self._may_be_of_it(stored):
            return

        if stored.epoch > self.epoch:
            self._forget()
            self.stamp = PermitStamp(stored.min_member, stored.epoch)
            is_first = True

        # Of later statuses it is not known which of the members that are gone were seen to go.
        if is_first:
            self._gone_succeeded += stored.gone.succeeded
            self._gone_failed += stored.gone.failed
            self._left += stored.gone.deleted

        # An older status of our own tells of members that were replaced since.
        if not has_reported:
            self._stored_left = stored.gone.deleted

        before = self._stored if has_reported else (0, 0)
        self._stored = (
            max(before[0], stored.succeeded, stored.gone.succeeded),
            max(before[1], stored.failed, stored.gone.failed),
        )
        self.is_incomplete = False
        self.controllers |= frozenset(stored.controllers)
        self._has_succeeded = self._has_succeeded or self.succeeded > 0

    def settle(self) -> bool:
        """Count the members of which only a status tells as gone, so that whoever ends from now on
        counts beside them; False while the pods that exist are not known.

        A process that stands by must not: it may see a pod later than a status that tells of it.
        """
        if not self._has_looked:
            return False

        self._gone_succeeded = self.succeeded - len(self._succeeded)
        self._gone_failed = self.failed - len(self._failed)
        self._left = max(self._left, self._stored_left + self._replaced)
        self._stored_left = 0
        return True

    def to_dict(self) -> dict[str, object] | None:
        """`status.start` of the PodGroup, from which another process recalls the start; None before
        the first start.
        """
        if self.stamp is None:
            return None

        start = StoredStart(
            epoch=self.epoch,
            min_member=self.stamp.min_member,
            controllers=tuple(sorted(self.controllers)),
            gone=GoneMembers(
                # Those that went while no gangsched ran are among them.
                succeeded=self.succeeded - len(self._succeeded),
                failed=self.failed - len(self._failed),
                deleted=max(0, self._left - self._replaced),
            ),
        )
        return start_status(start)

    def _may_be_of_it(self, stored: StoredStart) -> bool:
        """Whether a status tells of this start, or of a later one that is over or has no members
        yet.
        """
        if stored.epoch != self.epoch:
            ended = self._going | self._succeeded | self._failed | self._unstamped
            return stored.epoch > self.epoch and self._here <= ended

        # Two processes may use one number, if the later one did not hear of the other's start.
        is_unknown = not self.controllers or not stored.controllers
        return is_unknown or not self.controllers.isdisjoint(stored.controllers)

    def _begin(self, stamp: PermitStamp, members: Iterable[Member]) -> None:
        """Another start of the gang has begun.

        Runs that share a gang may overlap: the controllers of members that live on are remembered.
        """
        self._forget()
        self.stamp = stamp._replace(room=None)
        self.controllers = frozenset(
            member.pod.controller_uid
            for member in members
            if member.state in STARTED and member.permit is not None
        ) - {""}

    def _note(self, member: Member, *, is_new: bool = True) -> None:
        """Record a member of the start, and how it ended."""
        if not self._is_of_it(member):
            return

        uid = member.pod.uid
        if uid not in self._here:
            self._enter(member, is_new=is_new)

        # Of nearly all there is no more to say.
        if member.state is State.BOUND:
            return

        if member.state is State.TERMINATING:
            self._going.add(uid)
        elif member.state is State.ENDED and member.pod.phase is Phase.SUCCEEDED:
            self._succeeded.add(uid)
            self._going.discard(uid)
        elif member.state is State.ENDED and uid not in self._failed:
            # A pod that was asked to go ends as Failed, too, and its controller counts no failure.
            ended = self._going if member.pod.deleting else self._failed
            ended.add(uid)

    def _enter(self, member: Member, *, is_new: bool) -> None:
        """Record a member of the start that was not known as one."""
        pod = member.pod
        if is_new and self.deleted:
            self._replaced += 1

        self._here.add(pod.uid)
        if member.permit is None:
            self._unstamped.add(pod.uid)
        elif pod.controller_uid:
            self.controllers |= {pod.controller_uid}

    def _is_of_it(self, member: Member) -> bool:
        """Whether a member had a node in this start, as far as stamps tell."""
        if member.state not in HAD_NODE:
            return False

        permit = member.permit
        return permit is None or permit.epoch == self.epoch
