"""The phase of a gang: one pure function of its members, the memory of its start, its owner and its
minimum (semantics E8).

Invariant: nobody else decides what phase a gang is in, whether its minimum is scheduled, or whether
it is degraded. The rules are tried in the order of the table in the semantics; the first one that
applies decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from gangsched.api.podgroup import PodGroupPhase

QUIET_S = 10.0
"""How long a gang whose members have all ended may get more members of the same controller before
it has finished: the batches of a Job follow each other within a second or two.
"""


class OwnerState(StrEnum):
    """What the owner of a gang says of itself, such as the conditions of a Job."""

    #: It may not be read.
    UNKNOWN = "unknown"
    ACTIVE = "active"
    COMPLETE = "complete"
    FAILED = "failed"


class Counts(msgspec.Struct, frozen=True, gc=False):
    """Members of the gang's start, by what became of them.

    Members that have ended count whether or not their pods still exist; a terminating member is
    deleted.
    """

    #: Neither ended nor terminating, with or without a node.
    live: int = 0
    #: Live, on a node.
    bound: int = 0
    #: Live, in phase Running.
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    #: Went without having ended, and no new member has come instead.
    deleted: int = 0

    @property
    def done(self) -> int:
        """Members that are bound, or have done their work."""
        return self.bound + self.succeeded

    @property
    def scheduled(self) -> int:
        """Members that were bound, those that have ended among them."""
        return self.bound + self.succeeded + self.failed


class Life(msgspec.Struct, frozen=True, gc=False):
    """What the phase of a gang depends on."""

    count: Counts
    #: Members that must start together, 0 if each may start alone.
    min_member: int
    #: A member has left Permit and it is not known yet whether it is bound.
    is_binding: bool = False
    #: Members that are bound or about to be.
    started: int = 0
    #: A live member waits for a node.
    is_waiting: bool = False
    owner: OwnerState = OwnerState.UNKNOWN
    #: A controller may create further members.
    has_controller: bool = False
    #: Seconds since the last live member was seen; infinite if it was reported as finished before.
    quiet_s: float = math.inf
    #: The gang has passed Permit, and its members that are bound count towards its minimum.
    has_started: bool = False
    #: The minimum that it started with, where that is smaller than the present one (B5).
    started_with: int | None = None

    @property
    def needed(self) -> int:
        """The number of members that phases compare with."""
        return max(1, self.min_member)

    @property
    def is_over(self) -> bool:
        """Nothing of the gang lives, and nothing is on its way."""
        return not self.count.live and not self.is_binding

    @property
    def is_done(self) -> bool:
        """Nothing of the gang lives, and its minimum has succeeded."""
        return self.is_over and self.count.succeeded >= self.needed

    @property
    def may_go_on(self) -> bool:
        """All members have ended, and their controller may be about to create the next ones."""
        if self.owner is not OwnerState.UNKNOWN:
            return self.owner is OwnerState.ACTIVE

        return self.has_controller and self.quiet_s < QUIET_S

    @property
    def is_scheduled(self) -> bool:
        """Whether its minimum is bound, or has done its work."""
        return self.count.done >= self.needed

    @property
    def is_vanishing(self) -> bool:
        """Members go without having ended, after others have succeeded, and nobody waits in their
        stead: as an operator removes its workers once the launcher is done.
        """
        is_idle = not self.is_waiting and not self.is_binding
        return is_idle and bool(self.count.deleted and self.count.succeeded)

    @property
    def is_degraded(self) -> bool:
        """Whether it runs below its minimum and needs members to be replaced (semantics B5)."""
        if not self.has_started or not self.count.live or self.is_vanishing:
            return False

        # Raising the minimum breaks no gang.
        least = self.min_member
        if self.started_with is not None:
            least = min(least, self.started_with)

        return self.started + self.count.succeeded < least


def phase(life: Life) -> PodGroupPhase:
    """The phase of a gang (semantics E8)."""
    count = life.count
    ended = _of_owner(life) or _of_members(life)
    if ended is not None:
        return ended

    if count.running + count.succeeded >= life.needed:
        return PodGroupPhase.RUNNING
    if life.is_scheduled:
        return PodGroupPhase.SCHEDULED
    if life.is_vanishing:
        return PodGroupPhase.UNKNOWN

    if count.bound:
        return PodGroupPhase.SCHEDULING
    if count.live >= life.needed:
        return PodGroupPhase.PRE_SCHEDULING
    if count.succeeded and life.is_over:
        return PodGroupPhase.UNKNOWN

    return PodGroupPhase.PENDING


def _of_owner(life: Life) -> PodGroupPhase | None:
    """The phase that the owner's own state implies, whatever its pods are."""
    if life.owner is OwnerState.COMPLETE:
        return PodGroupPhase.FINISHED
    if life.owner is OwnerState.FAILED:
        return PodGroupPhase.FAILED

    return None


def _of_members(life: Life) -> PodGroupPhase | None:
    """The phase of a gang of which nothing lives; None if it is not known to have ended."""
    if not life.is_over:
        return None

    if life.is_done:
        return None if life.may_go_on else PodGroupPhase.FINISHED
    if life.count.failed and life.owner is not OwnerState.ACTIVE:
        return PodGroupPhase.FAILED

    return None


def together(counts: Iterable[Counts]) -> Counts:
    """The members of several gangs."""
    counts_left = list(counts)
    sums = {
        field: sum(getattr(count, field) for count in counts_left)
        for field in Counts.__struct_fields__
    }
    return Counts(**sums)
