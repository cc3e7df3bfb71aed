"""Roster: current and former members of a gang, so that healing replaces only lost members
(semantics B5, Q2).

Invariant: a roster has no more places than members of one start were bound at the same time. Only
proven stamps count, so a stamp that a pod's owner wrote adds no place. The roster is derived from
bound members, and from those that are lost before the gang is read again; after a restart only the
remaining members and the minimum in their stamps are known.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gangsched.model.objects import JointStart, Phase, Pod, Shape
from gangsched.state.members import Member, State

RETRIED = frozenset({State.KEPT, State.RETRY})
"""The states of members that Permit has let through themselves, so that they need to resemble
nobody.
"""
WAITING = RETRIED | {State.PENDING, State.HELD}


class Place(msgspec.Struct, frozen=True, gc=False):
    """The place of a lost member. A pod may take it if it has the same shape, or the same
    controller and no larger requests.
    """

    shape: Shape
    controller_uid: str

    def suits(self, pod: Pod) -> bool:
        """Whether this pod may replace the lost member."""
        if pod.shape is self.shape or pod.shape == self.shape:
            return True
        if not pod.controller_uid or pod.controller_uid != self.controller_uid:
            return False

        had = dict(self.shape.requests)
        return all(amount <= had.get(name, 0) for name, amount in pod.shape.requests)


class Roster:
    """The places of a gang's last start, each with the shape that a replacement must have, by the
    uid of the current or last pod.
    """

    __slots__ = ("_epoch", "_least", "_lost", "_places", "_together")

    def __init__(self) -> None:
        self._epoch = 0
        self._least = 0  # the minimum of the start, as its stamps have it
        self._together: JointStart | None = None  # what started with it
        self._places: dict[str, Place] = {}
        self._lost: dict[str, Place] = {}  # those whose member is gone, the oldest first

    def observe(self, members: Iterable[Member]) -> None:
        """Update the places from the members of the gang."""
        # A stamp on a hand-made pod with a node would else let the gang's later pods pass all
        # equals (Q2).
        proven = []
        for member in members:
            if member.is_proven and member.permit and _has_place(member):
                proven.append((member.permit, member.pod))

        if not proven:
            return

        permits = [permit for permit, _ in proven]
        stamp = max(permits, key=lambda permit: permit.epoch)
        if stamp.epoch != self._epoch:
            # Another start of the gang has other members; whoever was lost before it is none of its
            # concern.
            self._epoch = stamp.epoch
            self._places = {}

        self._least = stamp.min_member
        self._together = stamp.together
        here = {}
        for permit, pod in proven:
            if permit.epoch == self._epoch:
                here[pod.uid] = pod

        self._lost = {uid: place for uid, place in self._places.items() if uid not in here}

        for uid, pod in here.items():
            if uid in self._places:
                continue

            # Without a lost place that suits, the oldest goes: there are never more places than
            # members at a time.
            oldest = next(iter(self._lost), None)
            replaced = next((old for old, place in self._lost.items() if place.suits(pod)), oldest)
            if replaced is not None:
                del self._places[replaced], self._lost[replaced]

            self._places[uid] = Place(pod.shape, pod.controller_uid)

    def lose(self, member: Member, members: Iterable[Member]) -> None:
        """Update the places before one of the `members` is lost that may have been bound since they
        were last observed.
        """
        permit = member.permit
        if permit is None or not member.is_proven or permit.epoch < self._epoch:
            return

        # Whoever is observed is in the places: a gang of which all members are deleted is observed
        # once.
        if member.state is State.BOUND and member.pod.uid not in self._places:
            self.observe(members)

    @property
    def places(self) -> int:
        """Number of members that the last start had at a time, as far as is known."""
        return len(self._places)

    @property
    def sent_with(self) -> JointStart | None:
        """The start of which all that the gang needed were bound, some of which may be lost since;
        None if none is known.
        """
        if self._places and not self.unsent:
            return self._together

        return None

    @property
    def unsent(self) -> int:
        """Number of members that the last start needs and of which nobody was ever bound, as far as
        is known.

        After a restart, this includes those that were lost before it.
        """
        if self._places:
            return max(0, self._least - self.places)

        return 0

    def replaces(self, members: Iterable[Member]) -> bool:
        """Whether all waiting members are replacements: there are at most as many as were lost, and
        each is suitable.

        After a restart it is not known which members were lost. Then a member counts if it could
        replace any remaining member, up to the minimum of the start.
        """
        if not self._places:
            return False

        waiting = []
        for member in members:
            if member.state in WAITING:
                waiting.append(member)

        unknown = self.unsent
        if len(waiting) > len(self._lost) + unknown:
            return False

        lost = list(self._lost.values())
        for member in waiting:
            if member.state in RETRIED:
                continue

            place = next((place for place in lost if place.suits(member.pod)), None)
            if place is not None:
                lost.remove(place)
            elif unknown and any(left.suits(member.pod) for left in self._places.values()):
                unknown -= 1
            else:
                return False

        return True


def _has_place(member: Member) -> bool:
    """Whether a member is bound, or has done its work and needs no replacement."""
    if member.state is State.BOUND:
        return True

    return member.state is State.ENDED and member.pod.phase is Phase.SUCCEEDED
