"""What pods and gangs wait for now, where their last verdict no longer says it: for claims, for
binds, or for an administrator (semantics E5).

Invariant: reads the state and decides nothing. All who tell it ask here: conditions, statuses and
the gangs API.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from gangsched.model.gang import Refusal
from gangsched.model.objects import DEVICES
from gangsched.model.reasons import Reason
from gangsched.model.storage import Claim
from gangsched.model.wait_facts import AwaitsClaims, GangAwaitsClaims, UnboundClaim
from gangsched.state.gangs import GangRecord
from gangsched.state.members import ClaimsWait, Member, State

WAITING = (State.PENDING, State.HELD, State.KEPT, State.RETRY)
"""The states of members that wait for a plan."""


class ClaimLookup(Protocol):
    """Where claims are looked up."""

    def claim(self, key: str) -> Claim | None:
        """PersistentVolumeClaim by its key."""


class CurrentWaits:
    """Reasons that replace the last verdict. `paused` is set while scheduling is paused."""

    def __init__(self, claims: ClaimLookup) -> None:
        self._claims = claims
        self.paused: Refusal | None = None

    def of_gang(self, record: GangRecord, now_s: float, wall_s: float) -> Refusal | None:
        """What the gang waits for at this monotonic and this epoch second.

        None if its last verdict says it, or if it waits for nothing.
        """
        members = record.of(State.WAITING_FOR_CLAIMS)
        if self.paused is not None and (members or record.of(*WAITING)):
            return self.paused

        if members:
            return self._of_claims(record, members, now_s, wall_s)

        return None

    def of_members(
        self,
        record: GangRecord,
        now_s: float,
        wall_s: float,
    ) -> Iterator[tuple[Member, Refusal]]:
        """Each member that waits for claims, with what it waits for.

        Nothing is written about a pod whose bind is sent: its answer would outdate it.
        """
        for member in record.of(State.WAITING_FOR_CLAIMS):
            yield member, self.paused or self.of_member(member, now_s, wall_s)

    def of_member(self, member: Member, now_s: float, wall_s: float) -> Refusal:
        """What a member waits for whose claims, or those of its start, are not bound."""
        wait = member.wait
        assert wait is not None, f"{member.pod.key} is {member.state} and waits for no claim"

        fact = AwaitsClaims(
            claims=self._unbound((member,)),
            node=member.node,
            since_s=_began_s(wait, now_s, wall_s),
        )
        return Refusal(Reason.WAITING_FOR_VOLUMES, fact)

    def _of_claims(
        self,
        record: GangRecord,
        members: list[Member],
        now_s: float,
        wall_s: float,
    ) -> Refusal:
        began_s = []
        for member in members:
            if member.wait is not None:
                began_s.append(_began_s(member.wait, now_s, wall_s))

        fact = GangAwaitsClaims(
            gang=record.id,
            claims=self._unbound(members),
            pods=len(members),
            since_s=min(began_s, default=int(wall_s)),
        )
        return Refusal(Reason.WAITING_FOR_VOLUMES, fact)

    def _unbound(self, members: Iterable[Member]) -> tuple[UnboundClaim, ...]:
        """The claims of members that are not bound, sorted by name, each once."""
        keys: set[str] = set()
        for member in members:
            keys.update(_unbound_keys(member))

        return tuple(self._named(key) for key in sorted(keys))

    def _named(self, key: str) -> UnboundClaim:
        name = key.rpartition("/")[2]
        if key.startswith(f"{DEVICES}/"):
            return UnboundClaim(name, devices=True)

        claim = self._claims.claim(key)
        return UnboundClaim(name, claim.storage_class if claim is not None else "")


def _unbound_keys(member: Member) -> tuple[str, ...]:
    wait = member.wait
    if wait is None:
        return ()
    if wait.unbound is not None:
        return wait.unbound

    # They are being written.
    return tuple(selection.key for selection in member.selections if selection.waits)


def _began_s(wait: ClaimsWait, now_s: float, wall_s: float) -> int:
    """The epoch second in which a wait began. It is computed once: clocks drift apart, and each
    minute more or less would be another sentence.
    """
    if wait.began_epoch_s is None:
        wait.began_epoch_s = int(wall_s - (now_s - wait.began_s))

    return wait.began_epoch_s
